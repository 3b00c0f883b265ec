"""`hanging-transactions` and `fenced-producers`: captures that show them, or only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import IN_PAYMENTS, PRODUCER, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "hanging-transactions",
        scenes.hanging,
        "error",
        2,
        IN_PAYMENTS,
        "open for longer than 10 s, the longest for 21 s; 1 still open at the end of the capture",
        [4, 6],
        {"timeout_told": True, "timeout_ms": 10_000.0, "not_ended": 1},
    ),
    Case(
        "fenced-producers",
        scenes.fenced(3),
        "warning",
        3,
        {**PRODUCER, "transactional_id": "payments", "error_code": 47},
        "3 requests of crafted at 10.0.0.5 (payments) refused with INVALID_PRODUCER_EPOCH",
        [1, 2, 3],
    ),
]
FINE: list[Fine] = [
    ("hanging-transactions", scenes.in_time, ()),
    ("fenced-producers", scenes.fenced(3, error=51), ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
