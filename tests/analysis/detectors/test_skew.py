"""`skewed-partitions`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import Fine, NetworkCase, check_cut, check_fine, check_network, name_of

CASES = [
    NetworkCase(
        "skewed-partitions",
        scenes.hot_partition,
        "warning",
        1600,
        {"topic": "orders", "partition": 1},
        "partition 1 of orders got 80% of 2,000 records",
        [(1, 3), (1, 4), (1, 5)],
        {"share": 0.8, "partitions": 6, "idle": 2, "records": 2000},
    ),
]
FINE: list[Fine] = [
    ("skewed-partitions", scenes.spread),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
