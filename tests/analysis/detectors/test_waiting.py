"""`unanswered-requests` and `late-answers`: captures that show them, or only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case("unanswered-requests", scenes.unanswered, "error", 2, {**AT, "api": "Metadata"}, "waited 40 s", [2, 3]),
    Case("unanswered-requests", scenes.stopped, "error", 2, {**AT, "api": "Metadata"}, "waited 41 s", [1, 2]),
    Case("late-answers", scenes.late, "warning", 6, {**AT, "api": "Metadata"}, "by up to 4 s", [1, 2, 3, 4, 5]),
    Case(
        "late-answers",
        scenes.late,
        "error",
        6,
        {**AT, "api": "Metadata"},
        "6 Metadata requests",
        [1, 2, 3, 4, 5],
        settings=("late-answers.timeout=3s",),
    ),
]
FINE: list[Fine] = [
    ("unanswered-requests", scenes.waiting_consumer, ()),
    ("unanswered-requests", scenes.one_direction, ()),
    ("unanswered-requests", scenes.lost_midway, ()),
    ("late-answers", scenes.patient, ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
