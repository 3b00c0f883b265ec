"""Some exchanges of each connection: enough to show how client and broker talked, and what went wrong.

Which connections are worth showing is known only at the end. So some exchanges of every connection are kept: the first
ones, the first ones with trouble, and the slowest ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, first_of_each, in_any, integers, only
from kafkasniff.analysis.overview.counts import NOT_ANSWERED, TEXT, api_labels
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import WAIT_COLUMNS, may_have_waited, work_us

__all__ = ["TROUBLE_WEIGHT", "Ladder", "Rung", "Talk"]

MAX_CONNECTIONS: Final = 1 << 16
"""Maximum number of connections that are counted; those with the lowest weight are dropped first."""
MAX_KEPT: Final = 1 << 16
"""Maximum number of exchanges of each kind that are kept for all connections, some 300 bytes each."""
EARLIEST: Final = 40
"""Exchanges that are kept per connection: the first ones,"""
TROUBLED: Final = 40
"""the first ones with errors, unanswered, throttled or retransmitted,"""
SLOWEST: Final = 20
"""and the slowest ones, except those in which the broker waited on purpose."""
TROUBLE_WEIGHT: Final = 50
"""Weight of an exchange with trouble, in normal exchanges."""

_PLACE: Final[Any] = (
    ("connection_id", pa.int64()),
    ("client_ip", TEXT),
    ("client_port", pa.int32()),
    ("broker_ip", TEXT),
    ("broker_port", pa.int32()),
)
_RUNG: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(ORDER, pa.int64()),
    "api": TEXT,
    "api_version": pa.int32(),
    "correlation_id": pa.int32(),
    "status": TEXT,
    "request_size": pa.int64(),
    "response_size": pa.int64(),
    "latency_us": pa.int64(),
    "duration_us": pa.int64(),
    "throttle_time_ms": pa.int32(),
    "error": TEXT,
    "error_code": pa.int32(),
    "error_count": pa.int32(),
    "group_id": TEXT,
    "transactional_id": TEXT,
    "topic": TEXT,
    "topic_id": TEXT,
    "partition": pa.int32(),
    "partition_count": pa.int64(),
    "record_count": pa.int64(),
    "acks": pa.int32(),
    "retransmits": pa.int32(),
}
_FIRST_PARTITION: Final = ("topic", "topic_id", "partition")


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange; fields as the columns of `exchanges`. `topic`, `partition`: the first partition that it names."""

    time_ns: int | None
    connection_id: int
    exchange_id: int
    api: str | None
    api_version: int | None
    correlation_id: int | None
    status: str
    request_size: int | None
    response_size: int | None
    latency_us: int | None
    duration_us: int | None
    throttle_time_ms: int | None
    error: str | None
    error_code: int | None
    error_count: int | None
    group_id: str | None
    transactional_id: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    partition_count: int
    record_count: int | None
    acks: int | None
    retransmits: int | None


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """One connection."""

    connection_id: int
    client_ip: str | None
    client_port: int | None
    broker_ip: str | None
    broker_port: int | None
    client_id: str | None
    """From its first exchange."""
    exchanges: int
    with_errors: int
    unanswered: int
    bytes: int
    time_ns: int | None
    """From its first exchange."""
    last: int | None


class Ladder(Accumulator[Parameters]):
    """Connections that spoke Kafka, and some exchanges of each."""

    name: ClassVar[str] = "report-connections"

    def reads(self) -> Mapping[str, TableReading]:
        own = [name for name in _RUNG if name not in (*_FIRST_PARTITION, "partition_count")]
        return {
            "exchanges": TableReading(
                (*own, "api_key", "client_id", "partitions", *WAIT_COLUMNS, *(name for name, _ in _PLACE))
            )
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("exchanges", "with_errors", "unanswered", "bytes"))
        first: Any = (
            ("time_ns", pa.int64(), "first"),
            ("exchange_id", pa.int64(), "first"),
            ("client_id", TEXT, "first"),
        )
        connections = Shape(
            keys=_PLACE,
            measures=(*sums, *first, ("last", pa.int64(), "max"), ("weight", pa.int64(), "sum")),
            order=ORDER,
            weight="weight",
            bound=MAX_CONNECTIONS,
        )
        return {
            "connections": connections,
            "earliest": _kept(EARLIEST),
            "troubled": _kept(TROUBLED),
            "slowest": _kept(SLOWEST, "faster"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        errors = integers(column(batch, "error_count")) > 0
        unanswered = in_any(batch, "status", NOT_ANSWERED).to_numpy(zero_copy_only=False)
        slowed = (integers(column(batch, "throttle_time_ms")) > 0) | (integers(column(batch, "retransmits")) > 0)
        orphan = in_any(batch, "status", ["orphan"]).to_numpy(zero_copy_only=False)
        trouble = errors | unanswered | slowed | orphan
        times = column(batch, "time_ns")
        self.parts["connections"].add(
            {
                **{name: column(batch, name) for name, _ in _PLACE},
                "exchanges": np.ones(batch.num_rows, np.int64),
                "with_errors": errors.astype(np.int64),
                "unanswered": unanswered.astype(np.int64),
                "bytes": integers(column(batch, "request_size")) + integers(column(batch, "response_size")),
                "time_ns": times,
                "exchange_id": column(batch, "exchange_id"),
                "client_id": column(batch, "client_id"),
                "last": times,
                "weight": 1 + TROUBLE_WEIGHT * trouble.astype(np.int64),
            }
        )
        rungs = _rungs(batch)
        self.parts["earliest"].add(_columns(rungs))
        self.parts["troubled"].add(_columns(only(rungs, pa.array(trouble))))
        mask = pc.and_(pc.invert(may_have_waited(batch)), pc.is_valid(column(batch, "latency_us")))
        faster = pa.array(-work_us(batch)).filter(mask)
        self.parts["slowest"].add({**_columns(only(rungs, mask)), "faster": faster})

    def result(self) -> pa.Table:
        """Connections, the highest weight first."""
        order = [("weight", "descending"), ("time_ns", "ascending"), ("connection_id", "ascending")]
        return self.parts["connections"].table().sort_by(order)

    def talks(self) -> list[Talk]:
        """The same as `Talk`s."""
        rows = self.result().to_pylist()
        return [Talk(**{name: row[name] for name in Talk.__struct_fields__}) for row in rows]

    def rungs(self, connection_ids: set[int]) -> dict[int, list[Rung]]:
        """The kept exchanges of some connections, each in order of time."""
        wanted = pa.array(sorted(connection_ids), pa.int64())
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for name in ("earliest", "troubled", "slowest"):
            table = self.parts[name].table()
            table = table.filter(pc.is_in(table.column("connection_id"), value_set=wanted)).select(list(_RUNG))
            found |= {(row["connection_id"], row["exchange_id"]): row for row in table.to_pylist()}
        ladders: dict[int, list[Rung]] = {}
        for row in found.values():
            if self.names is not None and row["topic"] is None:
                row["topic"] = self.names.topic(row["topic_id"])
            ladders.setdefault(row["connection_id"], []).append(Rung(**row))
        for ladder in ladders.values():
            ladder.sort(key=lambda rung: (rung.time_ns is None, rung.time_ns or 0, rung.exchange_id))
        return ladders


def _kept(each: int, *first: str) -> Shape:
    """Some exchanges of each connection: the first ones, or the lowest by a column."""
    keys = tuple((name, _RUNG[name]) for name in ORDER)
    rest = {name: kind for name, kind in _RUNG.items() if name not in ORDER} | dict.fromkeys(first, pa.int64())
    return Shape(
        keys=keys,
        measures=tuple((name, kind, "first") for name, kind in rest.items()),
        order=(*first, *ORDER),
        keep="earliest",
        group=("connection_id",),
        each=each,
        bound=MAX_KEPT,
    )


def _rungs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of `Rung`s."""
    lists = column(batch, "partitions")
    first = first_of_each(lists)
    columns = {name: column(batch, name) for name in _RUNG if name in batch.schema.names}
    columns |= {name: pc.struct_field(first, name) for name in _FIRST_PARTITION}
    columns["api"] = api_labels(batch)
    columns["partition_count"] = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.RecordBatch.from_arrays([columns[name].cast(kind) for name, kind in _RUNG.items()], names=list(_RUNG))


def _columns(rungs: pa.RecordBatch) -> dict[str, Any]:
    return {name: rungs.column(name) for name in rungs.schema.names}
