"""Step 2: staged files to Parquet files, with names resolved, in order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from kafkasniff.exports.merge import in_order, merged
from kafkasniff.exports.staged import read_staged, staged_dates
from kafkasniff.model import Body
from kafkasniff.rows import TABLE_NAMES
from kafkasniff.rows.resolve import Names, Resolver, Sessions
from kafkasniff.rows.staged import DAY_NS, STAGED, day_of
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.sinks.parquet import TableWriter

__all__ = ["finalise"]


def finalise(
    staged: list[Path], into: Path, name: str, *, tables: Iterable[str], names: Names, sessions: Sessions
) -> dict[str, list[tuple[Path, int]]]:
    """Write the tables of staged folders below `into`, as `TABLE/date=DATE/NAME-NNNNN.parquet`.

    Returns the files of each table with their rows. `sessions` goes on with these rows. Raises OSError.
    """
    resolver = Resolver(names, sessions, _dumps)
    files: dict[str, list[tuple[Path, int]]] = {}
    # Exchanges first: what they turn up goes to the problems.
    for table in sorted(tables, key=TABLE_NAMES.index):
        found = files[table] = []
        more = _by_date(resolver.found) if table == "problems" else {}
        for date in sorted({*staged_dates(staged, table), *more}):
            batches = list(read_staged(staged, table, date))
            if date in more:
                batches.append(in_order(more[date], table))
            with TableWriter(table, into / table / f"date={date}", name) as writer:
                for window in merged(batches, table):
                    writer.write_all(resolver.rows(table, window))
            found += writer.files
        if table == "exchanges":
            sessions.answer()
    return files


def _by_date(rows: list[dict[str, object]]) -> dict[str, pa.RecordBatch]:
    dates: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        time_ns = row["time_ns"]
        dates.setdefault(day_of((time_ns if isinstance(time_ns, int) else 0) // DAY_NS), []).append(row)
    return {date: pa.RecordBatch.from_pylist(found, schema=STAGED["problems"]) for date, found in dates.items()}


def _dumps(body: Body) -> str:
    return body_json(body)
