"""Options of the data source as Spark passes them: names in any case, values as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import FileSelection
from kafkasniff.errors import UsageError
from kafkasniff.filters.tree import parse_moment

# -- columns -----------------------------------------------------------------------------------------------------------

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
"""The tables of exports, which the data source makes, too (table_rows.py)."""


def kafka_types(table: str) -> dict[str, str]:
    """The columns of one of `KAFKA_TABLES`."""
    # Spark imports this module whenever it looks for a source, which is usually not ours.
    from pyspark.sql.pandas.types import from_arrow_schema

    from kafkasniff.tables.rows.schemas import TABLES

    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(TABLES[table])}


_ARROW: Final = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Columns with their types in Spark as a schema of Arrow."""
    return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in columns.items()])


def ddl(columns: Mapping[str, str], names: Iterable[str] | None = None) -> str:
    """Columns as Spark DDL; only those in `names`, if given."""
    return ", ".join(f"{name} {columns[name]}" for name in (columns if names is None else names))


# -- options -----------------------------------------------------------------------------------------------------------

_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_TABLES: Final = {"packets": PACKETS, "notes": NOTES}

SPLIT_BYTES: Final = 128 << 20
"""Default number of bytes of a capture that one task reads."""
SMALLEST_SPLIT: Final = 64 << 10
"""Minimum number of bytes per task: a single packet may be that long."""
TRIGGER_BYTES: Final = 512 << 20
"""Default maximum size of a stream's micro-batch in bytes."""
FINISH_SECONDS: Final = 3600
"""Default time without growth after which an incomplete packet at the end of a file counts as truncated."""


class SourceOptions(msgspec.Struct, frozen=True):
    """Options of the data source `kafkasniff`."""

    paths: tuple[str, ...]
    table: str = "packets"
    columns: tuple[str, ...] = ()
    """Empty: all columns."""
    ports: tuple[int, ...] = ()
    """Only packets from or to one of these ports; empty: all."""
    split_size: int = SPLIT_BYTES
    pushdown: bool = False
    """Apply filters while reading packets (needs `spark.sql.python.filterPushdown.enabled`)."""
    show_secrets: bool = False
    max_bytes_per_trigger: int = TRIGGER_BYTES
    finish_after: int = FINISH_SECONDS
    fail_on_loss: bool = True
    secrets: bool = False
    """Also return TLS secrets in captures as rows of the table `packets`, for `kafkasniff.spark.pipeline`."""
    keylog: str | None = None
    """A file with TLS secrets, for a table of Kafka data; the task reads it."""
    selection: FileSelection = FileSelection()

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options given to Spark. Raises UsageError for unknown options and invalid values."""
        values = {name.lower(): text for name, text in given.items()}
        paths = tuple(_paths(values.pop("paths", "[]")))
        if "path" in values:
            paths = (values.pop("path"), *paths)
        if "provider" in values:
            # A catalog's own property; the scans of such a table get none of its options.
            raise UsageError(
                "CREATE TABLE cannot use kafkasniff, since Spark does not pass a table's options to sources in Python: "
                "use CREATE TEMPORARY VIEW, or export the captures and create tables of the export"
            )
        options = cls(
            paths,
            values.pop("table", "packets").lower(),
            tuple(_names(values.pop("columns", ""))),
            tuple(_port(text) for text in _names(values.pop("ports", ""))),
            max(SMALLEST_SPLIT, _size("splitsize", values.pop("splitsize", str(SPLIT_BYTES)))),
            _truth("pushdown", values.pop("pushdown", "false")),
            _truth("showsecrets", values.pop("showsecrets", "false")),
            _size("maxbytespertrigger", values.pop("maxbytespertrigger", str(TRIGGER_BYTES))),
            _seconds("finishafter", values.pop("finishafter", str(FINISH_SECONDS))),
            _truth("failondataloss", values.pop("failondataloss", "true")),
            _truth("secrets", values.pop("secrets", "false")),
            values.pop("keylog", None),
            FileSelection(
                values.pop("pathglobfilter", "*"),
                _truth("recursivefilelookup", values.pop("recursivefilelookup", "false")),
                _time("modifiedafter", values.pop("modifiedafter", None)),
                _time("modifiedbefore", values.pop("modifiedbefore", None)),
            ),
        )
        if values:
            raise UsageError(f"kafkasniff has no option {', '.join(sorted(values))}")
        if options.table not in _TABLES and options.table not in KAFKA_TABLES:
            known = ", ".join([*_TABLES, *KAFKA_TABLES])
            raise UsageError(f"kafkasniff has no table {options.table}; there are {known}")
        if options.secrets and options.table != "packets":
            raise UsageError("secrets is for the table packets")
        if options.keylog is not None and options.table not in KAFKA_TABLES:
            raise UsageError(
                f"keylog is for {', '.join(KAFKA_TABLES)}; functions that decode {options.table} take one themselves"
            )
        unknown = [name for name in options.columns if name not in options.types]
        if unknown:
            raise UsageError(f"table {options.table} has no column {', '.join(unknown)}")
        return options

    @property
    def types(self) -> dict[str, str]:
        """All columns of the table and their types."""
        return _TABLES[self.table] if self.table in _TABLES else kafka_types(self.table)

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ddl(self.types, self.columns or None)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _paths(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        raise UsageError("paths has to be a JSON array of strings") from None


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise UsageError(f"ports: {text} is not a port")
    return int(text)


def _size(name: str, text: str) -> int:
    """Bytes: `67108864`, `64m`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(f"{name}: {text} is not a size (such as 64m)")
    return int(match[1]) << _UNITS[match[2].lower()]


def _seconds(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name}: {text} is not a number of seconds")
    return int(text)


def _time(name: str, text: str | None) -> int | None:
    """Nanoseconds since 1970 of `2026-11-30T12:00:00`; as in Spark, but in UTC without a zone."""
    if text is None:
        return None
    found = parse_moment(text)
    if not isinstance(found, int):
        raise UsageError(f"{name}: {text} is not a time (such as 2026-11-30T12:00:00)")
    return found


def _truth(name: str, text: str) -> bool:
    found = _WORDS.get(text.strip().lower())
    if found is None:
        raise UsageError(f"{name}: {text} is neither true nor false")
    return found
