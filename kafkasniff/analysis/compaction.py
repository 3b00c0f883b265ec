"""Joins the files of an export, and removes old dates: `kafkasniff export --compact`.

Streams, live captures and frequent runs leave many small files, and rows are in order only within each run. Here the
files of a date become few, with all rows in one order. Those of `records` are then in the order of their topics, so the
copies of a record that brokers and consumers have fetched are next to each other, which compresses well, and a reader
who looks for an offset skips the rest.

Rows that are unfinished stay in files of their own, since the next run replaces them. A compaction is a run of its own,
and becomes visible as a whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.sql.database import MEMORY, Database, SqlLimits
from kafkasniff.errors import UsageError
from kafkasniff.tables.checkpoint import Carried, dump
from kafkasniff.tables.exports.manifest import FileEntry, Manifest, TableEntry, WrittenFile
from kafkasniff.tables.exports.run import has_checkpoint
from kafkasniff.tables.exports.target import ExportTarget, open_export
from kafkasniff.tables.parquet import TableWriter
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows.file_names import date_of
from kafkasniff.tables.rows.staged import SORT_KEYS, UNDATED, day_of

ORDERS: Final = {
    **SORT_KEYS,
    "records": ("api", "topic", "partition", "offset", "time", "connection_id", "exchange_id"),
}
"""The order of rows in files that a compaction has written; null is first."""


class Compaction(msgspec.Struct):
    """What a compaction did."""

    manifest: Manifest
    before: int = 0
    """Files that were replaced or removed."""
    after: int = 0
    """Files that replaced them."""
    bytes_before: int = 0
    bytes_after: int = 0
    removed: tuple[str, ...] = ()
    """Dates whose rows were removed."""


class _Files:
    """Some files of a table, as a query reads them."""

    def __init__(self, export: Export, table: str, paths: Sequence[str]) -> None:
        self._export = msgspec.structs.replace(export, tables={table: tuple(paths)})

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        return self._export.tables

    def batches(self, table: str, reading: TableReading, /) -> Iterator[pa.RecordBatch]:
        return self._export.batches(table, reading)


def compact(
    directory: str | os.PathLike[str],
    *,
    keep: timedelta | None = None,
    memory: int = MEMORY,
    now: datetime | None = None,
) -> Compaction:
    """Join the files of each date, table by table.

    `keep`: remove dates of which every moment is longer ago (`now` is the present by default). Rows without a date of
    their own stay. `memory`: bytes that sorting may take; more goes to a temporary folder.

    Raises UsageError if another process writes into it, or an interrupted run waits there; CaptureError if there is
    no export, or a file cannot be read; OutputError if one cannot be written.
    """
    name = os.fspath(directory)
    # Opening a folder that does not exist would make it.
    export = Export.open(name)
    with open_export(name) as target:
        manifest = target.manifest
        assert manifest is not None
        if has_checkpoint(target):
            raise UsageError(f"an interrupted run waits in {target.name}: run the same export again first")
        oldest = "" if keep is None else ((now or datetime.now(UTC)) - keep).strftime("%Y-%m-%d")
        done = Compaction(manifest)
        tables: dict[str, TableEntry] = {}
        removed: set[str] = set()
        with target.output():
            target.partial.remove_tree()
        for table, entry in manifest.tables.items():
            files: list[FileEntry] = []
            for (date, is_open), group in groupby(
                _by_date(entry.files), key=lambda file_entry: (date_of(file_entry.path), file_entry.open)
            ):
                old = [*group]
                if not is_open and date < oldest and date != day_of(UNDATED):
                    removed.add(date)
                    new: list[FileEntry] = []
                elif (
                    is_open or all(file_entry.compacted for file_entry in old) or (len(old) == 1 and table != "records")
                ):
                    files += old
                    continue
                else:
                    new = _joined(target, export, table, date, old, memory=memory)
                files += new
                done.before += len(old)
                done.after += len(new)
                done.bytes_before += sum(file_entry.bytes for file_entry in old)
                done.bytes_after += sum(file_entry.bytes for file_entry in new)
            tables[table] = TableEntry(sum(file.rows for file in files), sorted(files, key=lambda one: one.path))
        if done.before:
            state = target.state()
            if state is None:
                state = dump(Carried())
            done.manifest = target.replace(tables, state)
            done.removed = tuple(sorted(removed))
        return done


def _by_date(files: Sequence[FileEntry]) -> list[FileEntry]:
    return sorted(files, key=lambda file_entry: (date_of(file_entry.path), file_entry.open, file_entry.path))


def _joined(
    target: ExportTarget, export: Export, table: str, date: str, old: Sequence[FileEntry], *, memory: int
) -> list[FileEntry]:
    """Write the rows of files anew, in order."""
    keys = ", ".join(f'"{key}" NULLS FIRST' for key in ORDERS[table])
    source = _Files(export, table, [file_entry.path for file_entry in old])
    with (
        tempfile.TemporaryDirectory(prefix="kafkasniff-") as folder,
        Database(SqlLimits(folder, memory), [table]) as database,
    ):
        rows = database.run(database.plan(f"SELECT * FROM {table} ORDER BY {keys}"), [source])
        with (
            target.output(),
            TableWriter(
                table, target.partial.below(table, f"date={date}"), target.file_name, order=ORDERS[table]
            ) as writer,
        ):
            for batch in rows:
                writer.write(
                    pa.RecordBatch.from_arrays(
                        [column.cast(field.type) for column, field in zip(batch.columns, TABLES[table], strict=True)],
                        schema=TABLES[table],
                    )
                )
    written = [WrittenFile(path.relative_to(target.partial), count, size) for path, count, size in writer.files]
    found = sum(file.rows for file in written)
    # Nothing is replaced by less than it was.
    assert found == sum(file_entry.rows for file_entry in old), f"{table} of {date}: {found} rows"
    return [FileEntry(*file, target.run, compacted=True) for file in written]
