"""`connection-churn`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
        "connection-churn",
        scenes.churning,
        "warning",
        25,
        PRODUCER,
        "opened 25 connections within 60 s, 25 of them for less than 5 s",
        [(1, None), (2, None), (3, None)],
        {"opened": 25, "short": 25, "reset": 0, "without_requests": 0, "requests": 25},
        ("connection-churn.every=60s",),
    ),
    Case(
        "connection-churn",
        scenes.churning_for_a_mechanism,
        "warning",
        25,
        PRODUCER,
        "opened 25 connections within 60 s, the broker refused 25 of them: the client asks for SCRAM-SHA-256, the "
        "listener takes PLAIN",
        [(1, None), (2, None), (3, None)],
        {"refused": 25},
        ("connection-churn.every=60s",),
    ),
]
LOOK_ALIKES = [
    ("connection-churn", scenes.staying),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
