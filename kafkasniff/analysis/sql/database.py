"""DuckDB, confined to the tables of exports: SQL reads nothing else, and changes nothing.

A query is planned on empty tables first, so a mistake is reported before anything is read, and only the tables and
columns are made that it needs:

    with Database(SqlLimits(folder)) as database:
        plan = database.plan("SELECT api, count(*) FROM exchanges GROUP BY api")
        for batch in database.run(plan, [Export.open("tables")]):
            ...
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import duckdb
import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.errors import KafkasniffError, MissingPartError, UsageError
from kafkasniff.tables.rows.schemas import COLUMNS, ROWS, TABLES
from kafkasniff.text.printable import suggestion


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


SCHEMAS: Final = ("ocsf", "zeek")
"""Schemas of others, with views in their names: files beside this one."""
_SCHEMA_VIEW: Final = re.compile(r"-- (?P<rows>.+)\nCREATE VIEW (?P<name>\w+) AS\n(?P<sql>[^;]+);")
_READ: Final = re.compile(r"\b(?:FROM|JOIN) (\w+)")


class SchemaView(NamedTuple):
    """A query in the names of a schema of others."""

    rows: str
    """What a row is."""
    sql: str
    tables: frozenset[str]
    """What it reads."""


def schema_views(schema: str) -> dict[str, SchemaView]:
    """The views of one of `SCHEMAS`, by name."""
    text = Path(__file__).with_name(f"{schema}.sql").read_text(encoding="utf-8")
    return {
        match["name"]: SchemaView(match["rows"], match["sql"], frozenset(_READ.findall(match["sql"])))
        for match in _SCHEMA_VIEW.finditer(text)
    }


def meanings(table: str) -> dict[str, str]:
    """The meaning of each column."""
    view = VIEWS.get(table)
    if view is None:
        return {column.name: column.meaning for column in COLUMNS[table]}
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
        self._sources = [source for source in sources if table in source.tables]
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
            needed.update(dict.fromkeys((*(key for key in view.keys if key in columns), view.column)))
    return {table: tuple(names) for table, names in found.items()}


MEMORY: Final = 1 << 30
"""Default of `SqlLimits.memory`."""
DISK: Final = 10 << 30
"""Default of `SqlLimits.disk`."""
RESULT_ROWS: Final = 4096
"""Rows of a batch of the result."""
MAX_NAMED: Final = 5
"""Columns that an error suggests."""
REPEATED_SECONDS: Final = 0.5
"""How long to wait for a signal that is repeated."""
_INTERRUPTED: Final = ("Query interrupted", "INTERRUPT Error")
_OPTIMIZERS: Final = frozenset({"unused_columns", "cte_inlining"})
"""Optimizers that plan which columns are needed. Others make use of the fact that the tables are empty."""
_NO_TABLE: Final = re.compile(r"Table with name (?P<name>.+?) does not exist")
_NO_COLUMN: Final = re.compile(
    r'(?:Referenced column "(?P<name>[^"]*)" not found'
    r'|(?:Table|table) "(?P<table>[^"]*)" does not have a column named "(?P<other>[^"]*)")'
)
_MACROS: Final = (
    "array_size(list) AS len(list)",
    "explode(list) AS unnest(list)",
    "get_json_object(text, path) AS CASE WHEN json_valid(text) THEN json_extract_string(text, path) END",
    "regexp_like(text, pattern) AS regexp_matches(text, pattern)",
    "unix_micros(time) AS epoch_us(time)",
)
"""Functions of Spark SQL: questions have the same text there."""
_LINE: Final = re.compile(r"\n\s*LINE (?P<line>\d+): ")


class SqlLimits(NamedTuple):
    """What a query may take."""

    folder: str
    """Folder for what exceeds the memory."""
    memory: int = MEMORY
    """Bytes."""
    disk: int = DISK
    """Bytes in the folder."""
    threads: int = 1
    """Rows without an order have the same one in each run only with one thread."""


class Plan(msgspec.Struct, frozen=True):
    """A query, and what it needs."""

    query: str
    reads: Mapping[str, TableReading]
    """By table; a table that it does not need is missing."""


class Database:
    """A connection to DuckDB. SQL sees the tables of `schemas.TABLES` and the views of `VIEWS`."""

    def __init__(self, limits: SqlLimits, tables: Iterable[str] = TABLES, schema: str | None = None) -> None:
        """`tables`: names of those that exist; `schema`: one of `SCHEMAS`, whose views are made of them."""
        self._limits = limits
        self.tables = tuple(table for table in TABLES if table in set(tables))
        found = {} if schema is None else schema_views(schema)
        self.schema_views = {
            name: schema_view for name, schema_view in found.items() if schema_view.tables <= set(self.tables)
        }
        self._query = ""
        self._has_empty_tables = False
        self.rows: dict[str, Rows] = {}
        """The rows that the query reads, by table."""
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "threads": limits.threads,
                "memory_limit": f"{limits.memory // 1024}KiB",
                "temp_directory": limits.folder,
                "max_temp_directory_size": f"{limits.disk // 1024}KiB",
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        run = self._connection.execute
        run("SET TimeZone = 'UTC'")
        for macro in _MACROS:
            run(f"CREATE MACRO {macro}")
        run("SET python_enable_replacements = false")
        run("SET enable_external_access = false")

    def _empty_tables(self) -> Callable[..., duckdb.DuckDBPyConnection]:
        """Create the tables without rows, to plan queries and to describe them. Returns what executes SQL."""
        run = self._connection.execute
        if self._has_empty_tables:
            return run
        self._has_empty_tables = True
        for table in self.tables:
            self._connection.register("_rows", Rows(table, (), TableReading(())))
            run(f"CREATE TABLE {table} AS FROM _rows")
            self._connection.unregister("_rows")
        for name in self.views:
            # A table, too: so the plan says which of its columns are needed.
            run(f"CREATE TABLE {name} AS {VIEWS[name].sql}")
        for name, schema_view in self.schema_views.items():
            run(f"CREATE VIEW {name} AS {schema_view.sql}")
        return run

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(name for name, view in VIEWS.items() if view.table in self.tables)

    def types(self) -> dict[str, dict[str, str]]:
        """The type of each column in SQL, by table and view."""
        run = self._empty_tables()
        names = (*self.tables, *self.views, *self.schema_views)
        return {name: {row[0]: row[1] for row in run(f"DESCRIBE {name}").fetchall()} for name in names}

    def plan(self, query: str) -> Plan:
        """Check a query, and find out what it needs. Raises UsageError if it is not one, or not valid."""
        self._query = query
        with _Errors(self):
            statements = self._connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError("SQL: give one query, such as SELECT; the tables cannot be changed")
            text = statements[0].query
            run = self._empty_tables()
            names = [name for (name,) in run("SELECT name FROM duckdb_optimizers()").fetchall()]
            run(f"SET disabled_optimizers = '{','.join(name for name in names if name not in _OPTIMIZERS)}'")
            found = run(f"EXPLAIN (FORMAT json) {text}").fetchall()
            run("RESET disabled_optimizers")
            columns = needed_columns(json.loads(found[0][1]))
            return Plan(text, {table: TableReading(names) for table, names in columns.items()})

    def run(self, plan: Plan, sources: Sequence[TableSource]) -> pa.RecordBatchReader:
        """The result of a query over the tables of all sources. Iterating may raise what `result` does."""
        connection = self._connection
        with _Errors(self):
            if self._has_empty_tables:
                for name in self.schema_views:
                    connection.execute(f"DROP VIEW {name}")
                for name in (*self.tables, *self.views):
                    connection.execute(f"DROP TABLE {name}")
            for table in self.tables:
                self.rows[table] = Rows(table, sources, plan.reads.get(table, TableReading(())))
                connection.register(table, self.rows[table])
            for name in self.views:
                connection.execute(f"CREATE VIEW {name} AS {VIEWS[name].sql}")
            for name, schema_view in self.schema_views.items():
                connection.execute(f"CREATE VIEW {name} AS {schema_view.sql}")
            connection.execute("SET lock_configuration = true")
            reader = connection.sql(plan.query).to_arrow_reader(RESULT_ROWS)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Raises UsageError if a value cannot be computed, MissingPartError at a limit, CaptureError for a file."""
        with _Errors(self):
            yield from reader

    def explained(self, text: str) -> KafkasniffError:
        """The exception for an error that DuckDB words in several lines."""
        kind, _, rest = text.partition(" Error: ")
        if kind == "Out of Memory":
            return MissingPartError(
                f"SQL: the query needs more than {self._limits.memory >> 20:,} MiB of memory, or more than "
                f"{self._limits.disk >> 20:,} MiB of disk: select less, or allow more (--query-memory, --query-disk)"
            )
        message = " ".join(rest.partition("\n")[0].split()).rstrip("!")
        place = _LINE.search(text)
        where = f", in line {place['line']}" if place is not None and place["line"] != "1" else ""
        return UsageError(f"SQL: {self._hinted(message, text)}{where}")

    def _hinted(self, message: str, text: str) -> str:
        """The message, with what exists if it names a table or column that does not."""
        missing = _NO_TABLE.search(message)
        names = [*self.tables, *self.views, *self.schema_views]
        if missing is not None:
            name, others = missing["name"], f"there are {', '.join(names)}"
            return f"there is no table {name}{suggestion(name, names, others)}"
        missing = _NO_COLUMN.search(message)
        if missing is None:
            return message
        name = missing["name"] or missing["other"]
        types = self.types()
        asked = [table for table in names if re.search(rf"\b{table}\b", self._query)] or names
        columns = list(dict.fromkeys(column for table in asked for column in types[table]))
        within = [column for column in columns if name.lower() in column]
        close = (within or difflib.get_close_matches(name.lower(), columns, n=MAX_NAMED))[:MAX_NAMED]
        hint = f"did you mean {', '.join(close)}?" if close else "`kafkasniff sql --list` lists them"
        return f"there is no column {name}; {hint}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class _Errors:
    """Turns errors of DuckDB, and those that Arrow passes on from it, into one line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None and str(error).startswith(_INTERRUPTED):
            cause = error.__cause__
            if cause is not None and not isinstance(cause, Exception):
                raise cause
            # DuckDB 2 drops what the signal's handler raised. A handler that notices takes the signal once more, soon.
            time.sleep(REPEATED_SECONDS)
            raise KeyboardInterrupt from error
        if not isinstance(error, duckdb.Error | pa.ArrowException | OSError):
            return
        for rows in self._database.rows.values():
            if rows.failure is not None:
                raise rows.failure from None
        raise self._database.explained(str(error)) from error
