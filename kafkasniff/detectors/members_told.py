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
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Reading
from kafkasniff.analysis.columns import column, floor_divided, in_any, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.detectors.detector import Bodies
from kafkasniff.model import Message

__all__ = ["BODIES", "EXCHANGES", "add_told", "epochs_of", "listed_again", "node_of", "told_shapes"]

MAX_BODY: Final = 1 << 20
"""Characters of a body that is looked into."""
MAX_LEADERS: Final = 1 << 17
"""Partitions by leader; also brokers that answers list, by the second."""
MAX_NODES: Final = 1 << 14
_LOCAL: Final = {"localhost": "127.0.0.1"}
_BODY: Final = re.compile(r'"brokers":\[')
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
EXCHANGES: Final = Reading(("time_ns", "api", "request_body", "response_body"), _APIS)


def told_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    count: Any = (("count", pa.int64(), "sum"),)
    seen: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
    partition = (("topic", pa.string()), ("partition", pa.int64()), ("leader", pa.int64()))
    node = (("node", pa.int64()), ("host", pa.string()), ("port", pa.int64()))
    return {
        "nodes": Shape(keys=node, measures=count, weight="count", bound=MAX_NODES),
        "leaders": Shape(keys=partition, measures=(*count, *seen), weight="count", bound=MAX_LEADERS),
        "listed": Shape(
            keys=(("nodes", pa.string()), ("second", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_LEADERS,
        ),
        "epochs": Shape(
            keys=(("node", pa.int64()), ("epoch", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_NODES,
        ),
    }


def add_told(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Take rows of the table `exchanges` with the columns of `EXCHANGES`."""
    _metadata(detector, only(batch, in_any(batch, "api", ("Metadata",))))
    others = only(batch, in_any(batch, "api", ("BrokerRegistration", "BrokerHeartbeat")))
    fetches = only(batch, in_any(batch, "api", ("Fetch",)))
    if fetches.num_rows:
        text = column(fetches, "request_body")
        there = pc.match_substring_regex(text, '"replica_epoch":[0-9]')
        fetches = only(fetches, pc.fill_null(there, False))
    _epochs(detector, [*others.to_pylist(), *fetches.to_pylist()])


def epochs_of(detector: Accumulator[Any]) -> dict[int, list[dict[str, Any]]]:
    """By node, its epochs in ascending order, with the times of the first and last word of each."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in detector.parts["epochs"].table().to_pylist():
        if row["first"] is not None:
            found.setdefault(row["node"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["epoch"])
    return found


def node_of(detector: Accumulator[Any], broker: str) -> int | None:
    """The node at an endpoint, `address:port`; None where it is a name, or there are two clusters."""
    host, _, port = broker.rpartition(":")
    rows = detector.parts["nodes"].table().to_pylist()
    own = {row["node"] for row in rows if (str(row["host"]), str(row["port"])) == (host.strip("[]"), port)}
    return own.pop() if len(own) == 1 else None


def listed_again(detector: Accumulator[Any], node: int, since_ns: int) -> int | None:
    """When Metadata named a node again after it had not, from a time on; None: it never did both."""
    rows = [row for row in detector.parts["listed"].table().to_pylist() if row["first"] is not None]
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
    listed: dict[str, list[Any]] = {name: [] for name in ("nodes", "second", "count", "first", "last")}
    leaders: dict[str, list[Any]] = {name: [] for name in ("topic", "partition", "leader", "count", "first", "last")}
    time = column(batch, "time_ns")
    rows = pa.table(
        {"time": time, "second": floor_divided(time, 1_000_000_000), "body": column(batch, "response_body")}
    )
    # Many requests get the same answer: each text is read once.
    known: dict[str, _Metadata] = {}
    times = [("time", "min"), ("time", "max"), ([], "count_all")]
    for row in rows.group_by(["body", "second"]).aggregate(times).to_pylist():
        body = known.get(row["body"])
        if body is None:
            body = known[row["body"]] = _read(row["body"])
        seen = row["count_all"], row["time_min"], row["time_max"]
        if body.brokers:
            names = ",".join(str(number) for number in sorted({one.node_id for one in body.brokers}))
            _append(listed, names, row["second"], *seen)
        for one in body.brokers:
            _append(nodes, one.node_id, _LOCAL.get(one.host, one.host), one.port, row["count_all"])
        for topic in body.topics:
            for partition in topic.partitions:
                name = topic.name or topic.topic_id
                _append(leaders, name, partition.partition_index, partition.leader_id, *seen)
    detector.parts["nodes"].add(nodes)
    detector.parts["listed"].add(listed)
    detector.parts["leaders"].add(leaders)


def _epochs(detector: Accumulator[Any], rows: list[dict[str, Any]]) -> None:
    epochs: dict[str, list[Any]] = {name: [] for name in ("node", "epoch", "count", "first", "last")}
    nodes: dict[str, list[Any]] = {name: [] for name in ("node", "host", "port", "count")}
    for row in rows:
        asked = _parse(_REQUEST, row["request_body"])
        if asked is None:
            continue
        node, epoch = asked.broker_id, asked.broker_epoch
        if row["api"] == "Fetch" and asked.replica_state is not None:
            node, epoch = asked.replica_state.replica_id, asked.replica_state.replica_epoch
        elif row["api"] == "BrokerRegistration":
            answer = _parse(_REGISTERED, row["response_body"])
            epoch = -1 if answer is None or answer.error_code else answer.broker_epoch
            for one in asked.listeners:
                _append(nodes, node, _LOCAL.get(one.host, one.host), one.port, 1)
        if node >= 0 and epoch >= 0:
            _append(epochs, node, epoch, 1, row["time_ns"], row["time_ns"])
    detector.parts["nodes"].add(nodes)
    detector.parts["epochs"].add(epochs)


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


class _Replica(msgspec.Struct):
    replica_id: int = -1
    replica_epoch: int = -1


class _Request(msgspec.Struct):
    """Of BrokerRegistration, BrokerHeartbeat or Fetch."""

    broker_id: int = -1
    broker_epoch: int = -1
    listeners: list[_Broker] = []
    replica_state: _Replica | None = None


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
