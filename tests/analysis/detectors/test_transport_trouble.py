"""`transport-trouble`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import PAIR, finds, survives_a_cut

CASES = [
    Case(
        "transport-trouble",
        scenes.losses,
        "warning",
        8,
        {**PAIR, "trouble": "retransmits"},
        "between 10.0.0.5 and 10.0.0.9:9092 retransmitted; 8 exchanges slowed down",
        [(1, 1), (1, 6), (1, 11)],
        {"retransmits": 8, "unanswered": 0},
    ),
    Case(
        "transport-trouble",
        scenes.slow_reader,
        "warning",
        1,
        {**PAIR, "trouble": "client-window"},
        "10.0.0.5 accepted no data for 2 s: its window was closed 1 time",
        [(1, None)],
        {"closed": 1},
    ),
    Case(
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
LOOK_ALIKES = [
    ("transport-trouble", scenes.a_single_loss),
    ("transport-trouble", scenes.busy_broker),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
