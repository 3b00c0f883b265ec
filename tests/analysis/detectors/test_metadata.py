"""`metadata-storms` and `all-topics`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, finds, ignores

CASES = [
    Case(
        "metadata-storms",
        scenes.metadata(35, {"topics": [{"name": "orders"}]}),
        "warning",
        35,
        PRODUCER,
        "asked for metadata 35 times within 10 s",
        [1, 2, 3, 4, 5],
        {"requests": 35, "spans": 1, "errors": 0},
    ),
    Case(
        "all-topics",
        scenes.all_topics,
        "note",
        6,
        PRODUCER,
        "of all topics 6 times",
        [1, 2, 3, 4, 5],
        {"requests": 6},
    ),
]
LOOK_ALIKES = [
    ("metadata-storms", scenes.metadata(35, {"topics": [{"name": "orders"}]}, then=0.5)),
    ("all-topics", scenes.metadata(6, {"topics": [{"name": "orders"}]})),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
