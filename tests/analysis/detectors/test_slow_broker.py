"""`slow-broker`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import Fine, NetworkCase, check_cut, check_fine, check_network, name_of

CASES = [
    NetworkCase(
        "slow-broker",
        scenes.one_is_slow,
        "warning",
        25,
        {"broker": "10.0.1.1:9092"},
        "10.0.1.1:9092: median Metadata latency is 60 ms, 5.9×",
        [(2, None)],
        {"apis": ["Metadata"]},
    ),
]
FINE: list[Fine] = [
    ("slow-broker", scenes.all_alike),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
