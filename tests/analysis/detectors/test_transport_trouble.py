"""`transport-trouble`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import (
    PAIR,
    Fine,
    NetworkCase,
    check_cut,
    check_fine,
    check_network,
    name_of,
)

CASES = [
    NetworkCase(
        "transport-trouble",
        scenes.losses,
        "warning",
        8,
        {**PAIR, "trouble": "retransmits"},
        "between 10.0.0.5 and 10.0.0.9:9092 retransmitted; 8 exchanges slowed down",
        [(1, 1), (1, 6), (1, 11)],
        {"retransmits": 8, "unanswered": 0},
    ),
    NetworkCase(
        "transport-trouble",
        scenes.slow_reader,
        "warning",
        1,
        {**PAIR, "trouble": "client-window"},
        "10.0.0.5 accepted no data for 2 s: its window was closed 1 time",
        [(1, None)],
        {"closed": 1},
    ),
    NetworkCase(
        "transport-trouble",
        scenes.another_continent,
        "note",
        10,
        {**PAIR, "trouble": "distance"},
        "round trip from 10.0.0.5 to 10.0.0.9:9092: at least 80 ms",
        [],
        {"round_trip_ms": 80.0},
    ),
]
FINE: list[Fine] = [
    ("transport-trouble", scenes.a_single_loss),
    ("transport-trouble", scenes.busy_broker),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
