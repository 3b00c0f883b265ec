"""Every benchmark runs once, over next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks import compare, growth, scale, shapes
from benchmarks.generate import Maker, Sizes
from tests.conftest import ROOT, missing

pytestmark = pytest.mark.extended


@pytest.mark.tshark
def test_compare(tmp_path: Path, require_tool: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    """Both installations are measured; works that do not name the form are skipped."""
    require_tool("tshark")
    maker = Maker(tmp_path, Sizes(packets=1_500, connections=20))
    maker.make("E")
    report = tmp_path / "page.md"
    names = ["text", "check", "records to Parquet", "JSON lines with two jobs, wall time"]
    arguments = ["--data", str(tmp_path), "--report", str(report), "--forms", "E", "--runs", "1", "--base"]
    assert compare.main([*arguments, sys.executable, *(word for name in names for word in ("--work", name))]) == 0
    page = report.read_text()
    assert "## Beside tshark" in page
    assert str(tmp_path) not in page
    assert page.count("(before ") == len(names) - 1
    assert "E: tshark, lines: " in capsys.readouterr().out


def test_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--report", str(report), "--connections", "50", "--bytes-of", "0.001"]
    arguments += ["--idle", "20", "--idle-minutes", "1", "--unanswered", "50"]
    assert growth.main(arguments) == 0
    assert "<!-- growth: begin -->" in report.read_text()
    assert capsys.readouterr().out.count("s of CPU, ") == 4


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


# Live


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
    tiny = ["--data", str(tmp_path), "--report", str(tmp_path / "R.md"), "--rates", "300", "--seconds", "1"]
    tiny += ["--drain", "30", "--connections", "20"]
    done = live("live_load", *tiny, "--tools", "text", "--option=--no-such-option")
    assert done.returncode == 2
    assert "text does not listen" in done.stderr
    done = live("live_load", *tiny, "--tools", "text")
    # No rate is the target.
    assert (done.returncode, done.stderr) == (1, "")
    page = (tmp_path / "R.md").read_text()
    assert "| C | text | 3" in page
    assert page.count("| 0 | 100% of ") == 2


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
