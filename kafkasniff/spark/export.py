"""`export --engine spark`: captures to an export, by Spark's tasks.

The manifest, the state between runs and the commit are those of `tables.exports`; either engine resumes an export of
the other. Tasks write their files below `DIR/.partial`, which all executors have to share, or into the object store. A
run that was killed is repeated from its start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.capture.formats.reader import BROKEN_KINDS
from kafkasniff.capture.timeline.locations import list_captures
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.export_manifest import read_manifest
from kafkasniff.spark.pipeline import SparkRun, describe, of_captures, parallelism
from kafkasniff.spark.session import runs_elsewhere, task_errors
from kafkasniff.spark.source import PlannedCaptures, look_at_captures, plan_looked_at, split_bytes
from kafkasniff.spark.table_rows import KINDS, Decided, WriteFiles
from kafkasniff.spark.tasks import TaskOutput, TaskReport, check_executors, output_of
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.captures import OnBadCapture, look_at_file
from kafkasniff.tables.exports.finalise import Finished, TablePartitions
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.run import ExportRun, Result, has_checkpoint
from kafkasniff.tables.exports.target import ExportTarget, open_export
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.file_names import is_table_file, run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkasniff.spark.lakehouse import LakeTables
    from kafkasniff.tls.keylog import KeyLog
    from kafkasniff.values.stage import ValueSchemas

SCHEMAS_NAMED: Final = 10
"""Problems of schemas that a run reports."""
_REPORT: Final = msgspec.msgpack.Decoder(TaskReport)


def export(
    spark: SparkSession,
    captures: Sequence[str],
    directory: str | os.PathLike[str],
    options: ExportOptions,
    *,
    given: Mapping[str, str] | None = None,
    keys: KeyLog | None = None,
    shards: int | None = None,
    memory: int | None = None,
    split_size: int | None = None,
    discard_state: bool = False,
    on_bad: OnBadCapture = "fail",
    lake: LakeTables | None = None,
    schemas: Callable[[], ValueSchemas] | None = None,
) -> Result:
    """Export the captures that are not in the export yet: paths, folders, patterns, remote addresses.

    `directory`: a folder, or an address in an object store (`open_export`). `given`: names by topic id; `keys`: TLS
    secrets, none of which are stored in the folder. `shards`: tasks of the first stage; `memory`: budget of each in
    bytes; `split_size`: bytes of captures that one task reads, by default those of `source.split_bytes`;
    `discard_state` and `on_bad`: as for `ExportRun`; `lake`: tables that get the rows of all runs that they lack;
    `schemas`: opens the schemas of keys and values, in each task. The executors need the captures, the folder, and
    folders and files of schemas, under the same paths.

    Raises CaptureError, OutputError, UsageError if the folder holds an export with other options, or a capture that has
    grown, and MissingPartError if decryption is not available.
    """
    if options.filters:
        raise UsageError("--engine spark does not support filters: filter the tables")
    with open_export(directory) as target, task_errors():
        run = ExportRun(target, options, on_bad=on_bad, discard_state=discard_state)
        if lake is not None:
            lake.check(target.manifest)
        files = list_captures(captures, by_name=True)
        split_size = split_size or split_bytes(sum(file.size for file in files))
        # A run of the other engine that was killed is discarded only once there is something to do.
        begun = not has_checkpoint(target)
        try:
            # Before the captures are looked at, which may take minutes.
            output = _new_output(target, spark) if begun else None
            describe(spark, "a look at the captures")
            looked_at = {one.look.path: one for one in look_at_captures(spark, files, split_size, run.exported)}
            result = run.choose(one.look for one in looked_at.values())
            if result is None:
                if output is None:
                    begun = True
                    output = _new_output(target, spark)
                planned = PlannedCaptures(spark, plan_looked_at([looked_at[path] for path in run.paths]), split_size)
                packets = of_captures(planned, options, run.names)
                with SparkRun(
                    packets,
                    options,
                    carried=run.carried(),
                    given=given,
                    problems=run.problems,
                    keys=keys,
                    shards=shards,
                    memory=memory,
                ) as stages:
                    broken = any(problem.kind in BROKEN_KINDS for problem in stages.run_problems)
                    made = write_files(target, output, stages, schemas)
                    result = run.commit(made, stages.summary, broken=broken, engine="spark")
        finally:
            if begun:
                target.discard()
        if lake is not None:
            lake.load(os.fspath(directory), result.manifest)
        return result


def unchanged(captures: Sequence[str], directory: str | os.PathLike[str], options: ExportOptions) -> Result | None:
    """The result of `export` if the folder has all captures already, which needs no session; None if it may not.

    Raises as `export`.
    """
    try:
        read_manifest(os.fspath(directory))
    except OSError:
        return None  # there is no export yet, and this makes none
    with open_export(directory) as target:
        if target.manifest is None or has_checkpoint(target):
            return None
        run = ExportRun(target, options)
        looks = (look_at_file(file, file.path, run.exported) for file in list_captures(captures, by_name=True))
        return Result(target.manifest) if all(run.exported.has(look.capture) for look in looks) else None


def _new_output(target: ExportTarget, spark: SparkSession) -> TaskOutput:
    """What tasks write to. Raises OutputError if it cannot be written, or an executor does not reach it."""
    target.discard()
    output = output_of(target)
    if runs_elsewhere(spark):
        describe(spark, "the output, as executors see it")
        check_executors(spark, output, parallelism(spark))
    return output


def write_files(
    target: ExportTarget, output: TaskOutput, run: SparkRun, schemas: Callable[[], ValueSchemas] | None = None
) -> Finished:
    """Write the tables of a run, in tasks, to `output_of(target)`; they are to be committed."""
    options = run.options
    kinds = {kind for table in options.tables for kind in KINDS[table]}

    def made(decided: Mapping[bool, Decided] | None) -> list[TaskReport]:
        write = WriteFiles(options, run.learned_facts, run.given, output, target.run, decided, schemas)
        return [_REPORT.decode(row["data"]) for row in run.in_parts(kinds).mapInArrow(write, "data binary").collect()]

    reports = made(None)
    decided = {
        open_: _decide(options, [report for report in reports if report.open == open_]) for open_ in (False, True)
    }
    problems = [problem for one in decided.values() for problem in one.problems]
    if problems:
        # Only now is it known which dates have the most rows.
        reports = made(decided)
    found: dict[bool, dict[str, list[WrittenFile]]] = {
        open_: {table: [] for table in options.tables} for open_ in (False, True)
    }
    for report in reports:
        for table, files in report.files.items():
            for file in files:
                if not is_table_file(file.path, table) or run_of(file.path) != target.run:
                    raise OutputError(f"a task of Spark wrote {file.path}, which is not a file of run {target.run}")
            found[report.open][table] += files
    # Tasks of different connections find the same ones.
    said = dict.fromkeys(problem for report in reports for problem in report.schema_problems)
    return Finished(found[False], found[True], dump(run.carry()), problems, [*said][:SCHEMAS_NAMED])


def _decide(options: ExportOptions, reports: Sequence[TaskReport]) -> Decided:
    """Which days of tables get partitions, by the row counts of all tasks."""
    days: dict[str, Counter[int]] = {table: Counter() for table in options.tables}
    for report in reports:
        for table, counts in report.days.items():
            days[table].update(counts)
    partitions = TablePartitions()
    own = {table: partitions.of(table, days[table]) for table in sorted(options.tables, key=TABLE_NAMES.index)}
    return Decided(own, tuple(partitions.problems), min((report.part for report in reports), default=0))
