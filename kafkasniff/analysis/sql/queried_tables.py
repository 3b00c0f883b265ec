"""The tables that SQL sees, and which of their columns a query needs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.tables.rows.schemas import COLUMNS, ROWS, TABLES

__all__ = ["VIEWS", "Rows", "TableSource", "View", "meanings", "needed_columns", "rows_of"]


class View:
    """A table that is made of the structs in a column of another table: one row per struct."""

    def __init__(self, table: str, column: str, keys: Sequence[str]) -> None:
        self.table = table
        """The table that it is made of."""
        self.column = column
        self.keys = tuple(keys)
        """The columns of that table that each row repeats."""
        self.sql = f"SELECT {', '.join(keys)}, unnest({column}, max_depth := 2) FROM {table}"


VIEWS: Final = {
    "partitions": View(
        "exchanges",
        "partitions",
        (
            *("capture", "connection_id", "exchange_id", "time", "time_ns", "client_ip", "client_port", "broker_ip"),
            *("broker_port", "broker_id", "api", "api_version", "client_id", "group_id", "latency_us", "status"),
        ),
    )
}
"""By name. Their columns are the keys, followed by the fields of the struct."""


def meanings(table: str) -> dict[str, str]:
    """The meaning of each column."""
    view = VIEWS.get(table)
    if view is None:
        return {one.name: one.meaning for one in COLUMNS[table]}
    return {**{name: meanings(view.table)[name] for name in view.keys}, **meanings_of_structs(table)}


def meanings_of_structs(column: str) -> dict[str, str]:
    """The meaning of each field of the structs in a column."""
    return {one.name: one.meaning for one in COLUMNS[column]}


def rows_of(table: str) -> str:
    """What a row of a table is."""
    return ROWS[table].replace("A struct per", "A row per") if table in VIEWS else ROWS[table]


class TableSource(Protocol):
    """Where rows come from, such as an `Export`."""

    @property
    def tables(self) -> Container[str]:
        """Names of the tables that it has."""

    def batches(self, table: str, reading: TableReading, /) -> Iterator[pa.RecordBatch]:
        """The rows of a table, from the beginning with each call."""


class Rows:
    """The rows of a table in all sources, as DuckDB reads them: anew for each scan, so that they need no memory.

    Columns that the query does not need are null.
    """

    def __init__(self, table: str, sources: Iterable[TableSource], reading: TableReading) -> None:
        self._table = table
        self._sources = [one for one in sources if table in one.tables]
        self._reading = reading
        self.schema: pa.Schema = TABLES[table]
        self.count = 0
        """Rows read so far."""
        self.failure: Exception | None = None
        """What ended the reading."""

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, _requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for source in self._sources:
                for batch in source.batches(self._table, self._reading):
                    self.count += batch.num_rows
                    yield self._whole(batch)
        except Exception as error:
            # DuckDB reports only its text.
            self.failure = error
            raise

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in self._reading.columns
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def needed_columns(plan: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The columns that a plan of DuckDB scans, by table; views are tables in it.

    Of a table whose rows are only counted, it is the first column.
    """
    found: dict[str, dict[str, None]] = {}
    nodes = list(plan)
    while nodes:
        node = nodes.pop()
        nodes += node.get("children", ())
        facts = node.get("extra_info", {})
        table = str(facts.get("Table", "")).rpartition(".")[2]
        if table in TABLES or table in VIEWS:
            scanned = facts.get("Projections") or next(iter(meanings(table)))
            found.setdefault(table, {}).update(dict.fromkeys([scanned] if isinstance(scanned, str) else scanned))
    # A codec is only undone where records are decoded.
    decodes = "partitions" in found.get("exchanges", ()) or "uncompressed_bytes" in found.get("partitions", ())
    if decodes:
        found.setdefault("records", {next(iter(meanings("records"))): None})
    for name, view in VIEWS.items():
        if name in found:
            columns = found.pop(name)
            needed = found.setdefault(view.table, {})
            needed.update(dict.fromkeys((*(one for one in view.keys if one in columns), view.column)))
    return {table: tuple(names) for table, names in found.items()}
