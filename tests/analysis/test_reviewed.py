"""Answers about shipped captures are those that were reviewed."""

from __future__ import annotations

import pytest

from tests.analysis.reviewed import ANSWERS, FOLDER, file_of
from tests.choice import one_in
from tests.conftest import ROOT


@pytest.mark.parametrize("name", one_in(5, [*ANSWERS], 2))
def test_answers_match_the_reviewed_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert ANSWERS[name]() == file_of(name).read_text(encoding="utf-8")


def test_every_file_is_compared() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {file_of(name).name for name in ANSWERS}
