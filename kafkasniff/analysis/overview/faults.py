"""Connections by type, with an account of their bytes, failed connects, and problems of the capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.overview.section import TEXT, Section
from kafkasniff.analysis.partials import Partials, Shape

__all__ = ["CONNECTION_COUNTS", "Connections", "FailedConnects", "Problems"]

MAX_WAITING: Final = 1 << 16
"""Maximum number of connections that are not Kafka and may be worth reporting, some 200 bytes each."""

_BYTES: Final = ("decoded", "skipped", "lost", "pending", "repeated", "ignored")
CONNECTION_COUNTS: Final = (
    "connections",
    "packets",
    "client_bytes",
    "broker_bytes",
    *(f"bytes_{name}" for name in _BYTES),
    "retransmits",
)
"""Counts of connections; bytes as in the table `connections`."""


class Connections(Section):
    """Connections by type and end, with an account of their bytes."""

    name: ClassVar[str] = "overview-connections"
    summary: ClassVar[str] = "Connections with an account of their bytes."

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "end_time_ns", "verdict", *CONNECTION_COUNTS[1:])
        return {"connections": TableReading(own, optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in CONNECTION_COUNTS)
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {"connections": Shape(keys=(("verdict", TEXT),), measures=(*sums, *times))}

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        counts = {name: pc.fill_null(column(batch, name), 0) for name in CONNECTION_COUNTS[1:]}
        self.parts["connections"].add(
            {
                "verdict": column(batch, "verdict"),
                "connections": pa.array([1] * batch.num_rows, pa.int64()),
                **counts,
                "first": column(batch, "time_ns"),
                "last": column(batch, "end_time_ns"),
            }
        )

    def result(self) -> pa.Table:
        return self.parts["connections"].table().sort_by("verdict")


class FailedConnects(Section):
    """TCP connections that were refused or got no answer, by endpoint and outcome."""

    name: ClassVar[str] = "overview-failed-connects"
    summary: ClassVar[str] = "Failed connects by endpoint."

    def reads(self) -> Mapping[str, TableReading]:
        own = ("opening", "broker_ip", "broker_port", "client_packets", "broker_packets")
        return {"transport": TableReading(own, optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("broker_ip", TEXT), ("broker_port", pa.int32()), ("outcome", TEXT))
        sums: Any = (("connects", pa.int64(), "sum"), ("packets", pa.int64(), "sum"))
        return {"connects": Shape(keys=keys, measures=sums, weight="connects")}

    def update(self, batch: pa.RecordBatch, table: str = "transport") -> None:
        batch = only(batch, in_any(batch, "opening", ["refused", "unanswered"]))
        self.parts["connects"].add(
            {
                **{name: column(batch, name) for name in ("broker_ip", "broker_port")},
                "outcome": column(batch, "opening"),
                "connects": pa.array([1] * batch.num_rows, pa.int64()),
                "packets": pc.add(column(batch, "client_packets"), column(batch, "broker_packets")),
            }
        )

    def result(self) -> pa.Table:
        order = [("connects", "descending"), ("broker_ip", "ascending"), ("broker_port", "ascending")]
        return self.parts["connects"].table().sort_by([*order, ("outcome", "ascending")])


_PLACED: Final = ("time_ns", "connection_id", "exchange_id", "packet", "offset", "detail")
"""What "first" means among problems."""
_TYPES: Final = dict.fromkeys(_PLACED[:-1], pa.int64()) | {"detail": TEXT}


class Problems(Section):
    """Problems by kind, each with the first one.

    A connection that is not Kafka is worth reporting only if its endpoint spoke Kafka before; for captures that is
    known at their end.
    """

    name: ClassVar[str] = "overview-problems"
    summary: ClassVar[str] = "Problems by kind."

    def reads(self) -> Mapping[str, TableReading]:
        return {"problems": TableReading(("kind", "bytes", *_PLACED), optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = (("problems", pa.int64(), "sum"), ("bytes", pa.int64(), "sum"))
        first: Any = tuple((name, _TYPES[name], "first") for name in _PLACED)
        alone: Any = (("kind", TEXT, "first"), *sums, *first, ("_endpoints", TEXT, "first"))
        return {
            "problems": Shape(keys=(("kind", TEXT),), measures=(*sums, *first), order=_PLACED),
            "waiting": Shape(keys=(), measures=alone, order=_PLACED, keep="earliest", bound=MAX_WAITING),
        }

    def update(self, batch: pa.RecordBatch, table: str = "problems") -> None:
        if "_endpoints" in batch.schema.names:
            waits = pc.is_valid(column(batch, "_endpoints"))
            waiting = only(batch, waits)
            self.parts["waiting"].add({**_rows(waiting), "_endpoints": column(waiting, "_endpoints")})
            batch = only(batch, pc.invert(waits))
        self.parts["problems"].add(_rows(batch))

    def result(self) -> pa.Table:
        part = Partials(self.shapes()["problems"])
        part.merge(self.parts["problems"])
        waiting = self.parts["waiting"].table()
        if self.names is not None and waiting.num_rows:
            pairs = zip(waiting.column("_endpoints").to_pylist(), waiting.column("time_ns").to_pylist(), strict=True)
            spoke = [self.names.spoke_kafka(ends, time_ns) for ends, time_ns in pairs]
            known = waiting.filter(pa.array(spoke, pa.bool_()))
            part.add({name: known.column(name) for name in part.shape.schema.names})
        return part.table().sort_by([("problems", "descending"), ("kind", "ascending")])


def _rows(batch: pa.RecordBatch) -> dict[str, Any]:
    return {
        "kind": column(batch, "kind"),
        "problems": pa.array([1] * batch.num_rows, pa.int64()),
        "bytes": pc.fill_null(column(batch, "bytes"), 0),
        **{name: column(batch, name).cast(_TYPES[name]) for name in _PLACED},
    }
