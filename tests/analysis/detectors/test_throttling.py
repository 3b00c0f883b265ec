"""`throttled-clients`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, finds, ignores

CASES = [
    Case(
        "throttled-clients",
        scenes.produced(2, scenes.records(), throttle=600),
        "warning",
        2,
        {**AT, "api": "Produce"},
        "for 1.2 s, in 2 responses to Produce",
        [1, 2],
        {"throttle_ms": 1200, "worst_ms": 600},
    ),
]
LOOK_ALIKES = [
    ("throttled-clients", scenes.produced(2, scenes.records())),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
