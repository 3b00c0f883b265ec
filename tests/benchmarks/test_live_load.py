from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.live_captures import small
from benchmarks.live_latency import LineTimes, percentiles
from benchmarks.live_load import Results, parser
from benchmarks.live_loads import Offered
from benchmarks.live_report import is_complete, section
from benchmarks.live_run import Result
from benchmarks.live_tools import Kafkasniff, Reported, Tshark, make_tools, read_pcapng
from benchmarks.pcap_files import write_copies
from benchmarks.processes import Usage
from benchmarks.results_page import write_section
from benchmarks.timing import CAPTURE_CUT
from kafkasniff.capture.live.interface_socket import InterfaceSocket
from kafkasniff.model import Problem
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink
from tests.cli.console import kafkasniff
from tests.conftest import missing

CAPTURES = Path(__file__).resolve().parents[2] / "captures"


def decoded(capture: Path, *options: str) -> bytes:
    result = kafkasniff("decode", "--quiet", *options, capture)
    assert result.code in {0, CAPTURE_CUT}, result.err
    return result.out


def messages(capture: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in decoded(capture, "--format", "json").splitlines()]
    return [line for line in found if line["type"] in {"request", "response"}]


def requests(capture: Path) -> int:
    return sum(message["type"] == "request" for message in messages(capture))


def time_ns(message: dict[str, Any]) -> int:
    return int(np.datetime64(message["time"].removesuffix("Z"), "ns").astype(np.int64))


def reported(form: str, output: bytes, folder: Path, errors: str = "") -> Reported:
    (folder / "output").write_bytes(output)
    return Kafkasniff("text", form).reported(folder / "output", errors, folder)


# What is replayed


def test_the_messages_of_a_part_are_known(tmp_path: Path) -> None:
    material = small(tmp_path, packets=900, connections=20)
    for wanted in (1, 61, 500, 900):
        part = material.part(packets=wanted)
        assert part.packets == wanted
        path = tmp_path / "part.pcap"
        path.write_bytes(material.path.read_bytes()[: 24 + part.bytes + 16 * part.packets])
        found = messages(path)
        assert sum(message["type"] == "request" for message in found) == part.requests
        assert len(found) == part.requests + part.responses
    assert material.part(packets=1e9).packets >= 900
    assert material.part(size=1e12) == material.part(packets=1e9)


def test_copies_are_later_and_have_other_clients(tmp_path: Path) -> None:
    source = CAPTURES / "librdkafka-acks0.pcap"
    manifest = json.loads((CAPTURES / "manifest.json").read_text())
    ports = next(one["broker_ports"] for one in manifest["captures"] if one["file"] == source.name)
    path = tmp_path / "copies.pcap"
    write_copies(source.read_bytes(), path, 3, ports)
    once, copies = messages(source), messages(path)
    assert len(copies) == 3 * len(once)
    kinds = [(message["type"], message["correlation_id"], message["size"], message["problems"]) for message in once]
    assert kinds
    found = [(message["type"], message["correlation_id"], message["size"], message["problems"]) for message in copies]
    assert sorted(map(repr, found)) == sorted(map(repr, 3 * kinds))
    addresses = {message["client"].rpartition(":")[0] for message in copies}
    assert addresses == {"127.0.0.1", "127.0.1.1", "127.0.2.1"}
    assert {message["broker"] for message in copies} == {message["broker"] for message in once}
    times = sorted(map(time_ns, copies))
    before = sorted(map(time_ns, once))
    assert times[: len(once)] == before
    assert times[len(once)] > before[-1]


# What programs say


@pytest.mark.parametrize("name", ["librdkafka-codecs.pcap", "librdkafka-snaplen-128.pcap", "java-errors.pcap"])
def test_text_and_json_agree(name: str, tmp_path: Path) -> None:
    text = reported("text", decoded(CAPTURES / name, "--color", "never"), tmp_path)
    json_lines = reported("json", decoded(CAPTURES / name, "--format", "json"), tmp_path)
    assert text.requests == json_lines.requests == requests(CAPTURES / name) > 0
    # None of these messages has more problems than text shows.
    assert text.problems == json_lines.problems
    assert ("frame-incomplete" in text.problems) == ("snaplen" in name)


@pytest.mark.parametrize("form", ["text", "json"])
def test_losses_are_added_up_until_their_sum_is_reported(form: str, tmp_path: Path) -> None:
    """In the words of the capture itself."""
    counted = iter([(100, 3), (250, 10), (1250, 1010)])
    capture = SimpleNamespace(name="eth0", error=None, packets=240, counts=lambda: next(counted), _reported=(0, 0))
    first, second = InterfaceSocket.fresh_loss(capture), InterfaceSocket.fresh_loss(capture)  # type: ignore[arg-type]
    (last,) = InterfaceSocket.problems(capture)  # type: ignore[arg-type]
    behind = Problem("live-behind", "records are not decoded", capture="eth0", time_ns=10**18)
    assert first
    assert second

    def lines(*problems: Problem) -> bytes:
        out = io.BytesIO()
        sink = JsonSink(out) if form == "json" else TextSink(out)
        for problem in problems:
            sink.write(problem)
        sink.close()
        return out.getvalue()

    assert reported(form, lines(first, second), tmp_path).lost == 10
    found = reported(
        form, lines(first, behind, second, last), tmp_path, "listening\nx: 240 packets, 3 connections (3 Kafka)\n"
    )
    assert found.lost == 1010
    assert found.received == 240 + 1010
    assert found.problems == {"capture-loss": 3, "live-behind": 1}
    assert found.details["live-behind"] == "records are not decoded"
    assert "1,010 of 1,250" in found.details["capture-loss"]


def test_an_incomplete_line_does_no_harm(tmp_path: Path) -> None:
    output = decoded(CAPTURES / "librdkafka-snaplen-128.pcap", "--format", "json")
    whole = reported("json", output, tmp_path)
    for cut in (1, 30, 500):
        assert reported("json", output[:-cut], tmp_path).requests in {whole.requests, (whole.requests or 0) - 1}
    assert reported("text", b"\xff\x00\n\n12:00:00.000000", tmp_path).requests == 0


def test_requests_of_tshark(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    tshark = require_tool("tshark")
    path = small(tmp_path, packets=200, connections=5).path
    known = requests(path)
    times = {}
    for tool in make_tools(["tshark", "tshark-ek"], [], []):
        assert isinstance(tool, Tshark)
        options = ["-n", "-r", str(path), "-t", "e", "-d", "tcp.port==9092,kafka", "-Y", "kafka"]
        options += ["-T", "ek"] if tool.form == "json" else []
        output = tmp_path / "output"
        output.write_bytes(subprocess.run([tshark, *options], capture_output=True, check=True, timeout=120).stdout)
        assert tool.reported(output, "7 packets dropped from eth0\n", tmp_path).requests == known
        assert tool.reported(output, "7 packets dropped from eth0\n", tmp_path).lost == 7
        lines = LineTimes(tool)
        lines.take(output.read_bytes(), 0)
        times[tool.name] = lines.delays_ns
    assert len(times["tshark"]) == 2 * known
    assert times["tshark"] == times["tshark-ek"]


def test_the_packets_of_a_pcapng_cut_anywhere(tmp_path: Path) -> None:
    source = CAPTURES / "librdkafka-ipv6-ns.pcapng"  # of dumpcap
    data = source.read_bytes()
    found = read_pcapng(source)
    assert found.packets > 10
    assert (found.received, found.dropped) == (found.packets, 0)
    path = tmp_path / "cut.pcapng"
    for size in (0, 7, 8, 100, 1000, len(data) - 40):
        path.write_bytes(data[:size])
        assert read_pcapng(path).packets <= found.packets
    path.write_bytes(bytes(4096))
    assert read_pcapng(path) == (0, None, None)


# The delay of a line


def test_the_time_of_a_line_is_found_in_any_pieces() -> None:
    capture = CAPTURES / "librdkafka-acks0.pcap"
    now = 1_900_000_000_000_000_000
    text, json_lines, pieces = (LineTimes(tool) for tool in make_tools(["text", "json", "json"], [], []))
    text.take(decoded(capture, "--color", "never"), now)
    output = decoded(capture, "--format", "json")
    json_lines.take(output, now)
    for at in range(0, len(output), 77):
        pieces.take(output[at : at + 77], now)
    assert json_lines.delays_ns == pieces.delays_ns == [now - time_ns(message) for message in messages(capture)]
    day = 86_400 * 10**9
    # Text shows microseconds, and the time of day.
    assert [delay % day // 1000 for delay in text.delays_ns] == [delay % day // 1000 for delay in json_lines.delays_ns]
    assert all(-day / 2 <= delay < day / 2 for delay in text.delays_ns)


def test_percentiles() -> None:
    assert percentiles([]) == (None, None, None)
    assert percentiles([n * 1_000_000 for n in range(101)]) == (50.0, 99.0, 100.0)


# The report


def result(tool: str, rate: float, shown: int, **other: object) -> Result:
    usage = Usage(10.0, 2.5, {}, 80_000_000, 70_000_000, {}, {}, 0, 50)
    made = Result(
        *(f"C {rate:g} packets/s", "C", rate, tool, Offered(2.0, 600, 60_000, 0, 200, 200)),
        *(Reported(requests=shown, lost=0), usage, 0.2, True, False, 0, 0.1),
    )
    return dataclasses.replace(made, **other)  # type: ignore[arg-type]


def test_rates_without_missing_messages() -> None:
    assert is_complete(result("text", 100, 200))
    for incomplete in (
        result("text", 100, 199),
        result("text", 100, 200, behind_s=1.5),
        result("text", 100, 200, caught_up=False),
        result("text", 100, 200, reported=Reported(requests=200, lost=1)),
        result("text", 100, 200, reported=Reported(requests=200, lost=0, problems={"live-behind": 1})),
    ):
        assert not is_complete(incomplete)
    problem = Reported(requests=200, lost=5, problems={"capture-loss": 2}, details={"capture-loss": "5 of 600 | lost"})
    runs = [
        *(result("text", 100, 200), result("tshark", 100, 200)),
        *(result("text", 300, 200), result("tshark", 300, 199, caught_up=False)),
        *(result("text", 900, 200, reported=problem), result("tshark", 900, 200)),
    ]
    page = section(runs, [], ["today"], ["a note"], "python -m benchmarks.live_load")
    # tshark has lost nothing at 900, but at 300 it was not complete.
    assert "| 300 | 100 |" in page
    assert "| C 900 packets/s | kafkasniff, text | `capture-loss` | 2 | 5 of 600 \\| lost |" in page
    assert "| 900 | kafkasniff, text | 1 | 300 | 0.0 | 200 | 5 | 100% of 200 | 0.2 | 2.5 | 80 |  |" in page
    assert ">0.2" in page


def test_nearly_all_is_not_all() -> None:
    offered = Offered(1.0, 3_000_000, 1, 0, 1_000_000, 0)
    page = section([result("text", 100, 999_999, offered=offered)], [], [], [], "")
    assert "99.99% of 1,000,000" in page
    assert "none of them" in page
    about = section(
        [result("text", 100, 91, offered=dataclasses.replace(offered, requests=80, exact=False))], [], [], [], ""
    )
    assert "| 91 of at least 80 |" in about


def test_each_benchmark_has_its_own_section(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    write_section("one", "first \\1", page)
    write_section("two", "second", page)
    write_section("one", "third \\g<0>", page)
    text = page.read_text()
    assert "first" not in text
    assert text.index("third \\g<0>") < text.index("second")
    assert text.count("one: begin") == text.count("one: end") == text.count("two: begin") == 1


def test_loads_are_named_with_their_rates(capsys: pytest.CaptureFixture[str]) -> None:
    options = parser().parse_args(["--loads", "C=5,1e3", "small=max,2"])
    assert options.loads == [[("C", 5.0), ("C", 1000.0)], [("small", None), ("small", 2.0)]]
    for wrong in ("C", "D=5", "C=max", "C=0", "A=x", "C=nan", "A=inf", "C=-1"):
        with pytest.raises(SystemExit):
            parser().parse_args(["--loads", wrong])
    assert "is not a rate" in capsys.readouterr().err


# All of it

TINY = ["--runs", "1", "--seconds", "1", "--drain", "30", "--connections", "20", "--latency-seconds", "1"]


@pytest.mark.root
def test_a_load_is_sent_and_seen(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    require_root()
    require_tool("tcpreplay")
    require_tool("ip")
    command = [
        sys.executable,
        "-m",
        "benchmarks.live_load",
        "--data",
        str(tmp_path),
        "--report",
        str(tmp_path / "R.md"),
    ]
    command += [*TINY, "--loads", "C=300", "--tools", "text,write", "--latency-rate", "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=CAPTURES.parent)
    if "it needs root" in done.stderr:
        missing("network namespaces need root or CAP_SYS_ADMIN")
    assert (done.returncode, done.stderr) == (0, "")
    results = msgspec.json.decode((tmp_path / "live_load.json").read_bytes(), type=Results)
    text, write = results.runs
    assert text.offered.packets == write.offered.packets == 300
    assert text.offered.requests == text.reported.requests == 80
    assert (text.reported.lost, text.reported.received, text.reported.problems) == (0, 300, {})
    assert (write.reported.lost, write.reported.kept) == (0, 300)
    assert text.usage.cpu_s > 0.1
    assert (text.exit_code, text.caught_up, text.killed) == (0, True, False)
    (delay,) = results.latencies
    assert delay.lines == delay.offered.requests + delay.offered.responses
    assert delay.median_ms
    assert delay.p99_ms
    assert 0 < delay.median_ms <= delay.p99_ms
    page = (tmp_path / "R.md").read_text()
    assert "| 300 | kafkasniff, text | 1 |" in page
    assert "80 of 80" not in page
    assert "100% of 80" in page
    assert str(tmp_path) not in page
    assert not (tmp_path / "live" / "run").exists()


@pytest.mark.root
def test_a_program_that_does_not_listen_is_reported(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    require_root()
    require_tool("tcpreplay")
    require_tool("ip")
    command = [
        sys.executable,
        "-m",
        "benchmarks.live_load",
        "--data",
        str(tmp_path),
        "--report",
        str(tmp_path / "R.md"),
    ]
    command += [*TINY, "--loads", "C=300", "--tools", "text", "--latency-rate", "0", "--option=--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=CAPTURES.parent)
    if "it needs root" in done.stderr:
        missing("network namespaces need root or CAP_SYS_ADMIN")
    assert done.returncode == 1
    assert "C 300 packets/s, text: text does not listen" in done.stderr
    assert "--no-such-option" in done.stderr
    assert not (tmp_path / "R.md").exists()
