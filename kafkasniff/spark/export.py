"""`export --engine spark`: captures to an export, by Spark's tasks.

The manifest and the state between runs are those of `tables.exports`; either engine resumes an export of the other.
Tasks write their files below `DIR/.partial`, which all executors have to share, or into the object store; a run takes
effect with its manifest. A run that was killed is repeated from its start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from kafkasniff.capture.formats.reader import BROKEN_KINDS
from kafkasniff.capture.timeline.locations import list_captures
from kafkasniff.errors import UsageError
from kafkasniff.runtime.export_manifest import read_manifest
from kafkasniff.spark.failures import task_errors
from kafkasniff.spark.planning import look_at_captures, plan_looked_at
from kafkasniff.spark.reading import split_bytes
from kafkasniff.spark.run import SparkRun, describe, parallelism, run_captures
from kafkasniff.spark.session import runs_elsewhere
from kafkasniff.spark.shared_folder import share
from kafkasniff.spark.source import PlannedCaptures
from kafkasniff.spark.stored_output import StoredOutput
from kafkasniff.spark.table_rows import KINDS, Decided, WriteFiles
from kafkasniff.spark.tables import ddl
from kafkasniff.spark.task_files import FILES, FileReport
from kafkasniff.spark.task_output import TaskOutput, check_executors
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.bad_captures import OnBadCapture, sort_out
from kafkasniff.tables.exports.beginning import check_no_stream, check_options, read_carried
from kafkasniff.tables.exports.captures import Exported, ManifestCapture, look_at_file, new_captures
from kafkasniff.tables.exports.manifest import Manifest, WrittenFile
from kafkasniff.tables.exports.opening import open_export
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.run import Result, has_checkpoint, nothing_new
from kafkasniff.tables.exports.store import ExportStore
from kafkasniff.tables.exports.target import ExportTarget
from kafkasniff.tables.rows import TABLE_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkasniff.spark.lakehouse import LakeTables
    from kafkasniff.tls.keylog import KeyLog

__all__ = ["export", "task_output", "unchanged", "write_run"]


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
) -> Result:
    """Export the captures that are not in the export yet: paths, folders, patterns, remote addresses.

    `directory`: a folder, or an address in an object store (`tables.exports.opening`). `given`: names by topic id;
    `keys`: TLS secrets, none of which are stored in the folder. `shards`: tasks of the first stage; `memory`: budget of
    each in bytes; `split_size`: bytes of captures that one task reads, by default those of `reading.split_bytes`;
    `discard_state`: do not resume connections that were open when the last run ended; their rows stay as they are;
    `on_bad`: what to do about captures that are empty or no captures (`tables.exports.bad_captures`); `lake`: tables
    that get the rows of all runs that they lack. The executors need the captures, and the folder, under the same paths.

    Raises CaptureError, OutputError, UsageError if the folder holds an export with other options, or a capture that has
    grown, and MissingPartError if decryption is not available.
    """
    if options.filters:
        raise UsageError("--engine spark does not support filters: filter the tables")
    with open_export(directory) as target, task_errors():
        manifest = target.manifest
        if manifest is not None:
            check_options(manifest, options, target.name)
            check_no_stream(manifest, target.name)
        if lake is not None:
            lake.check(manifest)
        files = list_captures(captures, by_name=True)
        split_size = split_size or split_bytes(sum(file.size for file in files))
        parallel = parallelism(spark)
        # A run of the other engine that was killed is discarded only once there is something to do.
        begun = not has_checkpoint(target)
        try:
            # Before the captures are looked at, which may take minutes.
            output = _new_output(target, spark, parallel) if begun else None
            exported = Exported() if manifest is None else Exported(manifest.captures, manifest.quarantined)
            describe(spark, "a look at the captures")
            looked_at = {one.look.path: one for one in look_at_captures(spark, files, split_size, exported)}
            found = sort_out((one.look for one in looked_at.values()), on_bad, manifest)
            new = new_captures(found.good, [] if manifest is None else manifest.captures)
            if not new and manifest is not None:
                if lake is not None:
                    lake.load(os.fspath(directory), manifest)
                return nothing_new(manifest, found)
            before = [one.name for one in ([] if manifest is None else manifest.captures)]
            if output is None:
                begun = True
                output = _new_output(target, spark, parallel)
            plan = plan_looked_at([looked_at[look.path] for look in new])
            opened = PlannedCaptures(spark, plan, split_size)

            with run_captures(
                opened,
                options,
                carried=read_carried(target, discard=discard_state),
                before=before,
                given=given,
                problems=found.problems,
                keys=keys,
                shards=shards,
                parallel=parallel,
                memory=memory,
            ) as run:
                broken = bool(found.bad) or any(problem.kind in BROKEN_KINDS for problem in run.problems)
                written, rows, notices = write_run(
                    target,
                    output,
                    run,
                    [look.capture for look in new],
                    continues=not discard_state,
                    quarantined=found.bad if on_bad == "quarantine" else (),
                )
                skipped = tuple(problem.detail for problem in found.problems)
                result = Result(written, len(new), rows, run.summary, broken, skipped=skipped, notices=notices)
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
        manifest = target.manifest
        if manifest is None or has_checkpoint(target):
            return None
        check_options(manifest, options, target.name)
        check_no_stream(manifest, target.name)
        exported = Exported(manifest.captures, manifest.quarantined)
        looks = (look_at_file(file, file.path, exported) for file in list_captures(captures, by_name=True))
        return Result(manifest) if all(exported.has(look.capture) for look in looks) else None


def _new_output(target: ExportTarget, spark: SparkSession, parallel: int) -> TaskOutput:
    target.discard()
    return task_output(target, spark, parallel)


def task_output(target: ExportTarget, spark: SparkSession, parallel: int, *, check: bool = True) -> TaskOutput:
    """What tasks write to; `parallel`: how many of them run at once.

    Raises OutputError if it cannot be written, or, with `check`, if an executor elsewhere does not reach it.
    """
    output: TaskOutput
    if isinstance(target, ExportStore):
        output = StoredOutput(target.location, target.run)
    else:
        with target.output():
            output = share(target.partial)
    if check and runs_elsewhere(spark):
        describe(spark, "the output, as executors see it")
        check_executors(spark, output, parallel)
    return output


def write_run(
    target: ExportTarget,
    output: TaskOutput,
    run: SparkRun,
    captures: Sequence[ManifestCapture],
    *,
    batch: int | None = None,
    continues: bool = True,
    quarantined: Sequence[ManifestCapture] = (),
) -> tuple[Manifest, dict[str, int], tuple[str, ...]]:
    """Write the tables of a run and commit them.

    Returns the manifest, the run's rows by table, and notices about the run and about its partitions.

    `output`: result of `task_output`; `captures`: the new ones; `batch`: the number of a stream's batch; `continues`
    and `quarantined`: as for `ExportTarget.commit`.
    """
    options = run.options
    made, notices = _make_files(target, output, run)
    found: dict[bool, dict[str, list[WrittenFile]]] = {
        open_: {table: [] for table in options.tables} for open_ in (False, True)
    }
    with target.output():
        for one in made:
            path = output.take(target.partial, one.path or "", one.table)
            found[one.open][one.table].append(WrittenFile(path, one.rows or 0, one.size or 0))
        output.clear(target.partial)
        manifest = target.commit(
            options,
            captures,
            found[False],
            found[True],
            dump(run.carry()),
            engine="spark",
            continues=continues,
            batch=batch,
            quarantined=quarantined,
        )
    rows = {table: sum(file.rows for part in found.values() for file in part[table]) for table in options.tables}
    return manifest, rows, notices


def _make_files(target: ExportTarget, output: TaskOutput, run: SparkRun) -> tuple[list[FileReport], tuple[str, ...]]:
    """Write the files of a run in tasks; returns reports on all files, and on dates without partitions."""
    options = run.options
    kinds = {kind for table in options.tables for kind in KINDS[table]}

    def made(decided: Mapping[bool, Decided] | None) -> list[FileReport]:
        write = WriteFiles(options, run.learned_facts, run.given, output, target.run, decided)
        found = run.in_parts(kinds).mapInArrow(write, ddl(FILES)).collect()
        return [FileReport(**row.asDict()) for row in found]

    reports = made(None)
    decided = {open_: _decide(options, [one for one in reports if one.open == open_]) for open_ in (False, True)}
    problems = [problem for one in decided.values() for problem in one.problems]
    if problems:
        # Only now is it known which dates have the most rows.
        with target.output():
            output.clear(target.partial)
        reports = made(decided)
    return [one for one in reports if one.path is not None], tuple(problem.detail for problem in problems)


def _decide(options: ExportOptions, reports: Sequence[FileReport]) -> Decided:
    """Which days of tables get partitions, by the row counts of all tasks."""
    days: dict[str, Counter[int]] = {table: Counter() for table in options.tables}
    for one in reports:
        if one.days is not None:
            days[one.table].update(msgspec.msgpack.decode(one.days, type=dict[int, int]))
    partitions = TablePartitions()
    own = {table: partitions.of(table, days[table]) for table in sorted(options.tables, key=TABLE_NAMES.index)}
    return Decided(own, tuple(partitions.problems), min((one.part for one in reports), default=0))
