"""`broker-gone`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import (
    GONE,
    Fine,
    NetworkCase,
    check_cut,
    check_fine,
    check_network,
    name_of,
)

CASES = [
    NetworkCase(
        "broker-gone",
        scenes.killed,
        "error",
        7,
        GONE,
        "not back by the end of the capture: 3 connections dropped, 3 connects refused, 1 connect unanswered, "
        "3 clients (10.0.0.5, 10.0.0.6, 10.0.0.7)",
        [(1, None), (2, None), (3, None)],
        {"dropped": 3, "refused": 3, "unanswered": 1, "back": False},
    ),
    NetworkCase(
        "broker-gone",
        scenes.restarted,
        "warning",
        7,
        GONE,
        "(7 s): 3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    NetworkCase(
        "broker-gone",
        scenes.restarted_unseen,
        "warning",
        3,
        GONE,
        "3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    NetworkCase(
        "broker-gone",
        scenes.accepted_by_a_dying_broker,
        "error",
        8,
        GONE,
        "not back by the end of the capture: 4 connections dropped, 3 connects refused, 1 connect unanswered",
        [(1, None), (2, None), (3, None)],
    ),
    NetworkCase("broker-gone", scenes.not_up_yet, "note", 1, GONE, "not up yet", [(None, None)]),
    NetworkCase(
        "broker-gone",
        scenes.listed_again,
        "warning",
        7,
        GONE,
        "(7 s, according to the metadata of other brokers): 3 connections dropped, 3 connects refused",
        [(2, None), (3, None), (4, None)],
        {"back": True, "leaders_moved": {"1": 2}},
    ),
    NetworkCase(
        "broker-gone",
        scenes.registered_again,
        "warning",
        7,
        GONE,
        "its new epoch): 3 connections dropped, 3 connects refused, 1 connect unanswered, 3 clients (10.0.0.5, "
        "10.0.0.6, 10.0.0.7), restarted (broker epoch 40)",
        [(2, None), (3, None), (4, None)],
        {"back": True, "broker_epoch": 40},
    ),
    NetworkCase(
        "broker-gone",
        scenes.restarted_by_its_epochs,
        "note",
        1,
        {"broker": "2"},
        "broker 2 restarted between 10:13:28.126 and 10:13:30.127: broker epoch 17 became 40",
        [],
        {"epochs": [17, 40]},
    ),
    NetworkCase(
        "broker-gone",
        scenes.restarted_by_its_fetches,
        "note",
        1,
        {"broker": "2"},
        "broker epoch 17 became 40",
        [],
        {"epochs": [17, 40]},
    ),
]
FINE: list[Fine] = [
    ("broker-gone", scenes.leaving),
    ("broker-gone", scenes.firewalled),
    ("broker-gone", scenes.staying),
    ("broker-gone", scenes.idle_too_long),
    ("broker-gone", scenes.beating),
    ("broker-gone", scenes.wrong_password),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
