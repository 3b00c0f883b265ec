"""The columns of the data source's own tables, with their types in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["KAFKA_TABLES", "NOTES", "PACKETS", "PIPELINE", "ddl", "kafka_types"]

PACKETS: Final = {
    "capture": "string",
    "capture_index": "int",
    "number": "bigint",
    "time": "timestamp",
    "time_ns": "bigint",
    "clock_ns": "bigint",
    "src_ip": "string",
    "src_port": "int",
    "dst_ip": "string",
    "dst_port": "int",
    "seq": "bigint",
    "ack": "bigint",
    "flags": "int",
    "window": "int",
    "length": "int",
    "wire_length": "int",
    "ident": "bigint",
    "connection_hash": "bigint",
    "payload": "binary",
}
"""TCP segments, one row each."""

PIPELINE: Final = tuple(name for name in PACKETS if name not in {"capture", "time", "connection_hash"})
"""The columns needed for making other tables from packets: the plan has the names of captures."""

NOTES: Final = {
    "capture": "string",
    "capture_index": "int",
    "clock_ns": "bigint",
    "number": "bigint",
    "note": "string",
    "kind": "string",
    "detail": "string",
    "time_ns": "bigint",
    "packet": "bigint",
    "bytes": "bigint",
    "address": "string",
    "name": "string",
    "secrets": "binary",
}
"""Contents of captures besides packets: problems, names of addresses, decryption secrets."""


KAFKA_TABLES: Final = ("exchanges", "records", "connections", "transport", "problems")
"""The tables of exports, which the data source makes, too (table_scan.py)."""


def kafka_types(table: str) -> dict[str, str]:
    """The columns of one of `KAFKA_TABLES`."""
    # Spark imports this module whenever it looks for a source, which is usually not ours.
    from pyspark.sql.pandas.types import from_arrow_schema

    from kafkasniff.tables.rows.schemas import TABLES

    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(TABLES[table])}


def ddl(columns: Mapping[str, str], names: Iterable[str] | None = None) -> str:
    """Columns as Spark DDL; only those in `names`, if given."""
    return ", ".join(f"{name} {columns[name]}" for name in (columns if names is None else names))
