"""`unanswered-requests` and `late-answers`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import AT, Case, finds, ignores

CASES = [
    Case("unanswered-requests", scenes.unanswered, "error", 2, {**AT, "api": "Metadata"}, "waited 40 s", [2, 3]),
    Case("unanswered-requests", scenes.stopped, "error", 2, {**AT, "api": "Metadata"}, "waited 41 s", [1, 2]),
    Case("late-answers", scenes.late, "warning", 6, {**AT, "api": "Metadata"}, "by up to 4 s", [1, 2, 3, 4, 5]),
    Case(
        "late-answers",
        scenes.late,
        "error",
        6,
        {**AT, "api": "Metadata"},
        "6 Metadata requests",
        [1, 2, 3, 4, 5],
        settings=("late-answers.timeout=3s",),
    ),
]
LOOK_ALIKES = [
    ("unanswered-requests", scenes.waiting_consumer),
    ("unanswered-requests", scenes.one_direction),
    ("unanswered-requests", scenes.lost_midway),
    ("late-answers", scenes.patient),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
