"""`empty-fetches`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, finds, ignores

CASES = [
    Case(
        "empty-fetches",
        scenes.fetches(210, 0.01),
        "warning",
        210,
        AT,
        "210 returned nothing",
        [1, 2, 3, 4, 5],
        {"fetches": 210, "empty": 210, "spans": 1},
    ),
]
LOOK_ALIKES = [
    ("empty-fetches", scenes.fetches(25, 0.5)),
    ("empty-fetches", scenes.fetches(210, 0.01, scenes.records())),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
