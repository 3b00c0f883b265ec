"""Results of questions and queries as text, JSON lines, CSV or Parquet, batch by batch: they may exceed the memory."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafkasniff.cli.output import UNLIMITED, Output
from kafkasniff.cli.render.tables import FittedTable, as_text
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.errors import UsageError
from kafkasniff.report.answer_tables import Cell, ReportColumn
from kafkasniff.sinks.csv import csv_cell
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import cut, printable
from kafkasniff.text.times import duration, rfc3339

TEXT_ROWS: Final = 4096
"""Rows of a text table: its columns are as wide as these need; more rows follow in another table."""
GROUP_ROWS: Final = 1 << 16
"""Rows of a row group in Parquet."""
MAX_CELL: Final = 200
"""Maximum width of a cell; names on the wire have up to 32,767 characters."""
_UNITS: Final = {"_us": 1_000, "_ms": 1_000_000}
"""Suffixes of column names for durations, in nanoseconds."""
_MAX_INTEGER: Final = 1 << 63
_TIME: Final = pa.timestamp("us", tz="UTC")
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


def write_text(result: pa.RecordBatchReader, stream: Output, *, colour: str, wide: bool) -> int:
    """Tables that fit the terminal; in a file or pipe, a row stays on one line. Returns the number of rows."""
    width = stream.width(UNLIMITED, wide=wide or not stream.is_terminal)
    rows = 0
    for table in _tables(result, TEXT_ROWS):
        rows += table.num_rows
        stream.write_text(text_table(_flat(table, _times), width=width, coloured=stream.coloured(colour)))
    return rows


def write_json(result: pa.RecordBatchReader, stream: Output, **_: object) -> int:
    """An object per row. Times are RFC 3339 in UTC; bytes that are not text, and nested ones, as in JSON lines."""
    import orjson

    option = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    count = 0
    for batch in result:
        count += batch.num_rows
        rows = _microseconds(_named(pa.Table.from_batches([batch]))).to_pylist()
        stream.write_json_lines(b"".join(orjson.dumps(row, default=_plain, option=option) for row in rows))
    return count


def write_csv(result: pa.RecordBatchReader, stream: Output, **_: object) -> int:
    """A line of names, then a line per row; lists and structs are JSON."""
    names = _named(result.schema.empty_table()).schema.names
    stream.write_text(",".join(map(csv_cell, names)) + "\n")
    count = 0
    for batch in result:
        count += batch.num_rows
        table = _flat(pa.Table.from_batches([batch]), _rfc3339)
        columns = [map(_cell, column.to_pylist()) for column in table.columns]
        stream.write_text("".join(",".join(row) + "\n" for row in zip(*columns, strict=True)))
    return count


def write_parquet(result: pa.RecordBatchReader, stream: Output, **_: object) -> int:
    """A Parquet file. Raises UsageError if it has no type for a column."""
    schema = _named(result.schema.empty_table()).schema
    count = 0
    try:
        with pq.ParquetWriter(_Sink(stream), schema, compression="zstd") as writer:
            for table in _tables(result, GROUP_ROWS):
                count += table.num_rows
                writer.write_table(table.rename_columns(schema.names))
    except pa.ArrowNotImplementedError as error:
        raise UsageError(f"Parquet has no such type; CAST the column to another one: {error}") from None
    return count


WRITERS: Final[Mapping[str, Callable[..., int]]] = {
    "text": write_text,
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
}
"""By the names of formats. Each returns the number of rows."""


def text_table(
    table: pa.Table, *, width: int, coloured: bool, essential: Sequence[str] = (), hosts: Hosts | None = None
) -> str:
    """The rows below a line of column names; numbers with units, times in UTC, wire text escaped.

    `essential`: the columns to hide last if the table is too wide, the most useful first; `hosts`: names of addresses.
    """
    useful = [*essential, *(name for name in table.schema.names if name not in essential)]
    columns = [
        ReportColumn(
            _heading(field),
            _shown(field.name),
            number=pa.types.is_integer(field.type) or pa.types.is_floating(field.type),
            # A column without values is hidden before any other.
            level=useful.index(field.name) if table[field.name].null_count < table.num_rows else len(useful),
            whole=pa.types.is_timestamp(field.type),
        )
        for field in table.schema
    ]
    rows = FittedTable(columns, table.to_pylist(), style="bold", hosts=hosts)
    return as_text([rows], width=width, coloured=coloured)


def _shown(name: str) -> Cell:
    return lambda row: _cell_text(name, row[name])


def _heading(field: pa.Field) -> str:
    """The column's name without its unit, which the cells show."""
    name: str = field.name
    return name.removesuffix("_us").removesuffix("_ms") if name.endswith(tuple(_UNITS)) else name


def _cell_text(name: str, value: Any) -> str:
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


class _Sink:
    """An output as the file that Arrow writes."""

    closed = False

    def __init__(self, stream: Output) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()


def _tables(result: pa.RecordBatchReader, rows: int) -> Iterator[pa.Table]:
    """The result in tables of at least this many rows; the last one has the rest."""
    waiting: list[pa.RecordBatch] = []
    for batch in result:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= rows:
            yield _named(pa.Table.from_batches(waiting))
            waiting = []
    if waiting:
        yield _named(pa.Table.from_batches(waiting))


def _named(table: pa.Table) -> pa.Table:
    """The table with different names for all columns: a query may use one twice."""
    names: dict[str, None] = {}
    for name in table.schema.names:
        unique, number = name, 1
        while unique in names:
            unique, number = f"{name}_{number}", number + 1
        names[unique] = None
    return table.rename_columns(list(names))


def _flat(table: pa.Table, times: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    """Numbers, texts and `times`: everything else is text."""
    named = _named(table)
    return pa.table({name: _flat_column(named[name], times) for name in named.schema.names})


def _flat_column(column: pa.ChunkedArray, times: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return column
    if pa.types.is_timestamp(kind):
        return times(column)
    values = _microseconds(pa.table({"one": column}))["one"].to_pylist()
    if pa.types.is_decimal(kind):
        numbers = [None if value is None else _number(value) for value in values]
        if all(isinstance(number, int | None) for number in numbers) or all(
            isinstance(number, float | None) for number in numbers
        ):
            return pa.chunked_array([numbers])
    return pa.chunked_array([pa.array([None if value is None else _text(value) for value in values], pa.string())])


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times without a time zone are in UTC, too."""
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(_TIME)


def _rfc3339(column: pa.ChunkedArray) -> pa.ChunkedArray:
    unit = _NANOSECONDS[column.type.unit]
    texts = [None if one is None else rfc3339(one * unit) for one in column.cast(pa.int64()).to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _microseconds(table: pa.Table) -> pa.Table:
    """Nanoseconds rounded down: Python has none."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", tz=field.type.tz)
            table = table.set_column(index, field.name, table.column(index).cast(kind, safe=False))
    return table


def _cell(value: Any) -> str:
    return csv_cell(str(value).lower() if isinstance(value, bool) else value)


def _text(value: Any) -> str:
    """A value that is neither a number nor a time."""
    import orjson

    plain = _plain(value) if isinstance(value, bytes | Decimal | pa.MonthDayNano) else value
    if isinstance(plain, dict | list):
        return orjson.dumps(plain, default=_plain, option=orjson.OPT_UTC_Z).decode()
    return str(plain)


def _plain(value: Any) -> Any:
    """A value that JSON has no form for."""
    match value:
        case Decimal():
            return _number(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": b64encode(value).decode()}
        case pa.MonthDayNano():
            return _interval(value)
    return str(value)


def _number(value: Decimal) -> int | float | str:
    """Sums of integers are decimals without places; JSON has no integers beyond 64 bits."""
    if value.as_tuple().exponent != 0:
        return float(value)
    return int(value) if -_MAX_INTEGER <= value < _MAX_INTEGER else str(value)


def _interval(value: Any) -> str:
    """As DuckDB writes intervals: `1 month 2 days 00:00:01.5`."""
    sign, nanoseconds = "-" if value.nanoseconds < 0 else "", abs(value.nanoseconds)
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    parts = [
        f"{count} {unit}{'' if count == 1 else 's'}"
        for count, unit in ((value.months, "month"), (value.days, "day"))
        if count
    ]
    return " ".join([*parts, clock] if nanoseconds or not parts else parts)
