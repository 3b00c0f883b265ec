"""`slow-broker`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
        "slow-broker",
        scenes.one_is_slow,
        "warning",
        25,
        {"broker": "10.0.1.1:9092"},
        "10.0.1.1:9092: median Metadata latency is 60 ms, 5.9×",
        [(2, None)],
        {"apis": ["Metadata"]},
    ),
]
LOOK_ALIKES = [
    ("slow-broker", scenes.all_alike),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
