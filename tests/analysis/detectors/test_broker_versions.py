"""`mixed-broker-versions`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
        "mixed-broker-versions",
        scenes.upgraded,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "one"},
        "2 brokers of cluster one with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
        {"apis": 1},
    ),
    Case(
        "mixed-broker-versions",
        scenes.upgraded_without_id,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "10.0.0.10:9092"},
        "2 brokers of cluster 10.0.0.10:9092 with",
        [(1, 1), (2, 3)],
    ),
    Case(
        "mixed-broker-versions",
        scenes.of_clusters_without_ids,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
    ),
    Case(
        "mixed-broker-versions",
        scenes.perhaps_upgraded,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 2)],
    ),
]
LOOK_ALIKES = [
    ("mixed-broker-versions", scenes.alike),
    ("mixed-broker-versions", scenes.of_two_clusters),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
