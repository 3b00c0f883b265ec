"""`mixed-broker-versions`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import Fine, NetworkCase, check_cut, check_fine, check_network, name_of

CASES = [
    NetworkCase(
        "mixed-broker-versions",
        scenes.upgraded,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "one"},
        "2 brokers of cluster one with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
        {"apis": 1},
    ),
    NetworkCase(
        "mixed-broker-versions",
        scenes.upgraded_without_id,
        "warning",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"], "cluster": "10.0.0.10:9092"},
        "2 brokers of cluster 10.0.0.10:9092 with",
        [(1, 1), (2, 3)],
    ),
    NetworkCase(
        "mixed-broker-versions",
        scenes.of_clusters_without_ids,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 3)],
    ),
    NetworkCase(
        "mixed-broker-versions",
        scenes.perhaps_upgraded,
        "note",
        2,
        {"brokers": ["10.0.0.10:9092", "10.0.0.9:9092"]},
        "2 brokers, perhaps of different clusters, with different versions of 1 API: 10.0.0.9:9092 (",
        [(1, 1), (2, 2)],
    ),
]
FINE: list[Fine] = [
    ("mixed-broker-versions", scenes.alike),
    ("mixed-broker-versions", scenes.of_two_clusters),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
