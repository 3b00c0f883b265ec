"""Stage 2: staged rows to rows of the tables, those of some connections in each task.

At this point all names, brokers and sessions of the run are known. Staged rows are put into files of the task, sorted
and finalized as in `export`; memory holds a window, whatever the number of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.locations import FileSelection, find_captures
from kafkasniff.capture.timeline.source import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.spark.connections import HELD, TaskKeys, read_block
from kafkasniff.spark.pieces import values_of
from kafkasniff.spark.tasks import TaskOutput, TaskReport, own_folder, settle_worker
from kafkasniff.tables.exports.finalise import REST, TablePartitions, final_rows, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.exports.staging import new_stager, new_state, stage, stage_rest
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import HeldSessions, Sessions

if TYPE_CHECKING:
    from kafkasniff.tables.rows.decoded_values import DecodedValues
    from kafkasniff.values.stage import ValueSchemas

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
        for file in files.values():
            file.close()
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

    `decided`: by whether rows are `open`; without it each task decides on its own. `schemas`: opens those of keys and
    values in a task.
    """

    def __init__(  # noqa: PLR0917 - four of them are those of a run
        self,
        options: ExportOptions,
        learned_facts: LearnedFacts,
        given: Mapping[str, str],
        output: TaskOutput,
        run: int,
        decided: Mapping[bool, Decided] | None = None,
        schemas: Callable[[], ValueSchemas] | None = None,
    ) -> None:
        super().__init__(options, learned_facts, given)
        self._output = output
        self._run = run
        self._decided = decided
        self._schemas = schemas

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        settle_worker()
        reports = [msgspec.msgpack.encode(task_report) for task_report in self.write(context.partitionId(), batches)]
        yield pa.RecordBatch.from_pydict({"data": pa.array(reports, pa.binary())})

    def write(self, part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[TaskReport]:
        """Write the files of a part of the run. Failed and concurrent attempts do not interfere."""
        with own_folder() as folder:
            into = self._output.open(folder)
            first = self._output.file_name(self._run)
            names, held = self._stage(batches, folder)
            values = self._values()
            for open_, mark in ((False, ""), (True, "-open")):
                partitions = self._partitions(part, open_=open_)
                written = finalise(
                    [folder / (_OPEN if open_ else _DONE)],
                    into,
                    f"{first}{mark}-{part:05}",
                    self._options,
                    names=names,
                    sessions=held,
                    partitions=partitions,
                    rest=folder / REST,
                    values=values,
                )
                self._output.deliver(into, [file for files in written.values() for file in files])
                days = {table: dict(days) for table, days in partitions.days.items()}
                yield TaskReport(part, open_, written, days, values.problems if values is not None and open_ else [])

    def _values(self) -> DecodedValues | None:
        if self._schemas is None:
            return None
        from kafkasniff.tables.rows.decoded_values import DecodedValues

        return DecodedValues(self._schemas())

    def _partitions(self, part: int, *, open_: bool) -> TablePartitions:
        if self._decided is None:
            return TablePartitions()
        decided = self._decided[open_]
        return TablePartitions(decided.own, decided.problems if part == decided.reporter else ())


# -- a table straight from the data source -----------------------------------------------------------------------------
#
# With the option `table=exchanges`, for captures that are small.
#
# A reader has no shuffle, and what one connection says of names, brokers and fetch sessions counts for others. So one
# task reads everything, as `export` with one process does. `pipeline.decode` divides the work.

BODIES: Final = frozenset({"request_body", "response_body"})
"""Columns that are most of a table's bytes."""


def local_captures(paths: Sequence[str], selection: FileSelection) -> list[tuple[str, str]]:
    """Path and name of the captures that paths, folders and patterns name.

    Raises CaptureError as `find_captures` does, UsageError for one of another machine.
    """
    files = find_captures(paths, selection=selection)
    remote = [file.name for file in files if "://" in file.path]
    if remote:
        raise UsageError(f"{remote[0]}: for tables of captures elsewhere take kafkasniff.spark.pipeline.decode")
    return [(file.path, file.name) for file in files]


def local_key_log(path: str) -> str:
    """Where the task finds a key log.

    Raises UsageError where it cannot be read, MissingPartError as `TaskKeys` does.
    """
    TaskKeys(open_key_log(path))
    return os.path.abspath(path)


def scan_table(
    captures: Sequence[tuple[str, str]],
    table: str,
    columns: Sequence[str],
    *,
    ports: tuple[int, ...],
    show_secrets: bool,
    keylog: str | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a table with these columns, sorted within each date.

    `captures`: path and name of each; `keylog`: a file with secrets of TLS. Raises CaptureError where a capture cannot
    be opened, and what `local_key_log` does.
    """
    bodies = not BODIES.isdisjoint(columns)
    options = ExportOptions(tables=STAGED_FOR[table], bodies=bodies, ports=ports, show_secrets=show_secrets)
    with own_folder() as folder:
        learned_facts = LearnedFacts()
        state = new_state(options, Catalog(learned_facts=learned_facts), sessions=False)
        if keylog is not None:
            keys = open_key_log(keylog)
            TaskKeys(keys)  # a task without the means to decrypt must not look like one without keys
            state.inspector.follow_key_log(keys)
        files = StagedFiles(folder)
        stager = new_stager(state, options, None, files)
        names = tuple(name for _, name in captures)
        with open_captures([path for path, _ in captures]) as source:
            for batch in source:
                batch.captures = names
                for part in parts(batch):
                    stage(state, stager, part)
        stage_rest(state, stager, files)
        for _, _, batches in final_rows(
            [folder],
            options,
            names=LearnedNames(learned_facts),
            sessions=Sessions(),
            partitions=TablePartitions.none(),
            rest=folder / REST,
            tables=[table],
        ):
            for rows in batches:
                for start in range(0, len(rows), OUTPUT_ROWS):
                    yield rows.slice(start, OUTPUT_ROWS).select(list(columns))
