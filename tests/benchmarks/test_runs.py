"""Every benchmark runs once, over next to nothing; what is measured from outside is right."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks import comparisons, growth, scale, shapes, targets
from benchmarks.compare import main as compare
from benchmarks.generate import Maker, Sizes
from benchmarks.live_captures import small
from benchmarks.live_load import Results
from benchmarks.live_stages import STAGES, measure
from benchmarks.mixed_recording import record
from benchmarks.timing import in_turn
from captures.record.distribution import DEFAULT_VERSION, is_cached
from captures.record.programs import CLIENTS, CONFLUENT
from tests.conftest import ROOT, missing
from tests.craft.outcome import files_outcome

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured") / "quick"
    folder.mkdir()
    maker = Maker(folder, Sizes(packets=1_500, connections=20))
    for form in ("C", "start"):
        maker.make(form)
    return folder


@pytest.mark.tshark
def test_compare(
    data: Path, require_tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures are kept, the page is written, and what is there is not measured again."""
    require_tool("tshark")
    monkeypatch.setattr(comparisons, "in_turn", functools.partial(in_turn, warm=False))
    report = data.parent / "page.md"
    arguments = ["--data", str(data), "--report", str(report), "--forms", "C,start", "--groups", "lines,start"]
    arguments += ["--runs", "1", "--start-runs", "1"]
    assert compare(arguments) == 0
    assert "## Beside tshark" in report.read_text()
    assert str(data) not in report.read_text()
    capsys.readouterr()
    assert compare([*arguments, "--resume"]) == 0
    assert "lines, C" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        compare([*arguments, "--resume", "--runs", "2"])


def test_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--report", str(report), "--connections", "50", "--bytes-of", "0.001"]
    arguments += ["--idle", "20", "--idle-minutes", "1", "--unanswered", "50"]
    assert growth.main(arguments) == 0
    results = msgspec.json.decode((tmp_path / "page.json").read_bytes(), type=growth.Results)
    assert len(results.endless) == 4
    # A short run may be over while Python is still being loaded.
    assert all(run.peak > 0 for run in results.endless)
    assert "<!-- growth: begin -->" in report.read_text()
    capsys.readouterr()
    assert growth.main([*arguments, "--resume"]) == 0
    assert "s of CPU" not in capsys.readouterr().out


def test_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, folder = tmp_path / "SCALE.md", tmp_path / "data"
    arguments = ["--sizes", "0.001", "--file-mb", "1", "--base-mb", "1", "--engines", "local"]
    arguments += ["--data", str(folder), "--report", str(report), "--cores"]
    assert scale.main([*arguments, "1"]) == 0
    stored = folder / "results.json"
    results = msgspec.json.decode(stored.read_bytes(), type=scale.Results)
    assert results.runs[0].tables["records"].rows > 1000
    assert report.exists()


def test_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "ENGINES", ("local",))
    monkeypatch.setattr(shapes, "CORES", (1,))
    page = tmp_path / "RESULTS.md"
    assert shapes.main(["--mb", "1", "--data", str(tmp_path / "data"), "--report", str(page)]) == 0
    for shape in shapes.shapes(1_000_000):
        assert f"| {shape.name} | 1 | {shape.file_parts} | local | 1 |" in page.read_text()


def test_targets(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = data.parent / "other"
    shutil.copytree(ROOT / "kafkasniff", other / "kafkasniff")
    shutil.copytree(ROOT / "dissectors", other / "dissectors", dirs_exist_ok=True)
    python = other / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{other}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    arguments = ["--base", str(python), "--data", str(data), "--runs", "1", "--forms", "C"]
    assert targets.main([*arguments, "--work", "json,records,bodies,library"]) == 0
    said = capsys.readouterr().out
    assert "same output |" in said
    assert "same messages and fields" in said
    assert "with the native kernel" in said


# Live


def test_live_stages(tmp_path: Path) -> None:
    material = small(tmp_path, packets=2_000, connections=20)
    output = tmp_path / "lines"
    seconds, packets = measure(material.path.read_bytes(), "text", str(output))
    everything = material.part(packets=float("inf"))
    assert packets == everything.packets
    assert all(seconds[name] > 0 for name in STAGES)
    assert output.read_bytes().count(" → ".encode()) == everything.requests


def live(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    if "it needs root" in done.stderr:
        missing("network namespaces need root or CAP_SYS_ADMIN")
    return done


@pytest.mark.root
def test_live_load(require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_root()
    require_tool("tcpreplay")
    require_tool("ip")
    tiny = [
        "--data",
        str(tmp_path),
        "--report",
        str(tmp_path / "R.md"),
        "--runs",
        "1",
        "--seconds",
        "1",
        "--drain",
        "30",
    ]
    tiny += ["--connections", "20", "--latency-seconds", "1", "--loads", "C=300", "--tools"]
    done = live("live_load", *tiny, "text", "--latency-rate", "0", "--option=--no-such-option")
    assert done.returncode == 1
    assert "C 300 packets/s, text: text does not listen" in done.stderr
    done = live("live_load", *tiny, "text,write", "--latency-rate", "50")
    assert (done.returncode, done.stderr) == (0, "")
    results = msgspec.json.decode((tmp_path / "live_load.json").read_bytes(), type=Results)
    text, written = results.runs
    assert text.offered.requests == text.reported.requests == 80
    assert (text.reported.lost, text.reported.received, written.reported.kept) == (0, 300, 300)
    (delay,) = results.latencies
    assert delay.lines == delay.offered.requests + delay.offered.responses
    assert "| 300 | kafkasniff, text | 1 |" in (tmp_path / "R.md").read_text()


@pytest.mark.root
def test_live_soak(require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_root()
    require_tool("tcpreplay")
    require_tool("ip")
    arguments = ["--minutes", "0.03", "--rate", "500", "--connections", "20", "--data", str(tmp_path)]
    done = live("live_soak", *arguments)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["requests_shown"] == found["requests"] > 250, done.stderr
    assert found["lost"] == 0


@pytest.mark.root
def test_a_recording_of_three_clients(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    require_root()
    for tool in ("tcpdump", "java", "go"):
        require_tool(tool)
    if not is_cached(DEFAULT_VERSION, CONFLUENT, modules=[CLIENTS / "go_load"]):
        missing("`python -m tests.integration` has not put Kafka, confluent-kafka and the Go program into the cache")
    path = tmp_path / "mixed.pcap"
    assert len(record(path, 3, seconds=90)) == 1
    found = files_outcome([path])
    requests = [line for line in found.lines if line["type"] == "request"]
    assert {"java", "rdkafka", "go"} <= {line["client_id"].partition("-")[0] for line in requests if line["client_id"]}
    assert {"ConsumerGroupHeartbeat", "JoinGroup", "OffsetCommit"} <= {line["api"] for line in requests}
    # A process that ends may leave a response half sent, and no client waits for its last Fetch.
    assert {problem["kind"] for problem in found.problems} <= {"stream-cut", "request-unanswered"}


# Measured from outside
