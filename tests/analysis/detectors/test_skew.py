"""`skewed-partitions`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
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
LOOK_ALIKES = [
    ("skewed-partitions", scenes.spread),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
