"""`broker-gone`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import GONE, finds, survives_a_cut

CASES = [
    Case(
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
    Case(
        "broker-gone",
        scenes.restarted,
        "warning",
        7,
        GONE,
        "(7 s): 3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    Case(
        "broker-gone",
        scenes.restarted_unseen,
        "warning",
        3,
        GONE,
        "3 connections dropped",
        [(1, None), (2, None), (3, None)],
    ),
    Case(
        "broker-gone",
        scenes.accepted_by_a_dying_broker,
        "error",
        8,
        GONE,
        "not back by the end of the capture: 4 connections dropped, 3 connects refused, 1 connect unanswered",
        [(1, None), (2, None), (3, None)],
    ),
    Case("broker-gone", scenes.not_up_yet, "note", 1, GONE, "not up yet", [(None, None)]),
    Case(
        "broker-gone",
        scenes.listed_again,
        "warning",
        7,
        GONE,
        "(7 s, according to the metadata of other brokers): 3 connections dropped, 3 connects refused",
        [(2, None), (3, None), (4, None)],
        {"back": True, "leaders_moved": {"1": 2}},
    ),
    Case(
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
    Case(
        "broker-gone",
        scenes.restarted_by_its_epochs,
        "note",
        1,
        {"broker": "2"},
        "broker 2 restarted between 10:13:28.126 and 10:13:30.127: broker epoch 17 became 40",
        [],
        {"epochs": [17, 40]},
    ),
    Case(
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
LOOK_ALIKES = [
    ("broker-gone", scenes.leaving),
    ("broker-gone", scenes.firewalled),
    ("broker-gone", scenes.staying),
    ("broker-gone", scenes.idle_too_long),
    ("broker-gone", scenes.beating),
    ("broker-gone", scenes.wrong_password),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
