"""`not-leader`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, finds, ignores

CASES = [
    Case(
        "not-leader",
        scenes.stale,
        "warning",
        9,
        PRODUCER,
        "9 of them in a row within 8 s, though it asked for metadata 2 times",
        [1, 2, 3, 5, 6],
        {"topics": ["orders"], "lasted_s": 8, "in_a_row": 9, "metadata_requests": 2},
    ),
    Case("not-leader", scenes.moved, "note", 1, PRODUCER, "1 request of crafted", [1]),
    Case(
        "not-leader",
        scenes.stale,
        "error",
        9,
        PRODUCER,
        "9 of them in a row within 8 s",
        [1, 2, 3, 5, 6],
        settings=("not-leader.stuck=8s",),
    ),
]
LOOK_ALIKES = [
    ("not-leader", scenes.in_order),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
