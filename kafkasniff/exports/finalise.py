"""Step 2: staged files to Parquet files, with names resolved, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from kafkasniff.confined import ConfinedPath
from kafkasniff.exports.merge import in_order, merged
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.staged import MappedFiles, read_staged, staged_dates
from kafkasniff.model import Body
from kafkasniff.rows import TABLE_NAMES
from kafkasniff.rows.resolve import Names, Resolver
from kafkasniff.rows.sessions import SessionSource
from kafkasniff.rows.staged import DAY_NS, STAGED, day_of
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.sinks.parquet import TableWriter

__all__ = ["RELEASE_BYTES", "final_rows", "finalise"]

RELEASE_BYTES: Final = 4 << 20
"""Bytes of staged rows that are read before their pages are let go of. The kernel maps several pages around each that
is asked for, of each column of each staged batch, so that far more are resident than were read."""


def finalise(
    staged: list[ConfinedPath],
    into: ConfinedPath,
    name: str,
    options: ExportOptions,
    *,
    names: Names,
    sessions: SessionSource,
) -> dict[str, list[tuple[ConfinedPath, int]]]:
    """Write the tables of staged folders below `into`, as `TABLE/date=DATE/NAME-NNNNN.parquet`.

    Returns the files of each table with their rows. `sessions` goes on with these rows. Raises OSError.
    """
    files: dict[str, list[tuple[ConfinedPath, int]]] = {table: [] for table in options.tables}
    for table, date, batches in final_rows(staged, options, names=names, sessions=sessions):
        with TableWriter(table, into.below(table, f"date={date}"), name) as writer:
            writer.write_all(batches)
        files[table] += writer.files
    return files


def final_rows(
    staged: list[ConfinedPath],
    options: ExportOptions,
    *,
    names: Names,
    sessions: SessionSource,
    tables: Iterable[str] | None = None,
) -> Iterator[tuple[str, str, Iterator[pa.RecordBatch]]]:
    """(table, date, rows in order) of staged folders; each to be gone through before the next is asked for.

    `tables`: only these, if not all of `options`.
    """
    resolver = Resolver(names, sessions, _dumps, options.payload)
    # Exchanges first: what they turn up goes to the problems.
    for table in sorted(options.tables if tables is None else tables, key=TABLE_NAMES.index):
        more = _by_date(resolver.found) if table == "problems" else {}
        for date in sorted({*staged_dates(staged, table), *more}):
            files = MappedFiles()
            batches = list(read_staged(staged, table, date, files))
            if date in more:
                batches.append(in_order(more[date], table))
            yield table, date, _resolved(table, merged(batches, table), resolver, files)
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


def _by_date(rows: list[dict[str, object]]) -> dict[str, pa.RecordBatch]:
    dates: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        time_ns = row["time_ns"]
        dates.setdefault(day_of((time_ns if isinstance(time_ns, int) else 0) // DAY_NS), []).append(row)
    return {date: pa.RecordBatch.from_pylist(found, schema=STAGED["problems"]) for date, found in dates.items()}


def _dumps(body: Body) -> str:
    return body_json(body)
