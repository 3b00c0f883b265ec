"""Who led which partition in which epoch, as Metadata and refusals say it.

The controller gives each new leader of a partition a higher epoch (KIP-101). Brokers name it in Metadata responses
since version 7 (KIP-320), and beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator
from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.detectors.tally import CLUSTER, clusters
from kafkasniff.analysis.partials import Shape

__all__ = ["Moves", "add_terms", "moves", "terms_shapes"]

APIS: Final = ("Metadata", "Produce", "Fetch")
MAX_BODY: Final = 1 << 20
"""Maximum number of characters of a body that is parsed."""
MAX_TERMS: Final = 1 << 17
"""Maximum number of terms of leaders that are kept, the earliest."""
_MAX_NODE: Final = (1 << 31) - 1
_TERM: Final = ("topic", "partition", "epoch", "leader")


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
    keys = (*CLUSTER, ("topic", pa.string()), ("partition", number), ("epoch", number), ("leader", number))
    first: Any = (("first", number, "min"),)
    return {"terms": Shape(keys=keys, measures=first, order=("first",), keep="earliest", bound=MAX_TERMS)}


def add_terms(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges`, which have the bodies of Metadata responses and of those with errors."""
    named = pc.fill_null(pc.match_substring(column(batch, "response_body"), '"leader_epoch":'), False)
    batch = only(batch, pc.and_(in_any(batch, "api", APIS), named))
    rows = pa.table({**clusters(batch), "body": column(batch, "response_body"), "time": column(batch, "time_ns")})
    found: dict[str, list[Any]] = {name: [] for name in ("cluster", *_TERM, "first")}
    known: dict[str, list[tuple[str, int, int, int]]] = {}
    # Many requests get the same answer, so each text is parsed only once.
    for row in rows.group_by(["cluster", "body"]).aggregate([("time", "min")]).to_pylist():
        body = row["body"]
        if len(body) > MAX_BODY or row["time_min"] is None:
            continue
        if body not in known:
            known[body] = _terms(body)
        for term in known[body]:
            for name, value in zip(found, (row["cluster"], *term, row["time_min"]), strict=True):
                found[name].append(value)
    detector.parts["terms"].add(found)


def moves(table: pa.Table) -> list[Moves]:
    """The partitions whose leader changed, from the resolved part `terms`."""
    terms: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for row in table.to_pylist():
        place = row["cluster"], row["topic"], row["partition"]
        terms.setdefault(place, []).append((row["epoch"], row["first"], row["leader"]))
    found = []
    for place, some in sorted(terms.items(), key=lambda one: tuple(map(str, one[0]))):
        changes: list[tuple[int, int]] = []
        for _, first, leader in sorted(some):
            if not changes or changes[-1][1] != leader:
                changes.append((first, leader))
        if changes[1:]:
            times = [first for first, _ in changes[1:]]
            found.append(Moves(*place, tuple(leader for _, leader in changes), min(times), max(times)))
    return found


def _terms(body: str) -> list[tuple[str, int, int, int]]:
    """Topic, partition, epoch and leader; none if it is not valid."""
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
            numbers = number, leader.leader_epoch, leader.leader_id
            if isinstance(name, str) and all(type(one) is int and 0 <= one <= _MAX_NODE for one in numbers):
                found.append((name, *numbers))
    return found
