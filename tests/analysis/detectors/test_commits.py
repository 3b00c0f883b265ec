"""`frequent-commits` and `refused-commits`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import GROUP, Case, finds, ignores

CASES = [
    Case(
        "frequent-commits",
        scenes.commits(120, 0.01),
        "warning",
        120,
        GROUP,
        "committed offsets of group workers 120 times within 10 s",
        [1, 2, 3, 4, 5],
        {"commits": 120, "spans": 1},
    ),
    Case(
        "refused-commits",
        scenes.commits(2, 1, error=22),
        "warning",
        2,
        {**GROUP, "error_code": 22},
        "refused with ILLEGAL_GENERATION",
        [1, 2],
        {"commits": 2, "partitions": 2},
    ),
    Case(
        "refused-commits",
        scenes.commits(1, 1, error=27),
        "note",
        1,
        {**GROUP, "error_code": 27},
        "refused with REBALANCE_IN_PROGRESS",
        [1],
    ),
]
LOOK_ALIKES = [
    ("frequent-commits", scenes.commits(120, 0.2)),
    ("refused-commits", scenes.commits(3, 0.1)),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
