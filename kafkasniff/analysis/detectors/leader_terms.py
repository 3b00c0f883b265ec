"""Who led which partition in which epoch, as Metadata and refusals say it.

The controller gives each new leader of a partition a higher epoch (KIP-101). Brokers name it in Metadata responses
since version 7 (KIP-320), and beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951). In older versions, the
second of the response takes its place. Brokers learn of a leader at different times, so these terms are apart for each
broker that answers.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator
from kafkasniff.analysis.columns import broker_endpoint, column, floor_divided, in_any, only
from kafkasniff.analysis.detectors.tally import CLUSTER, clusters
from kafkasniff.analysis.partials import Shape

APIS: Final = ("Metadata", "Produce", "Fetch")
MAX_BODY: Final = 1 << 20
"""Maximum number of characters of a body that is parsed."""
MAX_TERMS: Final = 1 << 17
"""Maximum number of terms of leaders that are kept, the earliest."""
_MAX_NODE: Final = (1 << 31) - 1
_TERM: Final = ("topic", "partition", "epoch", "leader", "view")
_SECOND: Final = 1_000_000_000


class _Leader(msgspec.Struct):
    leader_id: Any = None
    leader_epoch: Any = None


class _Partition(_Leader):
    partition_index: Any = None
    index: Any = None
    current_leader: _Leader | None = None


class _Topic(msgspec.Struct):
    name: Any = None
    topic: Any = None
    topic_id: Any = None
    learned: Any = msgspec.field(name="_topic_name", default=None)
    """The name of the id, if it is known."""
    partitions: list[_Partition] = []
    partition_responses: list[_Partition] = []


class _Body(msgspec.Struct):
    topics: list[_Topic] = []
    responses: list[_Topic] = []


_READ: Final = msgspec.json.Decoder(_Body)


class Moves(msgspec.Struct, frozen=True):
    """How often the leader of a partition changed."""

    cluster: str | None
    topic: str
    partition: int
    leaders: tuple[int, ...]
    """In order."""
    first: int
    """When the first change was seen, ns."""
    last: int
    """When the last one was."""

    @property
    def count(self) -> int:
        return len(self.leaders) - 1


def terms_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    number = pa.int64()
    place: Any = (*CLUSTER, ("topic", pa.string()), ("partition", number), ("view", pa.string()))
    keys = (*place, ("epoch", number), ("leader", number))
    first: Any = (("first", number, "min"),)
    return {"terms": Shape(keys=keys, measures=first, order=("first",), keep="earliest", bound=MAX_TERMS)}


def add_terms(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges`, which have the bodies of Metadata responses and of those with errors."""
    named = pc.fill_null(pc.match_substring(column(batch, "response_body"), '"leader_id":'), False)
    batch = only(batch, pc.and_(in_any(batch, "api", APIS), named))
    body, time = column(batch, "response_body"), column(batch, "time_ns")
    dated = pc.match_substring(body, '"leader_epoch":')
    unknown = pa.scalar("", pa.string())
    rows = pa.table(
        {
            **clusters(batch),
            "body": body,
            "view": pc.if_else(dated, unknown, broker_endpoint(batch)),
            "second": pc.if_else(dated, pa.scalar(0, pa.int64()), floor_divided(time, _SECOND)),
            "time": time,
        }
    )
    found: dict[str, list[Any]] = {name: [] for name in ("cluster", *_TERM, "first")}
    known: dict[str, list[tuple[str, int, int | None, int]]] = {}
    # Many requests get the same answer, so each text is parsed only once.
    for row in rows.group_by(["cluster", "body", "view", "second"]).aggregate([("time", "min")]).to_pylist():
        body = row["body"]
        if len(body) > MAX_BODY or row["time_min"] is None:
            continue
        if body not in known:
            known[body] = _terms(body)
        for topic, partition, epoch, leader in known[body]:
            term = (topic, partition, row["second"] if epoch is None else epoch, leader, row["view"])
            for name, value in zip(found, (row["cluster"], *term, row["time_min"]), strict=True):
                found[name].append(value)
    detector.parts["terms"].add(found)


def moves(table: pa.Table) -> list[Moves]:
    """The partitions whose leader changed, from the resolved part `terms`."""
    terms: dict[tuple[Any, ...], dict[str, list[tuple[int, int, int]]]] = {}
    for row in table.to_pylist():
        views = terms.setdefault((row["cluster"], row["topic"], row["partition"]), {})
        views.setdefault(row["view"], []).append((row["epoch"], row["first"], row["leader"]))
    found = []
    for (cluster, topic, partition), views in sorted(terms.items(), key=lambda one: tuple(map(str, one[0]))):
        changes = max((_changes(views[view]) for view in sorted(views)), key=len)
        if changes[1:]:
            times = [first for first, _ in changes[1:]]
            leaders = tuple(leader for _, leader in changes)
            found.append(Moves(cluster, topic, partition, leaders, min(times), max(times)))
    return found


def _changes(terms: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """When each leader was first seen, and its number, in order."""
    changes: list[tuple[int, int]] = []
    for _, first, leader in sorted(terms):
        if not changes or changes[-1][1] != leader:
            changes.append((first, leader))
    return changes


def _terms(body: str) -> list[tuple[str, int, int | None, int]]:
    """Topic, partition, epoch (None if the version has none) and leader; none of it if the body is not valid."""
    try:
        read = _READ.decode(body)
    except msgspec.DecodeError:
        return []
    found = []
    for topic in (*read.topics, *read.responses):
        name = topic.name or topic.topic or topic.learned or topic.topic_id
        for partition in (*topic.partitions, *topic.partition_responses):
            number = partition.index if partition.partition_index is None else partition.partition_index
            leader = partition.current_leader or partition
            epoch = 0 if leader.leader_epoch is None else leader.leader_epoch
            numbers = number, epoch, leader.leader_id
            if isinstance(name, str) and all(type(one) is int and 0 <= one <= _MAX_NODE for one in numbers):
                found.append((name, number, leader.leader_epoch, leader.leader_id))
    return found
