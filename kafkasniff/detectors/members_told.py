"""What brokers tell of each other: addresses, leaders, who is in the cluster, and the epochs in which they registered.

A broker gets a new epoch each time that it registers with the controller (KIP-500, KIP-631), which it does when it
starts. It is in BrokerRegistration and BrokerHeartbeat, and in fetches of replicas (KIP-903). Metadata names the
brokers that are registered and not fenced, and the leader of each partition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Reading
from kafkasniff.analysis.columns import broker_endpoint, column, floor_divided, in_any, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.detectors.detector import Bodies, Detector
from kafkasniff.detectors.tally import CLUSTER, CLUSTER_COLUMNS, clusters
from kafkasniff.model import Message

__all__ = ["BODIES", "EXCHANGES", "add_told", "epochs_of", "listed_again", "node_of", "told_shapes"]

MAX_BODY: Final = 1 << 20
"""Characters of a body that is looked into."""
MAX_LEADERS: Final = 1 << 17
"""Partitions by leader; also brokers that answers list, by the second."""
MAX_NODES: Final = 1 << 14
_LOCAL: Final = {"localhost": "127.0.0.1"}
_BODY: Final = re.compile(r'"brokers":\[')
_REPLICA: Final = r'"replica_state":\{"replica_id":(?P<node>[0-9]{1,9}),"replica_epoch":(?P<epoch>[0-9]{1,18})\}'
_LEADER: Final = ("topic", "partition", "leader", "count", "first", "last")
_APIS: Final = ("Metadata", "BrokerRegistration", "BrokerHeartbeat", "Fetch")


def _is_replica(message: Message) -> bool:
    """Whether a Fetch request names a replica's epoch."""
    body = message.body
    if not isinstance(body, Mapping):
        return True
    state = body.get("replica_state")
    return isinstance(state, Mapping) and state.get("replica_epoch", -1) >= 0


BODIES: Final[Bodies] = {
    ("response", "Metadata"): None,
    ("request", "BrokerRegistration"): None,
    ("response", "BrokerRegistration"): None,
    ("request", "BrokerHeartbeat"): None,
    ("request", "Fetch"): _is_replica,
}
EXCHANGES: Final = Reading(("time_ns", "api", *CLUSTER_COLUMNS, "request_body", "response_body"), _APIS)


def told_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    count: Any = (("count", pa.int64(), "sum"),)
    seen: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
    partition = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int64()), ("leader", pa.int64()))
    node = (("node", pa.int64()), ("host", pa.string()), ("port", pa.int64()))
    return {
        "nodes": Shape(keys=node, measures=count, weight="count", bound=MAX_NODES),
        "leaders": Shape(keys=partition, measures=(*count, *seen), weight="count", bound=MAX_LEADERS),
        "listed": Shape(
            keys=(*CLUSTER, ("nodes", pa.string()), ("second", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_LEADERS,
        ),
        "epochs": Shape(
            keys=(*CLUSTER, ("node", pa.int64()), ("epoch", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_NODES,
        ),
    }


def add_told(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Take rows of the table `exchanges` with the columns of `EXCHANGES`."""
    _metadata(detector, only(batch, in_any(batch, "api", ("Metadata",))))
    _registrations(detector, only(batch, in_any(batch, "api", ("BrokerRegistration", "BrokerHeartbeat"))))
    _replicas(detector, only(batch, in_any(batch, "api", ("Fetch",))))


def epochs_of(detector: Detector[Any]) -> dict[tuple[str | None, int], list[dict[str, Any]]]:
    """By cluster and node, its epochs in ascending order, with the times of the first and last word of each."""
    found: dict[tuple[str | None, int], list[dict[str, Any]]] = {}
    for row in detector.told("epochs").to_pylist():
        if row["first"] is not None:
            found.setdefault((row["cluster"], row["node"]), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["epoch"])
    return found


def node_of(detector: Detector[Any], broker: str) -> int | None:
    """The node at an endpoint, `address:port`; None where it is a name, or there are two clusters."""
    host, _, port = broker.rpartition(":")
    rows = detector.parts["nodes"].table().to_pylist()
    own = {row["node"] for row in rows if (str(row["host"]), str(row["port"])) == (host.strip("[]"), port)}
    return own.pop() if len(own) == 1 else None


def listed_again(detector: Detector[Any], cluster: str | None, node: int, since_ns: int) -> int | None:
    """When Metadata named a node again after it had not, from a time on; None: it never did both."""
    rows = [
        row for row in detector.told("listed").to_pylist() if row["first"] is not None and row["cluster"] == cluster
    ]
    rows.sort(key=lambda row: (row["second"], row["first"]))
    missing = False
    for row in rows:
        if row["last"] < since_ns:
            continue
        there = str(node) in row["nodes"].split(",")
        if there and missing:
            return max(int(row["first"]), since_ns)
        missing = missing or not there
    return None


def _metadata(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    batch = only(batch, pc.is_valid(column(batch, "response_body")))
    if not batch.num_rows:
        return
    nodes: dict[str, list[Any]] = {name: [] for name in ("node", "host", "port", "count")}
    listed: dict[str, list[Any]] = {name: [] for name in ("cluster", "nodes", "second", "count", "first", "last")}
    leaders: dict[str, list[Any]] = {name: [] for name in ("cluster", *_LEADER)}
    time = column(batch, "time_ns")
    second = floor_divided(time, 1_000_000_000)
    told = {**clusters(batch), "time": time, "second": second, "body": column(batch, "response_body")}
    rows = pa.table(told)
    # Many requests get the same answer: each text is read once.
    known: dict[str, _Metadata] = {}
    times = [("time", "min"), ("time", "max"), ([], "count_all")]
    for row in rows.group_by(["cluster", "body", "second"]).aggregate(times).to_pylist():
        body = known.get(row["body"])
        if body is None:
            body = known[row["body"]] = _read(row["body"])
        seen = row["count_all"], row["time_min"], row["time_max"]
        if body.brokers:
            names = ",".join(str(number) for number in sorted({one.node_id for one in body.brokers}))
            _append(listed, row["cluster"], names, row["second"], *seen)
        for one in body.brokers:
            _append(nodes, one.node_id, _LOCAL.get(one.host, one.host), one.port, row["count_all"])
        for topic in body.topics:
            for partition in topic.partitions:
                name = topic.name or topic.topic_id
                _append(leaders, row["cluster"], name, partition.partition_index, partition.leader_id, *seen)
    detector.parts["nodes"].add(nodes)
    detector.parts["listed"].add(listed)
    detector.parts["leaders"].add(leaders)


def _registrations(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    epochs: dict[str, list[Any]] = {name: [] for name in ("cluster", "node", "epoch", "count", "first", "last")}
    nodes: dict[str, list[Any]] = {name: [] for name in ("node", "host", "port", "count")}
    brokers = broker_endpoint(batch).to_pylist()
    rows = batch.select(["time_ns", "api", "request_body", "response_body"]).to_pylist()
    for row, broker in zip(rows, brokers, strict=True):
        asked = _parse(_REQUEST, row["request_body"])
        if asked is None:
            continue
        epoch = asked.broker_epoch
        if row["api"] == "BrokerRegistration":
            answer = _parse(_REGISTERED, row["response_body"])
            epoch = -1 if answer is None or answer.error_code else answer.broker_epoch
            for one in asked.listeners:
                _append(nodes, asked.broker_id, _LOCAL.get(one.host, one.host), one.port, 1)
        if asked.broker_id >= 0 and epoch >= 0:
            _append(epochs, broker, asked.broker_id, epoch, 1, row["time_ns"], row["time_ns"])
    detector.parts["nodes"].add(nodes)
    detector.parts["epochs"].add(epochs)


def _replicas(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Epochs in fetches of replicas. Those of consumers, which are the most, have none."""
    text = column(batch, "request_body")
    batch = only(batch, pc.fill_null(pc.match_substring_regex(text, _REPLICA), False))
    if not batch.num_rows:
        return
    found = pc.extract_regex(column(batch, "request_body"), _REPLICA)
    time = column(batch, "time_ns")
    detector.parts["epochs"].add(
        {
            **clusters(batch),
            "node": pc.struct_field(found, "node").cast(pa.int64()),
            "epoch": pc.struct_field(found, "epoch").cast(pa.int64()),
            "count": np.ones(batch.num_rows, np.int64),
            "first": time,
            "last": time,
        }
    )


class _Broker(msgspec.Struct):
    node_id: int = -1
    host: str = ""
    port: int = -1


class _Partition(msgspec.Struct):
    partition_index: int = -1
    leader_id: int = -1


class _Topic(msgspec.Struct):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_Partition] = []


class _Metadata(msgspec.Struct):
    brokers: list[_Broker] = []
    topics: list[_Topic] = []


class _Request(msgspec.Struct):
    """Of BrokerRegistration or BrokerHeartbeat."""

    broker_id: int = -1
    broker_epoch: int = -1
    listeners: list[_Broker] = []


class _Registered(msgspec.Struct):
    error_code: int = 0
    broker_epoch: int = -1


_DECODER: Final = msgspec.json.Decoder(_Metadata)
_REQUEST: Final = msgspec.json.Decoder(_Request)
_REGISTERED: Final = msgspec.json.Decoder(_Registered)


def _read(body: str) -> _Metadata:
    """Brokers and leaders of an answer; nothing where it is too long or has other forms."""
    if _BODY.search(body) is None:
        return _Metadata()
    return _parse(_DECODER, body) or _Metadata()


def _parse(decoder: Any, body: str | None) -> Any:
    """A body as far as it is of use; None where it is too long or has other forms."""
    if body is None or len(body) > MAX_BODY:
        return None
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError:
        return None


def _append(columns: dict[str, list[Any]], *values: Any) -> None:
    for name, value in zip(columns, values, strict=True):
        columns[name].append(value)
