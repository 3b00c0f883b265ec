"""Connections whose TLS is not decrypted, by listener: what their packets show without keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, in_any, integers, only
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.overview.section import TEXT, Section
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.visibility import TLS
from kafkasniff.model import Connection
from kafkasniff.tables.rows.connections import connection_row
from kafkasniff.tables.rows.schemas import CONNECTIONS

__all__ = ["Encrypted"]

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


class Encrypted(Section):
    """Listeners whose TLS connections are not decrypted, those with most bytes first."""

    name: ClassVar[str] = "overview-encrypted"
    summary: ClassVar[str] = "TLS connections without keys, by listener."

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
        rows = [connection_row(one) for one in connections if one.protocol == TLS]
        columns = self.reads()["connections"].columns
        self.update(pa.RecordBatch.from_pylist(rows, pa.schema([CONNECTIONS.field(name) for name in columns])))
