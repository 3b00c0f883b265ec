"""Recordings of records that a broker refuses and says why."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from . import Fault, Stage
from .clients import rdkafka

_CLIENT = Path(__file__).resolve().parents[1] / "clients" / "refused_records_client.py"


def _producer(stage: Stage, keys: str) -> None:
    broker = stage.broker(version="4.4.0")
    stage.clients.append(f"librdkafka (confluent-kafka {importlib.metadata.version('confluent-kafka')})")
    with stage.recording(broker.port()):
        stage.run([sys.executable, str(_CLIENT), broker.bootstrap(), keys])


def _clock(stage: Stage, ahead_s: int) -> None:
    """A producer whose clock is ahead of the broker's (log.message.timestamp.after.max.ms: an hour)."""
    broker = stage.broker(version="4.4.0", properties={"auto.create.topics.enable": "true"})
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 5, broker.bootstrap(), client_id="sensor", linger_ms="0", ahead=str(ahead_s)))


def _named(stage: Stage, topic: str) -> None:
    broker = stage.broker(version="4.4.0", properties={"auto.create.topics.enable": "true"})
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 5, broker.bootstrap(), topic, client_id="typist", linger_ms="0"))


FAULTS = [
    Fault(
        "topic-name-invalid.pcap",
        "a producer whose topic has a name that Kafka does not allow: orders/new",
        lambda stage: _named(stage, "orders/new"),
    ),
    Fault(
        "topic-name-unusual.pcap",
        "the same with a name that it allows: orders.new_1",
        lambda stage: _named(stage, "orders.new_1"),
        looks_like="topic-name-invalid.pcap",
    ),
    Fault(
        "clock-ahead.pcap",
        "records whose timestamps are two hours in the future: the broker refuses them (INVALID_TIMESTAMP)",
        lambda stage: _clock(stage, 7200),
    ),
    Fault(
        "clock-a-little-ahead.pcap",
        "the same with half an hour: the broker takes them",
        lambda stage: _clock(stage, 1800),
        looks_like="clock-ahead.pcap",
    ),
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
