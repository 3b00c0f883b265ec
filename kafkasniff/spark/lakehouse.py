"""Lakehouse tables (Delta Lake, Iceberg) with the rows of an export or of `pipeline.decode`, by Spark's own writers.

A set of tables has a name, `CATALOG.DATABASE.NAME`; its tables are `NAME_exchanges`, `NAME_records` and so on. They
have the columns of the export, its `date`, the `run` that wrote a row, and `open`: the next run replaces the row.

Records and problems have no key for MERGE. So a run replaces rows by a condition, in one atomic overwrite per table:
rows that were open, and its own if it was killed before. Then a property of the table says which runs of which export
it has; a repeated run finds it there and does nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.errors import UsageError
from kafkasniff.spark.session import first_line, task_errors
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.manifest import FileEntry, Manifest
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows.file_names import date_of, was_open

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ADDED: Final = {"date": pa.date32(), "run": pa.int64(), "open": pa.bool_()}
"""The columns that these tables have in addition to those of the export's files."""

MARK: Final = "kafkasniff.export"
"""The property of a table that says what it has: `TableMark`, or `DIRECT`."""
DIRECT: Final = "none"
"""The table is written by `write_to`, not from an export."""
IMPLEMENTATION: Final = "spark.sql.catalogImplementation"
"""Property of a session: where its own catalog keeps tables."""
MAX_READERS: Final = 1 << 10
"""The most tasks that read files of an export."""

_NAME: Final = re.compile(r"\w+(\.\w+){2,}", re.ASCII)


class TableMark(msgspec.Struct, frozen=True):
    """Which runs of which export a table has."""

    runs: int
    captures: int
    digest: str
    """Hash of the captures: an export only adds to them, so that they identify it wherever it is."""

    @classmethod
    def of(cls, runs: int, captures: Sequence[ManifestCapture]) -> TableMark:
        """The mark of a table with these runs, of these captures."""
        encoded = msgspec.json.encode(captures)
        return cls(runs, len(captures), hashlib.blake2b(encoded, digest_size=16).hexdigest())

    def dump(self) -> str:
        """As the property has it."""
        return f"{self.runs} {self.captures} {self.digest}"

    @classmethod
    def load(cls, text: str) -> TableMark | None:
        """From the property; None if it is another text."""
        match = re.fullmatch(r"(\d{1,10}) (\d{1,10}) ([0-9a-f]{32})", text, re.ASCII)
        return None if match is None else cls(int(match[1]), int(match[2]), match[3])


class LakeTables:
    """A set of tables in a catalog."""

    def __init__(self, spark: SparkSession, name: str, tables: Iterable[str], *, lasting: bool = False) -> None:
        """Makes the tables that do not exist, and adds columns that they lack.

        `lasting`: other sessions have to find the tables. Raises UsageError if the name has another form, the catalog
        or the database does not exist, the catalog forgets its tables, or if it does not work with this Spark.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        if not _NAME.fullmatch(name):
            raise UsageError(f"--table: {name} is not of the form CATALOG.DATABASE.NAME")
        self.name = name
        self._spark = spark
        catalog, database = name.split(".", 1)[0], name.rpartition(".")[0]
        self._provider = spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""
        if not self._provider:
            raise UsageError(
                f"--table: there is no catalog {catalog} for lakehouse tables: name one with "
                f"--conf spark.sql.catalog.{catalog}=CLASS, and its jar with --conf spark.jars.packages=…"
            )
        # Other classes keep tables elsewhere than in the session's own catalog.
        kept_by_session = catalog == "spark_catalog" and self._is_delta()
        if lasting and kept_by_session and spark.conf.get(IMPLEMENTATION) == "in-memory":
            raise UsageError(
                "--table: spark_catalog forgets its tables when the session ends: give it a metastore with "
                f"--conf {IMPLEMENTATION}=hive"
            )
        self._marks: dict[str, str | None] = {}
        try:
            # Otherwise Spark also logs an exception when it makes a table.
            if not spark.catalog.databaseExists(_quoted(database)):
                raise UsageError(f"--table: there is no database {database}: create it with CREATE DATABASE")
            for table in tables:
                self._marks[table] = self._prepare(table)
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(
                f"--table: cannot use {name}: {first_line(error)} (the jars in spark.jars.packages must be for "
                "this version of Spark)"
            ) from error

    def check(self, manifest: Manifest | None) -> None:
        """Raises UsageError if the tables hold something else than runs of this export.

        `manifest`: None if the export is new.
        """
        for table in self._marks:
            self._runs_of(table, manifest)

    def load(self, directory: str, manifest: Manifest) -> None:
        """Bring the tables up to date with an export. Only one process may do this at a time.

        Raises UsageError as `check` does, and the exceptions of `task_errors`.
        """
        export = Export.open(directory).elsewhere()
        now = TableMark.of(manifest.runs, manifest.captures).dump()
        for table, entry in manifest.tables.items():
            done = self._runs_of(table, manifest)
            if done == manifest.runs:
                continue
            name = self._path(table)
            with task_errors():
                if self._marks[table] is None:  # if this process is killed, the next one knows whose rows it finds
                    self._set_mark(table, TableMark.of(0, manifest.captures).dump())
                # Open rows that no later run continued are final; those that one continued are not in the export.
                final = {file.run for file in entry.files if file.run <= done and was_open(file.path)}
                if final:
                    self._spark.sql(f"UPDATE {name} SET open = false WHERE open AND run IN ({_listed(final)})")
                new = [file for file in entry.files if file.run > done]
                self._replace(table, self._rows(export, table, new), f"run > {done} OR open = true")
                self._set_mark(table, now)

    def write(self, run: int, frames: Mapping[str, DataFrame]) -> None:
        """Write rows as those of a run, instead of the rows that it has.

        Raises UsageError if the tables are those of an export, and the exceptions of `task_errors`.
        """
        from pyspark.sql import functions as sf

        for table, mark in self._marks.items():
            if mark not in {None, DIRECT}:
                raise UsageError(f"{self.name}_{table} has the rows of an export: write to other tables")
        # Whatever the session's time zone is.
        day = sf.expr("coalesce(date_from_unix_date(int(floor(unix_micros(time) / 86400000000))), DATE'1970-01-01')")
        for table, frame in frames.items():
            added = {"date": day, "run": sf.lit(run).cast("bigint"), "open": sf.lit(False)}
            with task_errors():
                if self._marks[table] is None:
                    self._set_mark(table, DIRECT)
                self._replace(table, frame.withColumns(added), f"run = {run}")

    def _is_delta(self) -> bool:
        return "delta" in self._provider.lower()

    def _path(self, table: str) -> str:
        return _quoted(f"{self.name}_{table}")

    def _prepare(self, table: str) -> str | None:
        """Make a table if necessary; returns its mark, None if it has no rows yet.

        Raises Spark's errors, and UsageError if it has rows of others.
        """
        from pyspark.sql import functions as sf

        spark, name, schema = self._spark, self._path(table), _schema(table)
        if not spark.catalog.tableExists(name):
            writer = spark.createDataFrame([], schema).writeTo(name).partitionedBy(sf.col("date"), sf.col("open"))
            # Catalogs of Delta Lake may hold tables of other formats; those of Iceberg have one.
            (writer.using("delta") if self._is_delta() else writer).create()
        found = spark.table(name)
        properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
        mark = properties.get(MARK)
        # Also shows whether tables can be read at all: with another Spark than its own, a runtime may only make them.
        if found.limit(1).count() and mark is None:
            raise UsageError(f"{self.name}_{table} has rows that kafkasniff did not write: choose another name")
        missing = list(_missing(found.schema, schema))
        if missing:
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(missing)})")
        return mark

    def _runs_of(self, table: str, manifest: Manifest | None) -> int:
        """The runs of an export that a table has. Raises UsageError if it has something else."""
        text = self._marks[table]
        if text is None:
            return 0
        mark = TableMark.load(text)
        captures = [] if manifest is None else manifest.captures
        runs = 0 if manifest is None else manifest.runs
        if mark is None or mark.runs > runs or mark != TableMark.of(mark.runs, captures[: mark.captures]):
            raise UsageError(
                f"{self.name}_{table} has rows that are not of this export: name the folder that they are from with -o,"
                " or other tables"
            )
        return mark.runs

    def _set_mark(self, table: str, mark: str) -> None:
        self._spark.sql(f"ALTER TABLE {self._path(table)} SET TBLPROPERTIES ('{MARK}' = '{mark}')")
        self._marks[table] = mark

    def _replace(self, table: str, rows: DataFrame, condition: str) -> None:
        from pyspark.sql import functions as sf

        rows.writeTo(self._path(table)).overwrite(sf.expr(condition))

    def _rows(self, export: Export, table: str, files: Sequence[FileEntry]) -> DataFrame:
        """The rows of some files of an export, a task for each file."""
        spark, schema = self._spark, _schema(table)
        if not files:
            return spark.createDataFrame([], schema)
        columns = {name: [getattr(file, name) for file in files] for name in ("path", "run", "open")}
        given = spark.createDataFrame(pa.table(columns))
        return given.repartition(min(len(files), MAX_READERS)).mapInArrow(_ReadFiles(export, table), schema)


class _ReadFiles:
    """Work of a task: the rows of files of an export."""

    def __init__(self, export: Export, table: str) -> None:
        self._export = export
        self._table = table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        table = self._table
        names = TABLES[table].names
        for batch in batches:
            for file in batch.to_pylist():
                added = {"date": date.fromisoformat(date_of(file["path"])), "run": file["run"], "open": file["open"]}
                for rows in self._export.only(table, file["path"]).batches(table, TableReading(tuple(names))):
                    columns = [rows.column(name) for name in names]
                    columns += [pa.repeat(pa.scalar(added[name], kind), len(rows)) for name, kind in ADDED.items()]
                    yield pa.RecordBatch.from_arrays(columns, [*names, *ADDED])


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _schema(table: str) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([*TABLES[table], *ADDED.items()]))


def _missing(found: StructType, wanted: StructType, within: str = "") -> Iterator[str]:
    """Columns that a table lacks, as `ALTER TABLE … ADD COLUMNS` takes them; also fields of structs in arrays."""
    from pyspark.sql.types import ArrayType, StructType

    for field in wanted:
        place = f"{within}{field.name}"
        if field.name not in found.names:
            yield f"{place} {field.dataType.simpleString()}"
            continue
        has, needs = found[field.name].dataType, field.dataType
        if isinstance(has, ArrayType) and isinstance(needs, ArrayType):
            has, needs, place = has.elementType, needs.elementType, f"{place}.element"
        if isinstance(has, StructType) and isinstance(needs, StructType):
            yield from _missing(has, needs, f"{place}.")


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
