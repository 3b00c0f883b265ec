"""Messages for form C in the newest versions that the dissectors know: compact, tagged, topics by id where they are.

They are written by the dissectors' own layouts. That those are right is shown elsewhere, by Kafka's classes
(tests/vectors) and real captures; here they only have to be what a cluster of today sends.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from benchmarks.small_messages import BROKER_PORT, BROKERS, TEMPLATES
from kafkasniff.kafka.apis import dissectors
from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import request_bytes, response_bytes

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
HEARTBEAT: Final = 12
TOPICS: Final = 7

Values = dict[str, Any]


def newest(key: int) -> int:
    """The highest version of an API."""
    api = dissectors.api(key)
    assert api is not None
    return api.versions[-1]


def templates(seed: int) -> list[tuple[bytes, bytes]]:
    """Requests and responses of five APIs with correlation id 0, as many as `small_messages.templates` makes."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(TEMPLATES):
        topic = number % TOPICS
        value = bytes(rng.integers(97, 123, int(rng.integers(40, 200)), dtype=np.uint8))
        batch = kafka.record_batch([kafka.record(0, f"key-{number}".encode(), value)], base_offset=number)
        kind = number % 8
        if kind < 4:
            made.append(_produce(topic, batch, number))
        elif kind < 6:
            made.append(_fetch(topic, batch, number))
        elif kind == 6:
            made.append(_heartbeat(number) if number % 16 == 6 else _commit(topic, number))
        else:
            made.append(_metadata(topic))
    return made


def _id(topic: int) -> bytes:
    return struct.pack(">QQ", 0x6B61_666B_6173_6E69, 0x8000_0000_0000_0000 | topic)


def _pair(key: int, request: Values, response: Values) -> tuple[bytes, bytes]:
    version = newest(key)
    return request_bytes(key, version, 0, **request), response_bytes(key, version, 0, **response)


def _produce(topic: int, batch: bytes, offset: int) -> tuple[bytes, bytes]:
    sent = {"topic_id": _id(topic), "partition_data": [{"index": 0, "records": batch}]}
    stored = {"index": 0, "base_offset": offset, "log_append_time_ms": -1}
    return _pair(
        PRODUCE,
        {"acks": -1, "timeout_ms": 30_000, "topic_data": [sent]},
        {"responses": [{"topic_id": _id(topic), "partition_responses": [stored]}]},
    )


def _fetch(topic: int, batch: bytes, offset: int) -> tuple[bytes, bytes]:
    wanted = {"partition": 0, "fetch_offset": offset, "last_fetched_epoch": -1, "partition_max_bytes": 1_048_576}
    found = {"partition_index": 0, "high_watermark": offset + 1, "last_stable_offset": offset + 1, "records": batch}
    return _pair(
        FETCH,
        {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 52_428_800,
            # Without a session: one that 2,000 connections continued would be odd.
            "session_epoch": -1,
            "topics": [{"topic_id": _id(topic), "partitions": [wanted]}],
        },
        {"responses": [{"topic_id": _id(topic), "partitions": [{**found, "preferred_read_replica": -1}]}]},
    )


def _heartbeat(number: int) -> tuple[bytes, bytes]:
    return _pair(HEARTBEAT, {"group_id": "group", "generation_id": number, "member_id": f"member-{number}"}, {})


def _commit(topic: int, number: int) -> tuple[bytes, bytes]:
    position = {"partition_index": 0, "committed_offset": number, "committed_leader_epoch": -1}
    return _pair(
        OFFSET_COMMIT,
        {
            "group_id": "group",
            "generation_id_or_member_epoch": number,
            "member_id": f"member-{number}",
            "topics": [{"topic_id": _id(topic), "partitions": [position]}],
        },
        {"topics": [{"topic_id": _id(topic), "partitions": [{"partition_index": 0}]}]},
    )


def _metadata(topic: int) -> tuple[bytes, bytes]:
    name = f"topic-{topic}"
    brokers = [{"node_id": node, "host": f"10.0.0.{node}", "port": BROKER_PORT} for node in range(1, BROKERS + 1)]
    nodes = [(1).to_bytes(4, "big")]
    partition = {"leader_id": 1, "replica_nodes": nodes, "isr_nodes": nodes}
    found = {"name": name, "topic_id": _id(topic), "partitions": [partition], "topic_authorized_operations": -(2**31)}
    return _pair(
        METADATA,
        {"topics": [{"topic_id": bytes(16), "name": name}]},
        {"brokers": brokers, "cluster_id": "bench", "controller_id": 1, "topics": [found]},
    )
