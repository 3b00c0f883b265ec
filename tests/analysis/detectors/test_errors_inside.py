"""`hidden-errors`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, finds, ignores

CASES = [
    Case(
        "hidden-errors",
        scenes.hidden,
        "error",
        2,
        {**PRODUCER, "api": "OffsetCommit", "topic": "orders", "error_code": 12},
        "with partition-level error OFFSET_METADATA_TOO_LARGE for topic orders",
        [1, 2],
        {"exchanges": 2, "errors": 2, "retriable": False},
    ),
]
LOOK_ALIKES = [
    ("hidden-errors", scenes.transient_errors),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
