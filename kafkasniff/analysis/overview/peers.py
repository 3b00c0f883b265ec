"""Brokers by their endpoint, and clients by id, address and software."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only, order_columns
from kafkasniff.analysis.overview.apis import COUNTED, HOW, MEASURES, exchange_counts
from kafkasniff.analysis.overview.section import TEXT, Section, folded, is_staged
from kafkasniff.analysis.partials import Shape
from kafkasniff.tables.rows.resolve import LearnedNames

__all__ = ["Brokers", "Clients"]

MAX_CLIENTS: Final = 1 << 18
_PLACE: Final = (("broker_ip", TEXT), ("broker_port", pa.int32()))
_PLACE_NAMES: Final = ("broker_ip", "broker_port")


class Brokers(Section):
    """Endpoints that spoke Kafka as brokers, each with its number as of its last exchange.

    `connections` is null without the table `connections`.
    """

    name: ClassVar[str] = "overview-brokers"
    summary: ClassVar[str] = "Brokers by their endpoint."

    def reads(self) -> Mapping[str, TableReading]:
        place = (*_PLACE_NAMES, "broker_id")
        return {
            "exchanges": TableReading((*ORDER, *place, *COUNTED)),
            "connections": TableReading(("time_ns", "connection_id", *place, "verdict"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        when: Any = tuple((name, pa.int64(), "last") for name in ORDER)
        number: Any = ("broker_id", pa.int32(), "last")
        return {
            "exchanges": Shape(keys=_PLACE, measures=(*MEASURES, *when, number), order=ORDER, weight="exchanges"),
            "connections": Shape(
                keys=_PLACE,
                measures=(("connections", pa.int64(), "sum"), *when[:2], number),
                order=ORDER[:2],
                weight="connections",
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        keys = {name: column(batch, name) for name in (*_PLACE_NAMES, "broker_id", "time_ns", "connection_id")}
        if table == "connections":
            self.parts[table].add({**keys, "connections": pa.array([1] * batch.num_rows, pa.int64())})
        else:
            self.parts[table].add({**keys, **order_columns(batch), **exchange_counts(batch)})

    def result(self) -> pa.Table:
        exchanges, connections = (_numbered(part.table(), self.names) for part in self.parts.values())
        found = exchanges.join(
            connections.select([*_PLACE_NAMES, "connections", "broker_id"]),
            list(_PLACE_NAMES),
            join_type="full outer",
            right_suffix="_seen",
        )
        number = pc.coalesce(found.column("broker_id"), found.column("broker_id_seen"))
        found = found.set_column(found.schema.get_field_index("broker_id"), "broker_id", number)
        for name in (name for name, how in HOW.items() if how == "sum"):
            place = found.schema.get_field_index(name)
            found = found.set_column(place, name, pc.fill_null(found.column(name), 0))
        order = [("broker_id", "ascending"), ("broker_ip", "ascending"), ("broker_port", "ascending")]
        return found.drop_columns(["broker_id_seen"]).sort_by(order)


def _numbered(table: pa.Table, names: LearnedNames | None) -> pa.Table:
    if names is None or not table.num_rows:
        return table
    batch = table.combine_chunks().to_batches()[0]
    known = names.broker_ids(column(batch, "broker_ip"), column(batch, "broker_port"), column(batch, "time_ns"))
    number = pc.coalesce(known, column(batch, "broker_id"))
    return table.set_column(table.schema.get_field_index("broker_id"), "broker_id", number)


class Clients(Section):
    """Clients by id, address and software, with sent and received data.

    If the software of a connection becomes known late, it is looked up then; until then such a connection is its own
    row.
    """

    name: ClassVar[str] = "overview-clients"
    summary: ClassVar[str] = "Clients by id, address and software."

    _KEYS: ClassVar = ("client_id", "client_ip", "software_name", "software_version")

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._KEYS, "connection_id", *COUNTED))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*((name, TEXT) for name in self._KEYS), ("connection_id", pa.int64()))
        return {"clients": Shape(keys=keys, measures=MEASURES, weight="exchanges", bound=MAX_CLIENTS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        keys = {name: column(batch, name) for name in self._KEYS}
        nobody = pa.nulls(batch.num_rows, pa.int64())
        keys["connection_id"] = nobody
        if is_staged(batch):
            late = pc.is_null(keys["software_name"])
            keys["connection_id"] = pc.if_else(late, column(batch, "connection_id"), nobody)
        self.parts["clients"].add({**keys, **exchange_counts(batch)})

    def result(self) -> pa.Table:
        table = self.parts["clients"].table()
        if self.names is not None and table.num_rows:
            batch = table.combine_chunks().to_batches()[0]
            name, version = self.names.software(*(column(batch, one) for one in ("connection_id", *self._KEYS[2:])))
            table = table.set_column(table.schema.get_field_index("software_name"), "software_name", name)
            table = table.set_column(table.schema.get_field_index("software_version"), "software_version", version)
        found = folded(table, self._KEYS, HOW)
        size = pc.add(found.column("request_bytes"), found.column("response_bytes"))
        order = [("bytes", "descending"), *((name, "ascending") for name in self._KEYS)]
        return found.append_column("bytes", size).sort_by(order)
