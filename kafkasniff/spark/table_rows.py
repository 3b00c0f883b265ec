"""Stage 2: staged rows to rows of the tables, those of some connections in each task.

At this point all names, brokers and sessions of the run are known. Staged rows are put into files of the task, sorted
and finalized as in `export`; memory holds a window, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.spark.fetch_sessions import HELD
from kafkasniff.spark.shard_rows import read_block, values_of
from kafkasniff.spark.task_files import file_batch, file_reports, own_folder
from kafkasniff.spark.task_output import TaskOutput
from kafkasniff.spark.worker_settings import settle_worker
from kafkasniff.tables.exports.finalise import REST, final_rows, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import HeldSessions

__all__ = ["KINDS", "OUTPUT_ROWS", "STAGED_FOR", "Decided", "MakeRows", "WriteFiles"]

OUTPUT_ROWS: Final = 10_000
"""Rows handed to Spark at a time."""

KINDS: Final = {
    "exchanges": ("exchanges", HELD),
    "records": ("records",),
    "connections": ("connections",),
    "transport": ("transport",),
    # Some problems of exchanges are found when their names are known.
    "problems": ("exchanges", "problems"),
}
"""Kinds of stage 1's rows that a table is made from."""

_DONE: Final = "done"
_OPEN: Final = "open"


class _Staging:
    """Common part of the tasks of stage 2."""

    def __init__(self, options: ExportOptions, learned_facts: LearnedFacts, given: Mapping[str, str]) -> None:
        """`learned_facts`: of the whole run; `given`: names by topic id that need not be in the traffic."""
        self._options = options
        self._learned_facts = learned_facts
        self._given = dict(given)

    def _stage(self, batches: Iterable[pa.RecordBatch], folder: ConfinedPath) -> tuple[LearnedNames, HeldSessions]:
        """Write the staged rows of all batches below `folder`."""
        held = HeldSessions()
        files = {open_: StagedFiles(folder / name) for open_, name in ((False, _DONE), (True, _OPEN))}
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("kind", "open", "connection_id", "exchange_id")]
            for (kind, open_, *key), data in zip(
                zip(*columns, strict=True), values_of(batch.column("data")), strict=True
            ):
                if kind == HELD:
                    held.add((key[0], key[1]), data.to_pybytes())
                else:
                    files[open_].write(kind, self._wanted(kind, read_block(data)))
        for one in files.values():
            one.close()
        return LearnedNames(self._learned_facts, self._given), held

    def _wanted(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those rows of a block that are needed."""
        del table
        return rows


STAGED_FOR: Final = {
    # Other tables also have the problems of records.
    "exchanges": ("exchanges", "records"),
    "records": ("records",),
    "connections": ("connections",),
    "transport": ("transport",),
    "problems": ("records", "problems"),
}
"""Tables that have to be staged to get the rows of a table."""


class MakeRows(_Staging):
    """Staged rows to rows of one table, sorted within the task."""

    def __init__(
        self, options: ExportOptions, learned_facts: LearnedFacts, given: Mapping[str, str], table: str
    ) -> None:
        super().__init__(options, learned_facts, given)
        self._table = table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        settle_worker()
        with own_folder() as folder:
            names, held = self._stage(batches, folder)
            for table, _, found in final_rows(
                [folder / _DONE, folder / _OPEN],
                self._options,
                names=names,
                sessions=held,
                partitions=TablePartitions.none(),
                rest=folder / REST,
                tables=[name for name in KINDS[self._table] if name in self._options.tables],
            ):
                for batch in found:
                    if table == self._table:
                        for first in range(0, len(batch), OUTPUT_ROWS):
                            yield batch.slice(first, OUTPUT_ROWS)

    def _wanted(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        # Only exchanges that wait for names can have more problems.
        return rows if table == self._table else rows.filter(rows.column("_pending").is_valid())


class Decided(msgspec.Struct, frozen=True):
    """Partitions of a run with more dates than get a partition of their own, for ended or for open connections.

    The tasks cannot decide it: it takes the days that all of them have counted.
    """

    own: dict[str, frozenset[int]]
    """By table, the days that have a partition."""
    problems: tuple[Problem, ...]
    """How the remaining rows are recognized."""
    reporter: int
    """The part that writes the remaining rows."""


class WriteFiles(_Staging):
    """Staged rows to Parquet files in `output`, which all tasks have to reach.

    `decided`: by whether rows are `open`; without it each task decides on its own.
    """

    def __init__(  # noqa: PLR0917 - four of them are those of a run
        self,
        options: ExportOptions,
        learned_facts: LearnedFacts,
        given: Mapping[str, str],
        output: TaskOutput,
        run: int,
        decided: Mapping[bool, Decided] | None = None,
    ) -> None:
        super().__init__(options, learned_facts, given)
        self._output = output
        self._run = run
        self._decided = decided

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        settle_worker()
        yield from self.write(context.partitionId(), context.taskAttemptId(), batches)

    def write(self, part: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files of a part of the run. Failed and concurrent attempts do not interfere."""
        with own_folder() as folder:
            into = self._output.open(attempt, folder)
            first = self._output.file_name(self._run)
            names, held = self._stage(batches, folder)
            for number, (state, mark) in enumerate(((_DONE, ""), (_OPEN, "-open"))):
                name = f"{first}{mark}-{part:05}"
                partitions = self._partitions(part, open_=bool(number))
                written = finalise(
                    [folder / state],
                    into,
                    name,
                    self._options,
                    names=names,
                    sessions=held,
                    partitions=partitions,
                )
                self._output.deliver(into, [file for files in written.values() for file in files])
                found = file_reports(self._output, into, written, partitions, part=part, open_=bool(number))
                yield file_batch(found)

    def _partitions(self, part: int, *, open_: bool) -> TablePartitions:
        if self._decided is None:
            return TablePartitions()
        decided = self._decided[open_]
        return TablePartitions(decided.own, decided.problems if part == decided.reporter else ())
