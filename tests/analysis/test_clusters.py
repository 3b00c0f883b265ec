"""Clusters as messages name them; brokers, listeners and epochs in bodies, and bodies that hold anything else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.analysis.accumulator import Known
from kafkasniff.analysis.clusters import MAX_NAME, Clusters, ListedBroker
from kafkasniff.analysis.detectors import broker_history, listeners
from kafkasniff.tables.rows import EXCHANGES
from tests.choice import one_in

A, B, C = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)
NAMES = ("api", "broker_ip", "broker_port", "error_code", "status", "request_body", "response_body")
SCHEMA = pa.schema([EXCHANGES.field(name) for name in NAMES])


def row(api: str, broker: tuple[str, int], request: str = "{}", response: str = "{}", error: int = 0) -> dict[str, Any]:
    values = (api, *broker, error, "answered", request, response)
    return dict(zip(SCHEMA.names, values, strict=True))


def listed(broker: tuple[str, int], cluster: str | None, *brokers: tuple[str, int]) -> dict[str, Any]:
    """A Metadata response of `broker`."""
    inside = ",".join(f'{{"node_id":1,"host":"{host}","port":{port}}}' for host, port in brokers)
    reported = "null" if cluster is None else f'"{cluster}"'
    return row("Metadata", broker, response=f'{{"brokers":[{inside}],"cluster_id":{reported}}}')


def known(rows: Sequence[dict[str, Any]]) -> Known:
    found = Clusters()
    found.update(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
    return found.known()


def labels(*rows: dict[str, Any]) -> dict[str, str]:
    return dict(known(rows).labels)


FIRST, SECOND, THIRD = (f"{host}:{port}" for host, port in (A, B, C))


def test_brokers_listed_together_belong_to_one_cluster() -> None:
    """A response also identifies its broker, and those that it lists."""
    both = {FIRST: "one", SECOND: "one"}
    assert labels(listed(A, "one", A, B), listed(C, "other", C)) == {**both, THIRD: "other"}
    assert labels(listed(A, None, A, B), listed(B, "one")) == both
    named = {FIRST: FIRST, SECOND: FIRST, THIRD: THIRD}
    assert labels(listed(B, None, A, B), listed(C, None, C)) == named


def test_an_endpoint_with_two_ids_has_none() -> None:
    """A proxy, or a port that another cluster took later."""
    found = known([listed(A, "one", B), listed(A, "other", C)])
    assert found.label("10.0.0.1:9092") is None
    assert found.group("10.0.0.2:9092") == "one"
    assert found.group("10.0.0.9:9092") is None


@pytest.mark.parametrize("body", ["", "{", "[]", '{"cluster_id":7}', '{"cluster_id":"","brokers":[{"host":1}]}'])
def test_other_apis_name_no_cluster(body: str) -> None:
    assert labels(row("Metadata", A, response=body)) == {}
    assert labels(row("Vote", A, '{"cluster_id":"' + "x" * 300 + '"}')) == {}


def test_neither_order_nor_merging_matters() -> None:
    rows = [listed(A, None, A, B), listed(B, None, B, C), listed(C, "one"), listed(A, None, A), row("Vote", B, "{}")]
    expected = labels(*rows)
    for some in one_in(4, list(itertools.permutations(rows))):
        halves = [Clusters(), Clusters()]
        for place, one in enumerate(some):
            halves[place % 2].update(pa.RecordBatch.from_pylist([one], schema=SCHEMA))
        halves[0].merge(Clusters.from_state(halves[1].state()))
        assert dict(halves[0].known().labels) == expected


HUGE = 9223372036854775808
UNUSABLE = ("", "{", '{"brokers":[}', '{"brokers":[', "x" * (broker_history.MAX_BODY + 1))


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
        assert broker_history._read(body) == broker_history._Metadata()
        assert broker_history._parse(broker_history._REQUEST, body or None) in (None, broker_history._BrokerRequest())
    assert broker_history._parse(broker_history._REQUEST, f'{{"broker_id":1,"broker_epoch":{HUGE}}}') is None
    odd = '{"brokers":[{"node_id":"x"},{"node_id":3},{"node_id":true},{"node_id":4294967296},{"node_id":-1},{}]}'
    assert [one.node for one in broker_history._read(odd).brokers] == [None, 3, None, None, None, None]


def test_bodies_without_listeners() -> None:
    for body in (*UNUSABLE, '{"brokers":[{"node_id":"x"}]}'):
        assert listeners._brokers(body) == []
    assert listeners._brokers('{"throttle_time_ms":0,"brokers":[{"node_id":1,"host":"a","port":9}]}') == [("a", 9, 1)]
