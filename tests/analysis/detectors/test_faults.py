"""Captures of faults and of look-alikes: their findings are those that were reviewed."""

import hashlib
import json

import pytest

from tests.analysis.detectors.faults import CAPTURES, FOLDER, ROOT, answer_file, answers, captures

every_capture = pytest.mark.parametrize("capture", captures(), ids=lambda capture: capture.name)


@every_capture
def test_answers_match_the_reviewed_files(capture, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert answers(capture) == answer_file(capture).read_text(encoding="utf-8")


@every_capture
def test_origin_is_noted(capture):
    origin = json.loads((CAPTURES / f"{capture.name}.json").read_text(encoding="utf-8"))
    assert origin["file"] == capture.name
    assert origin["shows"]
    assert origin["clients"]
    assert origin["bytes"] == capture.stat().st_size < 300_000
    assert origin["sha256"] == hashlib.sha256(capture.read_bytes()).hexdigest()


def test_every_file_belongs_to_a_capture():
    names = {capture.name for capture in captures()}
    assert {file.name.removesuffix(".txt") for file in FOLDER.glob("*.txt")} == names
    others = {file.name for file in CAPTURES.iterdir()} - {"README.md"}
    assert {name.removesuffix(".json").removesuffix(".keys") for name in others} == names
