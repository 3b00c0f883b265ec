"""Step 2: writes Parquet files from staged ones, with names resolved and rows in order, and makes the next state."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Self

import msgspec
import pyarrow as pa

from kafkasniff.model import Body, Problem
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.tables.checkpoint import Carried, dump
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import ShardResult
from kafkasniff.tables.exports.staged import WINDOW_BYTES, MappedFiles, StagedTable, merged
from kafkasniff.tables.parquet import ROW_GROUP_BYTES, TableWriter
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.problems import ProblemRows
from kafkasniff.tables.rows.resolve import LearnedNames, Resolver
from kafkasniff.tables.rows.sessions import SessionSource
from kafkasniff.tables.rows.staged import STAGED, UNDATED, day_of

if TYPE_CHECKING:
    from kafkasniff.tables.rows.decoded_values import DecodedValues

# -- partitions --------------------------------------------------------------------------------------------------------
#
# Which dates of a table have partitions of their own: a bounded number, whatever times packets claim.
#
# Dates are counted after all rows are staged. So the order of rows, the process that staged them and an interruption
# of the run do not affect which ones get partitions. Those with the most rows do: a few packets with wrong clocks
# cannot displace the rest.


MAX_DATES: Final = 400
"""Dates of a table with a partition of their own in one run: those of a year. Each costs a file of at least 50 kB
and 10 ms, and a second one for rows that were unfinished when the captures ended, which are counted separately."""

DATE_BOUND: Final = "date-bound"

Days = Mapping[int, int]
"""Rows by day, which is numbered from 1970-01-01."""


def partitioned(days: Days) -> frozenset[int]:
    """The days that get a partition; all others share the partition of rows without a time, which always exists."""
    dated = [day for day in days if day != UNDATED]
    if len(dated) > MAX_DATES:
        dated.sort(key=lambda day: (-days[day], day))
    return frozenset(dated[:MAX_DATES])


class TablePartitions:
    """Decides for one table after the other, or repeats an earlier decision.

    `decided`: the days of each table, and `problems`, if they were counted elsewhere.
    """

    def __init__(self, decided: Mapping[str, frozenset[int]] | None = None, problems: Sequence[Problem] = ()) -> None:
        self._decided = decided
        self.days: dict[str, Days] = {}
        """Row counts by table."""
        self.problems = list(problems)
        """Reports of rows without a partition of their own; for the table `problems`, which comes last."""

    @classmethod
    def none(cls) -> Self:
        """For a consumer of a table's rows in one piece, regardless of their dates."""
        return cls(dict.fromkeys(TABLE_NAMES, frozenset()))

    def of(self, table: str, days: Days) -> frozenset[int]:
        """The days of a table that have a partition of their own; `days`: of all its rows."""
        self.days[table] = days
        if self._decided is not None:
            return self._decided[table]
        own = partitioned(days)
        moved = sorted(day for day in days if day not in own and day != UNDATED)
        if moved:
            rows = sum(days[day] for day in moved)
            self.problems.append(
                Problem(
                    DATE_BOUND,
                    f"{rows:,} rows of {table}, from {len(moved):,} dates between {day_of(moved[0])} and "
                    f"{day_of(moved[-1])}, are in the partition date={day_of(UNDATED)}: more than {MAX_DATES} dates "
                    "have rows, and those with the most are partitioned",
                )
            )
        return own


# -- rows to files -----------------------------------------------------------------------------------------------------

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


# -- the end of a run --------------------------------------------------------------------------------------------------


class Finished(msgspec.Struct):
    """A run that is ready to be committed."""

    written: dict[str, list[WrittenFile]]
    """The files of each table."""
    unfinished: dict[str, list[WrittenFile]]
    """Files of rows that were not over at the end."""
    state: bytes
    """A dumped `Carried`."""
    problems: list[Problem] = []
    """Problems found when rows were put into partitions; they are rows of the tables, too."""
    schema_problems: list[str] = []
    """Problems of schemas that tasks of Spark have found."""

    @property
    def files(self) -> list[WrittenFile]:
        """All files."""
        return [file for part in (self.written, self.unfinished) for files in part.values() for file in files]


def finish(
    into: ConfinedPath,
    name: str,
    options: ExportOptions,
    carried: Carried,
    results: Sequence[ShardResult],
    *,
    given: Mapping[str, str],
    memory: int = DEFAULT_MEMORY,
    values: DecodedValues | None = None,
) -> Finished:
    """Write a run's tables to `into`.

    `name`: what the names of the files begin with; `carried`: state of the run before, which is advanced; `given`:
    names by topic id; `memory`: the run's budget in bytes; `values`: decodes keys and values of records. Raises OSError
    if a file cannot be written.
    """
    # Return the memory of staging to the system; otherwise the peak would be the sum of both steps.
    gc.collect()
    pa.default_memory_pool().release_unused()
    for result in results:
        carried.learned_facts.merge(result.learned_facts)
    names = LearnedNames(carried.learned_facts, given)
    sessions = carried.sessions
    staged = [path for result in results for path in result.staged]
    done, open_ = TablePartitions(), TablePartitions()
    written = finalise(
        staged,
        into,
        name,
        options,
        names=names,
        sessions=sessions,
        partitions=done,
        memory=memory,
        values=values,
    )
    order = max(result.order for result in results)
    state = dump(Carried([result.state for result in results], sessions, carried.learned_facts, order))
    # Unfinished rows: the next run makes them again, from the present state of the sessions.
    rest = [result.unfinished for result in results]
    unfinished = finalise(
        rest,
        into,
        f"{name}-open",
        options,
        names=names,
        sessions=sessions,
        partitions=open_,
        memory=memory,
        values=values,
    )
    return Finished(written, unfinished, state, [*done.problems, *open_.problems])
