"""Brokers, listeners and epochs in bodies: what is usable, and bodies that hold anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.detectors import broker_facts, listeners
from kafkasniff.analysis.listed_brokers import MAX_NAME, ListedBroker

HUGE = 9223372036854775808
UNUSABLE = ("", "{", '{"brokers":[}', '{"brokers":[', "x" * (broker_facts.MAX_BODY + 1))


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


def test_bodies_without_facts_of_brokers() -> None:
    leader = f'{{"brokers":[],"topics":[{{"name":"t","partitions":[{{"partition_index":0,"leader_id":{HUGE}}}]}}]}}'
    for body in (*UNUSABLE, leader):
        assert broker_facts._read(body) == broker_facts._Metadata()
        assert broker_facts._parse(broker_facts._REQUEST, body or None) in (None, broker_facts._BrokerRequest())
    assert broker_facts._parse(broker_facts._REQUEST, f'{{"broker_id":1,"broker_epoch":{HUGE}}}') is None
    odd = '{"brokers":[{"node_id":"x"},{"node_id":3},{"node_id":true},{"node_id":4294967296},{"node_id":-1},{}]}'
    assert [one.node for one in broker_facts._read(odd).brokers] == [None, 3, None, None, None, None]


def test_bodies_without_listeners() -> None:
    for body in (*UNUSABLE, '{"brokers":[{"node_id":"x"}]}'):
        assert listeners._brokers(body) == []
    assert listeners._brokers('{"throttle_time_ms":0,"brokers":[{"node_id":1,"host":"a","port":9}]}') == [("a", 9, 1)]
