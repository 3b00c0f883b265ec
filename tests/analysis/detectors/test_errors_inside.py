"""`hidden-errors`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "hidden-errors",
        scenes.hidden,
        "error",
        2,
        {**PRODUCER, "api": "OffsetCommit", "topic": "orders", "error_code": 12},
        "with partition-level error OFFSET_METADATA_TOO_LARGE for topic orders",
        [1, 2],
        {"exchanges": 2, "errors": 2, "retriable": False},
    ),
]
FINE: list[Fine] = [
    ("hidden-errors", scenes.transient_errors, ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
