from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks import growth_traffic
from benchmarks.generate import Maker, Sizes, captures
from benchmarks.growth import Results, Settings, feed, main, time_beginnings
from benchmarks.growth_report import section
from benchmarks.growth_runs import Endless, Sample, Step, exponent
from benchmarks.growth_traffic import MINUTE_COPIES, Traffic, churn, idle, one_connection, unanswered
from benchmarks.measures import requests_of
from benchmarks.processes import CommandFailedError
from tests.choice import only_with_all
from tests.craft.outcome import files_outcome
from tests.craft.read import read_packets

BROKER_PORT = 9092
PIECES = {"AT_ONCE": 250, "LARGE_EXCHANGES": 4, "BUSY_EXCHANGES": 200, "UNANSWERED_AT_ONCE": 500}
"""What one piece of traffic has: a tenth of what is measured, or less."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in PIECES.items():
        monkeypatch.setattr(growth_traffic, name, number)


def write(traffic: Traffic, path: Path) -> Path:
    with path.open("wb") as out:
        for piece in traffic.pieces:
            out.write(piece)
    return path


def decoded(path: Path) -> tuple[int, int, int, Counter[str]]:
    """Requests, responses, connections and kinds of problems."""
    found = files_outcome([path])
    kinds = Counter(problem["kind"] for problem in found.problems)
    for line in found.lines:
        kinds.update(problem["kind"] for problem in line.get("problems", ()))
    summary = found.summary
    return summary.requests, summary.responses, summary.kafka_connections, kinds


# Traffic


@pytest.mark.parametrize(
    ("make", "requests", "responses", "connections"),
    [
        (lambda: churn(200), 200, 200, 200),
        (lambda: churn(300), 300, 300, 300),
        (lambda: idle(40, 1), 40 + 200 * MINUTE_COPIES, 40 + 200 * MINUTE_COPIES, 41),
        (lambda: one_connection(1), 4, 4, 1),
        (lambda: one_connection(2_500_000), 8, 8, 1),
    ],
    ids=["churn", "churn in two pieces", "idle", "one connection", "one longer connection"],
)
def test_traffic_is_sound(
    make: Callable[[], Traffic], requests: int, responses: int, connections: int, tmp_path: Path
) -> None:
    traffic = make()
    path = write(traffic, tmp_path / "traffic.pcap")
    assert decoded(path) == (requests, responses, connections, Counter())
    assert (traffic.requests, traffic.connections) == (requests, connections)
    packets = read_packets(path)
    assert traffic.packets == len(packets)
    times = [packet.time_ns for packet in packets]
    assert times == sorted(times)
    assert write(make(), tmp_path / "again.pcap").read_bytes() == path.read_bytes()


def test_one_connection_is_as_long_as_it_should_be(tmp_path: Path) -> None:
    assert write(one_connection(3_000_000), tmp_path / "traffic.pcap").stat().st_size >= 3_000_000


def test_requests_without_an_answer(tmp_path: Path) -> None:
    traffic = unanswered(100)
    path = write(traffic, tmp_path / "traffic.pcap")
    # The capture ends before the connections do: an answer might still come, so none is said to be missing.
    assert decoded(path) == (traffic.requests, 0, 2, Counter())
    assert traffic.requests >= 100


@pytest.mark.tshark
def test_tshark_finds_nothing_malformed(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_tool("tshark")
    for name, traffic, requests in (("churn", churn(200), 200), ("one", one_connection(1), 4)):
        path = write(traffic, tmp_path / f"{name}.pcap")
        assert requests_of(path, [BROKER_PORT], tmp_path / "counted") == (requests, requests, 0)


def test_more_copies_than_there_are_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="more than there are"):
        one_connection(10**15)


# Arithmetic


def test_the_exponent_excludes_the_start() -> None:
    sizes = [10**3, 2 * 10**3, 4 * 10**3, 8 * 10**3]
    for power in (1.0, 1.5):
        steps = [Step("B", 100, 1, 0.5, 0.0), *(Step("B", 0, n, 0.5 + 1e-5 * n**power, 0.0) for n in sizes)]
        assert exponent(steps) == pytest.approx(power)
    assert exponent([Step("B", 100, 1, 0.5, 0.0), Step("B", 0, 1000, 0.6, 0.0)]) is None
    # Less than starting up takes: nothing can be said of it.
    assert exponent([Step("B", 100, 1, 0.5, 0.0), *[Step("B", 0, 1000, 0.4, 0.0)] * 3]) is None


def endless(*resident: int, total: int | None = None) -> Endless:
    samples = [Sample(place * 0.2, place * 100, value) for place, value in enumerate(resident)]
    return Endless("it", total or (len(resident) - 1) * 100, 10, 2, 5, 1.0, 2.0, samples)


def test_memory_growth_in_the_second_half() -> None:
    flat = endless(10, 50, 100, 100, 100, 100, 100, 100, 105)
    assert flat.peak == 105
    assert flat.growth() == pytest.approx(0.05)
    assert endless(10, 50, 100, 110, 120, 130, 140, 150, 165).growth() == pytest.approx(0.5)
    # What is given back does not make it grow.
    assert (endless(10, 50, 200, 100, 100, 100, 100, 100, 100).growth() or 0) < 0
    assert endless(10, total=1000).growth() is None
    assert [flat.resident_at(share) for share in (0.0, 0.25, 1.0)] == [10, 100, 105]
    assert Endless("it", 10, 0, 0, 0, 0.0, 0.0, []).resident_at(1.0) is None


def test_the_page_shows_time_and_memory() -> None:
    steps = [Step("C", 1_000, 10, 0.5, 40e6), Step("C", 10**6, 1_000, 1.5, 50e6), Step("C", 2 * 10**6, 2_000, 2.5, 6e7)]
    runs = [
        endless(10, 50, 100, 100, 100, 100, 100, 100, 105),
        endless(10, 50, 100, 110, 120, 130, 140, 150, 165),
        endless(1, total=1000),
    ]
    text = section(steps, runs, ["today"], "python -m benchmarks.growth")
    assert "exponent **1.00**" in text
    assert "| 1 | 1,000 | 1.50 | 1000.00 | 50 |" in text
    assert "| +5% | yes |" in text
    assert "| +50% | **no** |" in text
    assert "too short to judge" in text


# Runs of it


def test_memory_is_looked_at_while_traffic_is_written() -> None:
    found = feed("churn", churn(2_000))
    assert (found.connections, found.requests) == (2_000, 2_000)
    assert found.cpu_s > 0.3
    assert found.samples
    assert 20e6 < found.peak < 1e9
    assert found.samples[-1].fed <= found.bytes


def test_a_failed_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.growth.KAFKASNIFF", ("sh", "-c", "echo it went wrong >&2; exit 9", "sh"))
    with pytest.raises(CommandFailedError, match="exit code 9\nit went wrong"):
        feed("churn", churn(20_000))


@only_with_all
def test_beginnings_are_timed(tmp_path: Path) -> None:
    maker = Maker(tmp_path, Sizes(packets=13_000, connections=30))
    maker.make("C")
    steps = time_beginnings(captures(tmp_path)["C"], tmp_path / "growth", Settings(largest_mb=2, runs=1))
    assert [round(step.bytes / 1e6, 1) for step in steps] == [0.0, 1.0, 2.0]
    assert steps[0].packets < 40
    assert 5_000 < steps[1].packets < steps[2].packets
    assert all(step.cpu_s > 0.1 and step.resident > 20e6 for step in steps)
    assert not list((tmp_path / "growth").iterdir())


def test_figures_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--report", str(report), "--connections", "50", "--bytes-of", "0.001"]
    arguments += ["--idle", "20", "--idle-minutes", "1", "--unanswered", "50"]
    assert main(arguments) == 0
    results = msgspec.json.decode((tmp_path / "page.json").read_bytes(), type=Results)
    assert len(results.endless) == 4
    text = report.read_text()
    assert "<!-- growth: begin -->" in text
    assert "one connection of 0.001 GB" in text
    assert str(tmp_path) not in text
    capsys.readouterr()
    assert main([*arguments, "--resume"]) == 0
    assert "s of CPU" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*arguments, "--resume", "--idle", "30"])
    report.unlink()
    assert main([*arguments, "--report-only"]) == 0
    assert "## Growth" in report.read_text()
    with pytest.raises(SystemExit):
        main(["--connections", "0"])
