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

PIPELINE: Final = tuple(name for name in PACKETS if name not in {"capture", "time"})
"""The columns that making other tables of packets needs: names of captures are in the plan."""

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
"""What captures hold that is not packets: problems, names of addresses, decryption secrets."""


KAFKA_TABLES: Final = ("exchanges", "records", "connections", "problems")
"""The tables of exports, which the data source makes, too (sharded_scan.py)."""


def kafka_types(table: str) -> dict[str, str]:
    """The columns of one of `KAFKA_TABLES`."""
    # Spark looks at this module whenever it looks for a source; most sources are none of ours.
    from pyspark.sql.pandas.types import from_arrow_schema

    from kafkasniff.rows.schemas import TABLES

    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(TABLES[table])}


def ddl(columns: Mapping[str, str], names: Iterable[str] | None = None) -> str:
    """Columns as Spark's language writes them; only those named, where `names` is given."""
    return ", ".join(f"{name} {columns[name]}" for name in (columns if names is None else names))
