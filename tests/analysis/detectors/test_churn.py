"""`connection-churn`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import (
    CLIENT,
    Fine,
    NetworkCase,
    check_cut,
    check_fine,
    check_network,
    name_of,
)

CASES = [
    NetworkCase(
        "connection-churn",
        scenes.churning,
        "warning",
        25,
        CLIENT,
        "opened 25 connections within 60 s, 25 of them for less than 5 s",
        [(1, None), (2, None), (3, None)],
        {"opened": 25, "short": 25, "reset": 0, "without_requests": 0, "requests": 25},
        ("connection-churn.every=60s",),
    ),
    NetworkCase(
        "connection-churn",
        scenes.churning_for_a_mechanism,
        "warning",
        25,
        CLIENT,
        "opened 25 connections within 60 s, the broker refused 25 of them: the client asks for SCRAM-SHA-256, the "
        "listener takes PLAIN",
        [(1, None), (2, None), (3, None)],
        {"refused": 25},
        ("connection-churn.every=60s",),
    ),
]
FINE: list[Fine] = [
    ("connection-churn", scenes.staying),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
