"""Recordings of two clusters in one capture, and of one cluster in the midst of an upgrade."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from . import Fault, Stage

OLDER = "3.9.2"
NEWER = "4.4.0"
_CLIENT = Path(__file__).resolve().parents[1] / "clients" / "clusters_client.py"


def _run(stage: Stage, *places: str) -> None:
    stage.clients.append(f"librdkafka (confluent-kafka {importlib.metadata.version('confluent-kafka')})")
    stage.run([sys.executable, str(_CLIENT), *places])


def _two_clusters(stage: Stage) -> None:
    one = stage.broker(version=OLDER, node_id=1, cluster_id="b25lY2x1c3Rlci1vbGRlcg")
    other = stage.broker(version=NEWER, node_id=1, cluster_id="b3RoZXJjbHVzdGVybmV3ZQ")
    with stage.recording(one.port(), other.port()):
        _run(stage, f"{one.bootstrap()}/6", f"{other.bootstrap()}/1")


def _rolling_upgrade(stage: Stage) -> None:
    one = stage.broker(version=OLDER, node_id=1)
    other = stage.broker(version=NEWER, node_id=2, controller=one)
    with stage.recording(one.port(), other.port()):
        _run(stage, f"{one.bootstrap()}/6")


FAULTS = [
    Fault(
        "two-clusters.pcap",
        "clients of two clusters of different releases, whose node, topic, group and transactional ids are the same",
        _two_clusters,
        looks_like="rolling-upgrade.pcap",
    ),
    Fault(
        "rolling-upgrade.pcap",
        "one cluster with a broker of Kafka 3.9 and one of Kafka 4.4",
        _rolling_upgrade,
    ),
]
