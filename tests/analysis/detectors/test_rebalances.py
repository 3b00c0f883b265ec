"""`rebalance-storms` and `lost-members`: captures that show them, or only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "rebalance-storms",
        scenes.storm,
        "warning",
        4,
        {"group_id": "workers"},
        "rebalanced 4 times",
        [3, 8, 13, 18],
        {"rebalances": 4},
    ),
    Case(
        "lost-members",
        scenes.lost,
        "warning",
        2,
        {"group_id": "workers"},
        "lost 1 member that had not left (b) and was left 1 time by members that did not poll in time (crafted)",
        [3, 5],
        {"lost": 1, "poll_timeouts": 1},
    ),
]
FINE: list[Fine] = [
    ("rebalance-storms", scenes.growing, ()),
    ("lost-members", scenes.orderly, ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
