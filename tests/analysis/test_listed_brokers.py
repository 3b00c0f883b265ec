"""Brokers listed in bodies: which parts of an entry are usable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.listed_brokers import MAX_NAME, ListedBroker


@pytest.mark.parametrize(
    ("entry", "node", "endpoint"),
    [
        ({"node_id": 3, "host": "10.0.0.1", "port": 9092}, 3, "10.0.0.1:9092"),
        ({"node_id": 0, "host": "::1", "port": 0, "rack": "a"}, 0, "[::1]:0"),
        ({"node_id": (1 << 31) - 1, "host": "localhost", "port": 65535}, (1 << 31) - 1, "127.0.0.1:65535"),
        ({"name": "CLIENT", "host": "kafka.internal", "port": 9093}, None, "kafka.internal:9093"),
        ({"node_id": -1, "host": "", "port": 9092}, None, None),
        ({"node_id": 1 << 31, "host": "a", "port": 65536}, None, None),
        ({"node_id": "3", "host": ["a"], "port": 9092}, None, None),
        ({"node_id": True, "host": "a", "port": True}, None, None),
        ({"node_id": None, "host": "a", "port": -1}, None, None),
        ({"node_id": 1.0, "host": "x" * MAX_NAME, "port": 1}, None, "x" * MAX_NAME + ":1"),
        ({"node_id": 1, "host": "x" * (MAX_NAME + 1), "port": 1}, 1, None),
        ({}, None, None),
    ],
)
def test_an_entry(entry: dict[str, Any], node: int | None, endpoint: str | None) -> None:
    found = msgspec.json.decode(msgspec.json.encode(entry), type=ListedBroker)
    assert (found.node, found.endpoint) == (node, endpoint)
