"""Step 2: writes Parquet files from staged ones, with names resolved and rows in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.model import Body, Problem
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.merge import WINDOW_BYTES, merged
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import MappedFiles, StagedTable
from kafkasniff.tables.parquet import ROW_GROUP_BYTES, TableWriter
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.problems import ProblemRows
from kafkasniff.tables.rows.resolve import LearnedNames, Resolver
from kafkasniff.tables.rows.sessions import SessionSource
from kafkasniff.tables.rows.staged import STAGED, UNDATED, day_of

if TYPE_CHECKING:
    from kafkasniff.tables.rows.decoded_values import DecodedValues

__all__ = ["RELEASE_BYTES", "final_rows", "finalise"]

REST: Final = "rest"
"""In the folder of the tables: rows of several dates that go to one partition, while they are sorted."""

MEMORY_PART: Final = 16
"""The largest part of the memory budget for a row group, and for a window of merged rows."""
RELEASE_BYTES: Final = 2 << 20
"""Bytes of staged rows that are read before their pages are released. The kernel maps several pages around each one
that is read, for each column of each staged batch, so that far more are resident than were read."""


def finalise(
    staged: list[ConfinedPath],
    into: ConfinedPath,
    name: str,
    options: ExportOptions,
    *,
    names: LearnedNames,
    sessions: SessionSource,
    partitions: TablePartitions,
    memory: int = DEFAULT_MEMORY,
    rest: ConfinedPath | None = None,
    values: DecodedValues | None = None,
) -> dict[str, list[WrittenFile]]:
    """Write the tables of staged folders to `into`, as `TABLE/date=DATE/NAME-NNNNN.parquet`.

    Returns the files of each table. These rows advance `sessions`. A row group and a window take at
    most a sixteenth of `memory` each. `rest` and `values`: as for `final_rows`, `rest` is by default in `into`. Raises
    OSError.
    """
    files: dict[str, list[WrittenFile]] = {table: [] for table in options.tables}
    rest = into / REST if rest is None else rest
    every = final_rows(
        staged,
        options,
        names=names,
        sessions=sessions,
        partitions=partitions,
        rest=rest,
        memory=memory,
        values=values,
    )
    group = min(ROW_GROUP_BYTES, memory // MEMORY_PART)
    for table, parts in groupby(every, key=itemgetter(0)):
        # Rows without a date of their own come between the rows of the dates.
        with TableWriter(table, _folder(into, table, UNDATED), name, group) as undated:
            for _, day, batches in parts:
                if day == UNDATED:
                    undated.write_all(batches)
                    continue
                with TableWriter(table, _folder(into, table, day), name, group) as writer:
                    writer.write_all(batches)
                files[table] += _written(writer, into)
        files[table] += _written(undated, into)
    rest.remove_tree()
    return files


def _written(writer: TableWriter, into: ConfinedPath) -> list[WrittenFile]:
    return [WrittenFile(path.relative_to(into), rows, size) for path, rows, size in writer.files]


def _folder(into: ConfinedPath, table: str, day: int) -> ConfinedPath:
    return into.below(table, f"date={day_of(day)}")


def final_rows(
    staged: list[ConfinedPath],
    options: ExportOptions,
    *,
    names: LearnedNames,
    sessions: SessionSource,
    partitions: TablePartitions,
    rest: ConfinedPath,
    tables: Iterable[str] | None = None,
    memory: int = DEFAULT_MEMORY,
    values: DecodedValues | None = None,
) -> Iterator[tuple[str, int, Iterator[pa.RecordBatch]]]:
    """(table, day, rows in order) of staged folders; consume the rows of one before taking the next.

    Days come in order, so that sessions are followed in the order of their requests. UNDATED may come several times,
    for rows between the days that have partitions. `rest`: a folder for rows that are sorted again; `tables`: only
    these, unless all of `options`; `values`: decodes keys and values of records.
    """
    window = min(WINDOW_BYTES, memory // MEMORY_PART)
    resolver = Resolver(names, sessions, _dumps, options.payload, values)
    # Exchanges first: problems found in them are rows of the table `problems`.
    for table in sorted(options.tables if tables is None else tables, key=TABLE_NAMES.index):
        rows = StagedTable(staged, table)
        if table == "problems":
            rows.add(pa.RecordBatch.from_pylist(resolver.found, schema=STAGED["problems"]))
            own = partitions.of(table, rows.days(resolver.worth_reporting))
            rows.add(_rows_of(partitions.problems))
        else:
            own = partitions.of(table, rows.days())
        rest.remove_tree()
        for day, batches in rows.parts(own, rest):
            some = rows.files.released(batches)
            windows = merged(some, table, window, rows.files.release)
            yield table, day, _resolved(table, windows, resolver, rows.files)
        if table == "exchanges":
            sessions.answer()


def _resolved(
    table: str, windows: Iterator[pa.RecordBatch], resolver: Resolver, files: MappedFiles
) -> Iterator[pa.RecordBatch]:
    read = 0
    for window in windows:
        yield from resolver.rows(table, window)
        read += window.nbytes
        if read > RELEASE_BYTES:
            files.release()
            read = 0


def _rows_of(problems: Iterable[Problem]) -> pa.RecordBatch:
    rows = ProblemRows()
    for problem in problems:
        rows.append(problem)
    return rows.take()


def _dumps(body: Body) -> str:
    return body_json(body)
