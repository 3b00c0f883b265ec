"""The kernel's targets: both checkouts are measured as they are, and neither in place of the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import targets
from benchmarks.deep_traffic import write
from benchmarks.kernel import main as kernel_main
from benchmarks.targets import TARGETS, TITLES, WORK, Row, checkout, main, section, write_bodies
from kafkasniff.native import kernel, kernel_note
from tests.choice import only_with_all
from tests.conftest import missing
from tests.craft.samples import mixed
from tests.craft.write import write_pcap

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "captures"

pytestmark = pytest.mark.xdist_group("benchmark-targets")


def work(*words: str, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-P", str(WORK), *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captures, as `benchmarks.generate` leaves it."""
    folder = tmp_path_factory.mktemp("data")
    write(folder / "C-deep.pcap", connections=10, exchanges=200)
    shutil.copy(CAPTURES / "franz-go.pcap", folder / "A.pcap")
    write_pcap(folder / "start.pcap", mixed()[:100])
    for path in list(folder.iterdir()):
        path.with_suffix(".json").write_text(json.dumps({"made_with": {}, "ports": [9092], "packets": 1}))
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of another checkout: a copy of this one, without the kernel."""
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(
        ROOT / "kafkasniff", folder / "kafkasniff", ignore=shutil.ignore_patterns("kernel.so", "kernel.dylib")
    )
    if not (folder / "kafkasniff" / "dissectors").exists():
        shutil.copytree(ROOT / "dissectors", folder / "dissectors")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("name", ["java-codecs", "java-group-consumer"])
def test_both_ways_render_the_same_bodies(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bodies"
    count, share = write_bodies(CAPTURES / f"{name}.pcap", path)
    assert count > 50
    assert 0 < share < 1
    native, python = work("bodies", str(path)), work("bodies", str(path), KAFKASNIFF_KERNEL="0")
    assert python["kernel"] is False
    # Python skips bodies with error codes, the kernel does not.
    assert native["skipped"] <= python["skipped"] < count / 2  # type: ignore[operator]
    if native["skipped"] == python["skipped"]:
        assert native["bytes"] == python["bytes"]


def test_bodies_of_deep_traffic_are_all_read(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "bodies"
    count, _ = write_bodies(data / "C-deep.pcap", path)
    assert count >= 400
    native, python = work("bodies", str(path)), work("bodies", str(path), KAFKASNIFF_KERNEL="0")
    assert native["skipped"] == python["skipped"] == 0
    assert native["bytes"] == python["bytes"] > 10_000  # type: ignore[operator]


def test_the_library_gives_every_message(data: Path) -> None:
    found = work("read", str(data / "C-deep.pcap"))
    assert found["messages"] >= 400  # type: ignore[operator]
    assert found["fields"] > found["messages"]  # type: ignore[operator]


def test_two_checkouts_are_distinguished(other: str) -> None:
    mine, theirs = checkout("new", sys.executable), checkout("base", other)
    assert mine.folder == ROOT / "kafkasniff"
    assert theirs.folder == Path(other).parent / "kafkasniff"
    assert not theirs.has_kernel
    with pytest.raises(SystemExit, match="wrong"):
        checkout("wrong", shutil.which("false") or "/bin/false")


@only_with_all
def test_a_table_of_both(data: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--base", other, "--data", str(data), "--runs", "1", "--forms", "C-deep"]
    assert main([*arguments, "--work", "json,records,bodies,library"]) == 0
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {TITLES['json']}", "C-deep"],
        [f"| {TITLES['records']}", "C-deep"],
        [f"| {TITLES['bodies']}", "C-deep"],
        [f"| {TITLES['library']}", "C-deep"],
    ]
    assert rows[0].endswith("same output |")
    assert "same messages and fields" in rows[-1]
    assert "without the native kernel" in said
    assert "--forms C-deep --work json,records,bodies,library --runs 1`" in said


def test_measures_that_are_impossible_are_refused(data: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--base", other, "--data", str(data)]
    for wrong, reported in (
        ([*usual, "--forms", "Q"], "not known: Q"),
        ([*usual, "--work", "text"], "not known: text"),
        ([*usual, "--runs", "0"], "positive"),
        ([*usual, "--most-mb", "0"], "FORM=N"),
        ([*usual, "--most-mb", "A=5,Q=5"], "FORM=N"),
        (usual, "B, C, mixed"),
        (["--base", sys.executable, "--data", str(data), "--forms", "start"], "both import"),
    ):
        with pytest.raises(SystemExit):
            main(wrong)
        assert reported in capsys.readouterr().err


def test_a_page_is_written(
    data: Path, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "RESULTS.md"
    old = "<!-- kernel-targets: begin -->\n\nEarlier figures.\n\n<!-- kernel-targets: end -->"
    page.write_text(f"# Results\n\n{old}\n\nOthers' figures.\n")
    monkeypatch.setattr(targets, "PAGE", page)
    monkeypatch.setattr(targets, "START_RUNS", 1)
    arguments = ["--base", other, "--data", str(data), "--runs", "1", "--forms", "start", "--write"]
    assert main(arguments) == 0
    assert str(page) in capsys.readouterr().out
    text = page.read_text()
    assert "Others' figures." in text
    assert text.count("## The kernel's targets") == 1
    assert "Earlier figures." not in text
    assert TITLES["start"] in text


def test_with_the_kernel_and_without(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if kernel() is None:
        missing(kernel_note())
    monkeypatch.setattr(sys, "argv", ["kernel", "--runs", "1", str(CAPTURES / "franz-go.pcap")])
    kernel_main()
    row = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert row[0] == "franz-go"
    assert all(float(cell.replace(",", "")) > 0 for cell in row[2:])


def test_targets_are_compared() -> None:
    good, bad, plain = Row("json", "A", 2.0, 0.9), Row("library", "C", 2.0, 1.4), Row("json", "C", 0.5, 0.5, "note")
    text = section([good, bad, plain], ["a machine"])
    assert f"| {TITLES['json']} | A | 2.00 | 0.90 | 0.45 | ≤ 0.45 | yes |  |" in text
    assert f"| {TITLES['library']} | C | 2.00 | 1.40 | 0.70 | ≤ 0.6 | **no** |  |" in text
    assert f"| {TITLES['json']} | C | 0.500 | 0.500 | 1.00 |  |  | note |" in text
    assert "- a machine" in text
    assert set(TARGETS) == set(TITLES)
