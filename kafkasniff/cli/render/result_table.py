"""Results of analyses as tables, JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafkasniff.cli.render.rich_text import as_text
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.cells import Cell, ReportColumn
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import cut, printable
from kafkasniff.text.times import duration

__all__ = ["json_lines", "parquet_bytes", "text_table"]

MAX_CELL: Final = 200
"""Maximum width of a cell; names on the wire have up to 32,767 characters."""
_UNITS: Final = {"_us": 1_000, "_ms": 1_000_000}
"""Suffixes of column names for durations, in nanoseconds."""


def text_table(
    table: pa.Table, *, width: int, coloured: bool, essential: Sequence[str] = (), hosts: Hosts | None = None
) -> str:
    """The rows below a line of column names; numbers with units, times in UTC, wire text escaped.

    `essential`: the columns to hide last if the table is too wide, the most useful first; `hosts`: names of addresses.
    """
    from kafkasniff.cli.render.fitted import FittedTable

    useful = [*essential, *(name for name in table.schema.names if name not in essential)]
    columns = [
        ReportColumn(
            _heading(field),
            _column(field.name),
            number=pa.types.is_integer(field.type) or pa.types.is_floating(field.type),
            # A column without values is hidden before any other.
            level=useful.index(field.name) if table[field.name].null_count < table.num_rows else len(useful),
            whole=pa.types.is_timestamp(field.type),
        )
        for field in table.schema
    ]
    rows = FittedTable(columns, table.to_pylist(), style="bold", hosts=hosts)
    return as_text([rows], width=width, coloured=coloured)


def _column(name: str) -> Cell:
    return lambda row: _cell(name, row[name])


def _heading(field: pa.Field) -> str:
    """The column's name without its unit, which the cells show."""
    name: str = field.name
    return name.removesuffix("_us").removesuffix("_ms") if name.endswith(tuple(_UNITS)) else name


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    match value:
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case int() | float() if name.endswith(tuple(_UNITS)):
            return duration(round(value * _UNITS[name[-3:]]))
        case int() | float() if "bytes" in name.split("_"):
            return amount(round(value))
        case float() if name in ("share", "empty_ratio"):
            return f"{value:.1%}"
        case float():
            return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        case list():
            return cut(", ".join(printable(str(one)) for one in value), MAX_CELL)
    return cut(printable(str(value)), MAX_CELL)


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """One object per row with all columns; times as RFC 3339 in UTC."""
    import orjson

    option = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    for batch in table.to_batches(max_chunksize=4096):
        yield b"".join(orjson.dumps(row, option=option) for row in batch.to_pylist())


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
