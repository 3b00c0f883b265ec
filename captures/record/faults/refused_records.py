"""Recordings of records that a broker refuses and says why."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from . import Fault, Stage

_CLIENT = Path(__file__).resolve().parents[1] / "clients" / "refused_records_client.py"


def _producer(stage: Stage, keys: str) -> None:
    broker = stage.broker(version="4.4.0")
    stage.clients.append(f"librdkafka (confluent-kafka {importlib.metadata.version('confluent-kafka')})")
    with stage.recording(broker.port()):
        stage.run([sys.executable, str(_CLIENT), broker.bootstrap(), keys])


FAULTS = [
    Fault(
        "records-without-keys.pcap",
        "records without keys for two compacted topics: the broker refuses them and says why",
        lambda stage: _producer(stage, "none"),
    ),
    Fault(
        "records-with-keys.pcap",
        "the same with keys: the broker takes them",
        lambda stage: _producer(stage, "keys"),
        looks_like="records-without-keys.pcap",
    ),
]
