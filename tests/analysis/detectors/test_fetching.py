"""`empty-fetches`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "empty-fetches",
        scenes.fetches(210, 0.01),
        "warning",
        210,
        AT,
        "210 returned nothing",
        [1, 2, 3, 4, 5],
        {"fetches": 210, "empty": 210, "spans": 1},
    ),
]
FINE: list[Fine] = [
    ("empty-fetches", scenes.fetches(25, 0.5), ()),
    ("empty-fetches", scenes.fetches(210, 0.01, scenes.records()), ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
