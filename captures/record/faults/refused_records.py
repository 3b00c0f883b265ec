"""Recordings of records that a broker refuses and says why."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from . import Fault, Stage
from .clients import rdkafka
from .waits import java_waits

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


def _compressed(stage: Stage, kept_as: str) -> None:
    """Records of 60 kB that compress well, for a topic that takes batches of 5 kB."""
    broker = stage.broker()
    limits = ("max.message.bytes=5000", f"compression.type={kept_as}")
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1", *limits))
    settings = {"client_id": "packer", "size": "60000", "compression_type": "gzip", "linger_ms": "0"}
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 3, broker.bootstrap(), every=".5", **settings))


FAULTS = [
    Fault(
        "batch-recompressed.pcap",
        "batches that the client compresses and the topic does not (compression.type=uncompressed): too large then",
        lambda stage: _compressed(stage, "uncompressed"),
    ),
    Fault(
        "batch-compressed.pcap",
        "the same, and the topic keeps them as they are",
        lambda stage: _compressed(stage, "producer"),
        looks_like="batch-recompressed.pcap",
    ),
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
