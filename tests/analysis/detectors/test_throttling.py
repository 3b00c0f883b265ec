"""`throttled-clients`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "throttled-clients",
        scenes.produced(2, scenes.records(), throttle=600),
        "warning",
        2,
        {**AT, "api": "Produce"},
        "for 1.2 s, in 2 responses to Produce",
        [1, 2],
        {"throttle_ms": 1200, "worst_ms": 600},
    ),
]
FINE: list[Fine] = [
    ("throttled-clients", scenes.produced(2, scenes.records()), ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
