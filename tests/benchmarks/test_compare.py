from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks import comparisons, generate
from benchmarks.compare import Results, main, missing
from benchmarks.compare_report import line, section
from benchmarks.comparisons import Bench, Comparison, Settings, plan
from benchmarks.generate import BY_NAME, FORMS, Capture, Maker, Sizes, captures
from benchmarks.measures import BESIDE, TARGETS, Requests, ours, theirs
from benchmarks.processes import Usage
from benchmarks.tables import against, table
from benchmarks.timing import Run, in_turn
from tests.choice import only_with_all


def run(cpu: float, *, wall: float = 0.0, resident: float = 100e6, written: int = 5_000_000) -> Run:
    return Run(cpu, wall or cpu, int(resident), written)


def beside(group: str, form: str, tshark: float, **mine: float) -> Comparison:
    runs = {name: [run(cpu - 0.1), run(cpu), run(cpu + 5)] for name, cpu in mine.items()}
    runs["tshark"] = [run(tshark), run(tshark), run(tshark)]
    return Comparison(group, form, 120_000_000, 4_000, group != "ek", runs, Requests(900, 900, 0))


def memory(half: float, whole: float) -> Comparison:
    runs = {}
    for names in BESIDE.values():
        for name in names:
            runs[f"{name}, half"], runs[name] = [run(1, resident=half)], [run(2, resident=whole)]
    return Comparison("memory", "A", 120_000_000, 4_000, True, runs)


def jobs(wall: float, *, same: bool = True) -> Comparison:
    runs = {"--jobs 1": [run(10.0, wall=10.0)], "--jobs 2": [run(12.0, wall=wall)]}
    return Comparison("jobs", "C", 1, 1, True, runs, same=same, peaks={"--jobs 1": 90_000_000, "--jobs 2": 177_000_000})


def tables(cpu: float) -> Comparison:
    return Comparison("tables", "A", 120_000_000, 4_000, True, {"tables": [run(cpu, wall=1.5)]})


GOOD = [
    beside("lines", "A", 10.0, text=3.0),
    beside("fields", "A", 10.0, headers=2.0),
    beside("ek", "A", 10.0, json=1.0, records=0.5),
    tables(1.6),
    Comparison("pcapng", "A", 1, 1, True, {"pcap": [run(1.0)], "pcapng": [run(1.2)]}),
    memory(200e6, 210e6),
    jobs(5.0),
    Comparison(
        "start",
        "start",
        1,
        1,
        True,
        {"--version": [run(0.1)], "--help": [run(0.12)], "first line": [run(0.25)], "all lines, tshark": [run(0.3)]},
    ),
]


def page(found: list[Comparison], absent: list[str] | None = None) -> str:
    return section(found, ["today"], "python -m benchmarks.compare", absent or [])


def test_figures_are_next_to_their_targets() -> None:
    text = page(GOOD)
    assert "All targets of what was measured are met." in text
    assert "| A | 120 | 3 | 3.00 (10.00) | 0.30 | ≤ 0.35 | yes |" in text
    assert "| 0.20 | ≤ 0.2 | yes |" in text
    assert "| 0.10 | ≤ 0.13 | yes |" in text
    assert "| 0.05 | ≤ 0.15 | yes |" in text
    assert "| A | 120 | 1 | 1.60 | 1.50 | 75 | ≥ 60 | yes | 100 | 5.0 |" in text
    assert "| A | 0.0 | 1.00 | 1.20 | 1.20 | ≤ 1.3 | yes |" in text
    assert "| A | 120 | records | 200 | 210 | +5% | yes |" in text
    assert "| 10.00 | 5.00 | 0.50 | ≤ 0.58 | yes | 1.20 | 90 | 177 | yes |" in text
    assert "| --version | 1 | 0.100 | ≤ 0.15 | yes |" in text
    assert "| all lines, tshark | 1 | 0.300 |  |  |" in text
    assert "Too small" not in text
    assert "first packets" in text
    # Asked once for both groups over the whole capture and once for the part, which is as large here.
    assert text.count("| A | 120 | 4,000 | 900 | 900 | 0 |") == 1
    assert "**no**" not in text
    # All targets in one table, those included that were not measured.
    assert "| text | A | 0.30 | ≤ 0.35 | yes |" in text
    assert "| text | C-deep | not measured | ≤ 0.2 |  |" in text
    assert "| wall time of --jobs 2 | C | 0.50 | ≤ 0.58 | yes |" in text


@pytest.mark.parametrize(
    ("place", "worse", "expected"),
    [
        (0, beside("lines", "A", 10.0, text=3.6), "text on A 0.36 (≤ 0.35)"),
        (1, beside("fields", "C", 10.0, headers=0.9), "headers on C 0.09 (≤ 0.06)"),
        (2, beside("ek", "Bx", 10.0, json=1.6, records=0.5), "json on Bx 0.16 (≤ 0.12)"),
        (3, tables(3.0), "CPU s per GB, tables on A 25.00 (≤ 16.6667)"),
        (4, Comparison("pcapng", "A", 1, 1, True, {"pcap": [run(1.0)], "pcapng": [run(1.4)]}), "pcapng on A 1.40"),
        (5, memory(200e6, 230e6), "growth of memory, text on A 0.15 (≤ 0.1)"),
        (5, memory(260e6, 260e6), "peak MB, json on A 260.00 (≤ 250)"),
        (6, jobs(7.0), "wall time of --jobs 2 on C 0.70 (≤ 0.58)"),
        (6, jobs(5.0, same=False), "output of --jobs 2 on C is another"),
    ],
)
def test_a_missed_target_is_reported(place: int, worse: Comparison, expected: str) -> None:
    text = page([*GOOD[:place], worse, *GOOD[place + 1 :]])
    assert "Targets that are not met: " in text
    assert expected in text
    assert "**no**" in text
    assert "All targets" not in text


def test_newer_versions_have_no_target() -> None:
    text = page([beside("lines", "A-new", 6.0, text=90.0)])
    assert "| A-new | 120 | 3 | 90.00 (6.00) | 15.00 |  |  |" in text
    assert "All targets" in text
    assert "mock cluster" in text
    assert "mock cluster" not in page(GOOD)


def test_a_capture_that_is_too_small_is_reported() -> None:
    text = page([beside("lines", "A", 4.9, text=1.0), beside("lines", "B", 5.0, text=1.0)])
    assert "It took for A 4.9 s." in text


def test_missing_captures_are_reported() -> None:
    assert missing({"C": 1, "start": 1}) == [form for form in FORMS if form not in {"C", "start", *BY_NAME}]
    assert "Not measured, because not made: A, B" in page(GOOD, ["A", "B"])
    assert "Not measured" not in page(GOOD)


def test_requests_of_both_are_shown_where_they_differ() -> None:
    lost = copy.deepcopy(GOOD[0])
    lost.form, lost.requests = "Bx", Requests(900, 612, 3)
    assert "| Bx | 120 | 4,000 | 900 | 612 | 3 |" in page([lost])


def test_every_form_that_is_compared_has_targets() -> None:
    plain = [form for form in comparisons.VERSIONS if "-" not in form]
    for measure, targets in TARGETS.items():
        assert set(plain) <= set(targets), measure
        assert all(0 < target < 1 for target in targets.values())
        assert set(targets) <= set(FORMS)


def test_cells() -> None:
    assert against(0.5, 0.5) == ["≤ 0.5", "yes"]
    assert against(0.51, 0.5) == ["≤ 0.5", "**no**"]
    assert against(9, None) == ["", ""]
    assert table(["a", "b"], [["x|y", 1]]).splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]


def test_a_line_shows_all_commands() -> None:
    assert line(GOOD[0]).startswith("lines, A, 120 MB: text 3.00 s of CPU, 3.00 s, 100 MB, tshark 10.00 s of CPU")


def test_all_possible_comparisons_are_planned(tmp_path: Path) -> None:
    def planned(*forms: str) -> list[tuple[str, str]]:
        there = {form: Capture(form, tmp_path / form, [9092], 1) for form in forms}
        return [(task.group, task.form) for task in plan(there, tmp_path, Settings())]

    everything = planned(*FORMS)
    assert len(everything) == len(set(everything))
    for form in ("A", "A-new", "B", "B-new", "Bx", "Bx-new", "C", "C-new"):
        assert {("lines", form), ("fields", form), ("ek", form)} <= set(everything)
    assert {("lines", "B-ipv6"), ("lines", "C-deep"), ("lines", "mixed")} <= set(everything)
    assert {form for group, form in everything if group == "tables"} == {"A", "B", "C"}
    assert {form for group, form in everything if group == "pcapng"} == {"A", "C"}
    assert {form for group, form in everything if group == "memory"} == {"A", "B", "Bx", "C"}
    assert {form for group, form in everything if group == "jobs"} == {"A", "B", "C"}
    assert planned("C", "start") == [
        ("lines", "C"),
        ("fields", "C"),
        ("ek", "C"),
        ("tables", "C"),
        ("memory", "C"),
        ("jobs", "C"),
        ("start", "start"),
    ]
    assert planned() == []


def test_commands_read_one_capture_in_one_process() -> None:
    path = Path("x.pcap")
    for measure in ("text", "json", "headers", "records", "tables"):
        command = ours(path, measure, Path("folder"))
        assert command[-1] == "x.pcap"
        assert command[command.index("--jobs") + 1] == "1"
    assert theirs(path, "lines", [1, 2])[-6:] == ["-d", "tcp.port==1,kafka", "-d", "tcp.port==2,kafka", "-Y", "kafka"]
    assert theirs(path, "ek", [])[-2:] == ["-T", "ek"]


# Runs of it


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is compared here, so all runs count."""
    monkeypatch.setattr(comparisons, "in_turn", functools.partial(in_turn, warm=False))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "quick"
    folder.mkdir()
    maker = Maker(folder, Sizes(packets=1_500, connections=20))
    maker.make("C")
    maker.make("start")
    return folder


@pytest.mark.tshark
def test_a_comparison_of_a_small_capture(data: Path, require_tool: Callable[[str], str]) -> None:
    require_tool("tshark")
    capture = captures(data)["C"]
    bench = Bench(data, Settings(runs=1, ek_mb=1, jobs_mb=1))
    found = bench.beside_tshark(capture, "ek")
    assert {name: len(runs) for name, runs in found.runs.items()} == {"json": 1, "records": 1, "tshark": 1}
    assert found.requests is not None
    assert found.requests.ours == found.requests.tshark == 500 == (capture.packets - 60) // 3
    assert found.whole
    assert all(0.05 < one.cpu < 60 and one.resident > 20e6 and one.written > 0 for one in found.runs["records"])
    assert found.runs["json"][0].written > 500_000
    assert not (data / "run").exists()
    part = bench._beginning(capture, capture.path.stat().st_size // 2)
    assert capture.packets // 3 < part.packets < capture.packets * 2 // 3


def test_two_processes_are_compared_by_their_output(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What memory is sampled is for `test_processes`: over so little a process may be over before the first look."""
    measured: list[list[str]] = []

    def measure(command: list[str], folder: Path, *, limit_s: float) -> Usage:
        assert folder.is_dir()
        assert limit_s == comparisons.LIMIT_S
        measured.append(command)
        peak = len(measured) * 1_000_000
        return Usage(1.0, 1.0, {}, peak, peak, {}, {}, 0, 1)

    monkeypatch.setattr(comparisons, "measure", measure)
    capture = captures(data)["C"]
    found = Bench(data, Settings(runs=1)).shared(capture)
    assert found.same is True
    assert set(found.runs) == {"--jobs 1", "--jobs 2"}
    assert found.peaks == {"--jobs 1": 1_000_000, "--jobs 2": 2_000_000}
    assert [command[command.index("--jobs") + 1] for command in measured] == ["1", "2"]
    assert len({command[-1] for command in measured}) == 1
    assert found.runs["--jobs 1"][0].written == found.runs["--jobs 2"][0].written > 0


@only_with_all
@pytest.mark.tshark
def test_figures_are_kept_and_the_page_is_written(
    data: Path, require_tool: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    require_tool("tshark")
    folder, report = data.parent, data.parent / "page.md"
    # What would be measured anew with --quick stands for what was made for a whole run.
    arguments = ["--data", str(data), "--report", str(report), "--forms", "C,start", "--groups", "lines,start"]
    arguments += ["--runs", "1", "--start-runs", "1"]
    assert main(arguments) == 0
    results = msgspec.json.decode((folder / "page.json").read_bytes(), type=Results)
    assert [(one.group, one.form) for one in results.comparisons] == [("lines", "C"), ("start", "start")]
    text = report.read_text()
    assert "<!-- tshark: begin -->" in text
    assert "## Beside tshark" in text
    assert "Not measured, because not made: A," in text
    assert "`python -m benchmarks.compare --runs 1 --start-runs 1 --forms C,start --groups lines,start`" in text
    assert str(folder) not in text
    capsys.readouterr()
    # Existing captures stay, and missing ones are added.
    results.comparisons = [one for one in results.comparisons if one.group == "lines"]
    (folder / "page.json").write_bytes(msgspec.json.encode(results))
    assert main([*arguments, "--resume"]) == 0
    said = capsys.readouterr().out
    assert "start, start" in said
    assert "lines, C" not in said
    kept = msgspec.json.decode((folder / "page.json").read_bytes(), type=Results)
    assert kept.comparisons[0] == results.comparisons[0]
    with pytest.raises(SystemExit):
        main([*arguments, "--resume", "--runs", "2"])
    assert "other settings" in capsys.readouterr().err
    report.unlink()
    assert main([*arguments, "--report-only"]) == 0
    assert "## Beside tshark" in report.read_text()


@pytest.mark.tshark
def test_a_try_out_leaves_nothing(
    data: Path, require_tool: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    require_tool("tshark")
    report = data.parent / "other.md"
    arguments = [
        "--quick",
        "--data",
        str(data.parent),
        "--report",
        str(report),
        "--forms",
        "start",
        "--start-runs",
        "1",
    ]
    assert main(arguments) == 0
    assert "### Start-up" in capsys.readouterr().out
    assert not report.exists()
    assert not report.with_suffix(".json").exists()
    assert not (data / "results.json").exists()


def test_a_command_that_fails_does_not_end_the_rest(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.compare.tshark_version", lambda: "tshark 0")
    monkeypatch.setattr(comparisons, "KAFKASNIFF", ("/bin/false",))
    arguments = ["--quick", "--data", str(data.parent), "--forms", "start", "--start-runs", "1"]
    assert main(arguments) == 1
    assert "start, start: /bin/false --version: exit code 1" in capsys.readouterr().err


def test_wrong_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--forms", "D"], ["--groups", "speed"], ["--runs", "0"], ["--report-only", "--data", str(tmp_path)]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert generate.captures(tmp_path) == {}
    capsys.readouterr()
