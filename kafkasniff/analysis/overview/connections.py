"""Connections: an account of their bytes, failed connects, TLS without keys, and problems of the capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any, integers, only
from kafkasniff.analysis.overview.counts import TEXT
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.visibility import TLS
from kafkasniff.model import Connection
from kafkasniff.tables.rows.connections import connection_row
from kafkasniff.tables.rows.schemas import CONNECTIONS

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


class Connections(Accumulator[Parameters]):
    """Connections by type and end, with an account of their bytes."""

    name: ClassVar[str] = "overview-connections"

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


class FailedConnects(Accumulator[Parameters]):
    """TCP connections that were refused or got no answer, by endpoint and outcome."""

    name: ClassVar[str] = "overview-failed-connects"

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


class Problems(Accumulator[Parameters]):
    """Problems by kind, each with the first one.

    A connection that is not Kafka is worth reporting only if its endpoint spoke Kafka before; for captures that is
    known at their end.
    """

    name: ClassVar[str] = "overview-problems"

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
        if "_endpoints" in batch.column_names:
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


_PLACE: Final = (("broker_ip", TEXT), ("broker_port", pa.int32()))
_NAMES: Final = ("broker_ip", "broker_port")
_SUMS: Final = ("connections", "client_bytes", "broker_bytes", "resets", "tls_answers", "unanswered")
_KEPT: Final = {
    "broker_ip": "address",
    "broker_port": "port",
    **{name: name.removeprefix("tls_") for name in (*_SUMS, "answer_max_us")},
    "handshakes_count": "handshakes",
    "handshakes_p50": "handshake_p50_us",
    "handshakes_high": "handshake_max_us",
    "answers_p50": "answer_p50_us",
}
"""Columns of the answer by those that they are made of."""
_FOUND: Final = {"handshakes": "tls_handshake_us", "answers": "tls_answer_p50_us"}
"""Distributions, and the column of each: the medians of connections weigh as many as their answers."""


class Encrypted(Accumulator[Parameters]):
    """Listeners whose TLS connections are not decrypted, those with most bytes first."""

    name: ClassVar[str] = "overview-encrypted"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*_NAMES, "protocol", "client_bytes", "broker_bytes", "ended", *_FOUND.values())
        more = ("tls_answers", "tls_answer_max_us", "tls_unanswered_us")
        return {"connections": TableReading((*own, *more), optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        longest: Any = ("answer_max_us", pa.int64(), "max")
        return {
            "listeners": Shape(keys=_PLACE, measures=(*sums, longest), weight="connections"),
            **{name: distribution_shape(_PLACE) for name in _FOUND},
        }

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        batch = only(batch, in_any(batch, "protocol", [TLS]))
        keys = {name: column(batch, name) for name in _NAMES}
        counts = {
            name: pc.fill_null(column(batch, name), 0) for name in ("client_bytes", "broker_bytes", "tls_answers")
        }
        self.parts["listeners"].add(
            {
                **keys,
                **counts,
                "connections": np.ones(batch.num_rows, np.int64),
                "resets": in_any(batch, "ended", ["rst"]).cast(pa.int64()),
                "unanswered": pc.is_valid(column(batch, "tls_unanswered_us")).cast(pa.int64()),
                "answer_max_us": column(batch, "tls_answer_max_us"),
            }
        )
        for name, source in _FOUND.items():
            known = only(batch, pc.is_valid(column(batch, source)))
            rows = distribution_rows({key: column(known, key) for key in _NAMES}, column(known, source))
            if name == "answers":
                rows["count"] = integers(column(known, "tls_answers"))
            self.parts[name].add(rows)

    def result(self) -> pa.Table:
        found = self.parts["listeners"].table()
        for name in _FOUND:
            keys, values = distributions(self.parts[name], _NAMES, {"p50": 0.5})
            columns = {f"{name}_{one}": values[one] for one in ("count", "p50", "high")}
            table = pa.table({key: keys.column(key) for key in _NAMES} | columns)
            found = found.join(table, list(_NAMES), join_type="left outer")
        size = pc.add(found.column("client_bytes"), found.column("broker_bytes"))
        order = [("bytes", "descending"), *((name, "ascending") for name in _NAMES)]
        found = found.append_column("bytes", size).sort_by(order).select([*_KEPT])
        place = found.schema.get_field_index("handshakes_count")
        found = found.set_column(place, "handshakes_count", pc.fill_null(found.column(place), 0))
        return found.rename_columns([*_KEPT.values()])

    def take(self, connections: Iterable[Connection]) -> None:
        """Take connections of an inspector, whose rows are not needed otherwise."""
        rows = [connection_row(connection) for connection in connections]
        columns = self.reads()["connections"].columns
        self.update(pa.RecordBatch.from_pylist(rows, pa.schema([CONNECTIONS.field(name) for name in columns])))
