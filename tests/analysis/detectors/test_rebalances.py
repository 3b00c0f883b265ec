"""`rebalance-storms` and `lost-members`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import Case, finds, ignores

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
LOOK_ALIKES = [
    ("rebalance-storms", scenes.growing),
    ("lost-members", scenes.orderly),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
