"""`kafkasniff decode --format json` on each shipped capture prints its golden file, byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import FOLDER, ROOT, arguments, captures, decode, golden_file

MOST = 1_000_000
"""Bytes of a golden file that a person still reads."""


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_captures_and_golden_files_match():
    assert {file.name for file in FOLDER.glob("*.jsonl")} == {golden_file(capture).name for capture in captures()}


def test_the_captures_match_the_manifest():
    manifest = json.loads((ROOT / "captures" / "manifest.json").read_text(encoding="utf-8"))
    assert [capture.name for capture in captures()] == sorted(entry["file"] for entry in manifest["captures"])


def test_output_matches_the_golden_file(capture_path: Path):
    golden = golden_file(capture_path).read_bytes().splitlines()
    output = decode(capture_path)
    printed = output.splitlines()
    assert len(printed) == len(golden)
    for number, (ours, kept) in enumerate(zip(printed, golden, strict=True), 1):
        assert ours == kept, f"line {number} of {golden_file(capture_path).name}; wanted? python -m tests.golden"
    assert output == golden_file(capture_path).read_bytes()


def test_the_golden_files_are_small():
    assert [path for path in captures() if not 0 < golden_file(path).stat().st_size < MOST] == []


def test_the_program_prints_the_golden_file():
    capture = captures()[0]
    done = subprocess.run(
        [sys.executable, "-m", "kafkasniff", *arguments(capture)], capture_output=True, cwd=ROOT, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (golden_file(capture).read_bytes(), b"")
