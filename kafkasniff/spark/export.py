"""`export --engine spark`: captures to an export, by Spark's tasks.

The folder, its manifest and the state between runs are those of `tables.exports`; either engine resumes an export of
the other. Tasks write their files below `DIR/.partial`, which all executors have to reach; a run takes effect with
its manifest. A run that was killed is repeated from its start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.capture.formats.reader import BROKEN_KINDS
from kafkasniff.capture.timeline.locations import find_captures, is_remote
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.spark.failures import task_errors
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.run import KINDS, SparkRun, describe, parallelism, run_captures
from kafkasniff.spark.shared_folder import SharedFolder, check_executors, share
from kafkasniff.spark.source import open_files
from kafkasniff.spark.table_rows import FILES, Decided, WriteFiles
from kafkasniff.spark.tables import ddl
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.bad_captures import OnBadCapture, sort_out
from kafkasniff.tables.exports.beginning import check_no_stream, check_options, read_carried
from kafkasniff.tables.exports.captures import CaptureFile, look_at_file, new_captures
from kafkasniff.tables.exports.folder import ExportFolder, Manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.run import Result, nothing_new
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.file_names import is_table_file

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from kafkasniff.tls.keylog import KeyLog

__all__ = ["export", "share_folder", "write_run"]

_ATTEMPT: Final = re.compile(r"attempt-\d{1,20}", re.ASCII)
"""In `.partial`: the files of one task, in a folder of its own."""


def export(
    spark: SparkSession,
    captures: Sequence[str],
    directory: Path,
    options: ExportOptions,
    *,
    given: Mapping[str, str] | None = None,
    keys: KeyLog | None = None,
    shards: int | None = None,
    memory: int | None = None,
    split_size: int = SPLIT_BYTES,
    discard_state: bool = False,
    on_bad: OnBadCapture = "fail",
) -> Result:
    """Export the captures that are not in the folder yet: paths, folders, patterns, remote addresses.

    `given`: names by topic id; `keys`: TLS secrets, none of which are stored in the folder. `shards`: tasks of the
    first stage; `memory`: budget of each in bytes; `split_size`: bytes of a capture that one task reads;
    `discard_state`: do not resume connections that were open when the last run ended; their rows stay as they are;
    `on_bad`: what to do about captures that are empty or no captures (`tables.exports.bad_captures`). The executors
    need the captures, and the folder, under the same paths.

    Raises CaptureError, OutputError, UsageError if the folder holds an export with other options, or a capture that
    has grown, and MissingPartError if decryption is not available.
    """
    if options.filters:
        raise UsageError("filters are for --engine local: with Spark, filter the tables")
    with ExportFolder(directory) as folder, task_errors():
        manifest = folder.manifest
        if manifest is not None:
            check_options(manifest, options, directory)
            check_no_stream(manifest, directory)
        files = {file.path: file for file in find_captures(captures, by_name=True)}
        remote = any(map(is_remote, files))
        found = sort_out(
            lambda file: look_at_file(file, file.path), list(files.values()), on_bad, manifest, remote=remote
        )
        new = new_captures(found.good, [] if manifest is None else manifest.captures)
        if not new and manifest is not None:
            return nothing_new(manifest, found)
        before = [one.name for one in ([] if manifest is None else manifest.captures)]
        carried = read_carried(folder, discard=discard_state)
        folder.discard()
        parallel = parallelism(spark)
        try:
            shared = share_folder(folder, spark, parallel)
            opened = open_files(spark, [files[path] for path, _ in new], split_size=split_size)
            with run_captures(
                opened,
                options,
                carried=carried,
                before=before,
                given=given,
                problems=found.problems,
                keys=keys,
                shards=shards,
                parallel=parallel,
                memory=memory,
            ) as run:
                broken = bool(found.bad) or any(problem.kind in BROKEN_KINDS for problem in run.problems)
                manifest, rows, notices = write_run(
                    folder,
                    shared,
                    run,
                    [capture for _, capture in new],
                    goes_on=not discard_state,
                    quarantined=found.bad if on_bad == "quarantine" else (),
                )
        finally:
            folder.discard()
        skipped = tuple(problem.detail for problem in found.problems)
        return Result(manifest, len(new), rows, run.summary, broken, skipped=skipped, notices=notices)


def share_folder(folder: ExportFolder, spark: SparkSession, parallel: int, *, check: bool = True) -> SharedFolder:
    """The folder that tasks write to; `parallel`: how many of them run at once.

    Raises OutputError if it cannot be written, or, with `check`, if an executor does not reach it.
    """
    with folder.output():
        shared = share(folder.partial)
    if check:
        describe(spark, "the output folder, as executors see it")
        check_executors(spark, shared, parallel)
    return shared


def write_run(
    folder: ExportFolder,
    shared: SharedFolder,
    run: SparkRun,
    captures: Sequence[CaptureFile],
    *,
    batch: int | None = None,
    goes_on: bool = True,
    quarantined: Sequence[CaptureFile] = (),
) -> tuple[Manifest, dict[str, int], tuple[str, ...]]:
    """Write the tables of a run and commit them to the folder.

    Returns the manifest, the run's rows by table, and notices about the run and about its partitions.

    `shared`: result of `share_folder`; `captures`: the new ones; `batch`: the number of a stream's batch; `goes_on` and
    `quarantined`: as for `ExportFolder.commit`.
    """
    options = run.options
    partial = folder.partial
    made, notices = _make_files(folder, shared, run)
    found: dict[bool, dict[str, list[tuple[ConfinedPath, int]]]] = {
        open_: {table: [] for table in options.tables} for open_ in (False, True)
    }
    with folder.output():
        for row in made:
            attempt, name = _written(row["path"], partial, row["table"])
            place = partial.below(*name.split("/"))
            partial.below(attempt, *name.split("/")).move_to(place)
            found[row["open"]][row["table"]].append((place, row["rows"]))
        _remove_attempts(partial)
        manifest = folder.commit(
            options,
            captures,
            found[False],
            found[True],
            dump(run.carry()),
            engine="spark",
            goes_on=goes_on,
            batch=batch,
            quarantined=quarantined,
        )
    rows = {table: sum(count for part in found.values() for _, count in part[table]) for table in options.tables}
    return manifest, rows, (*run.notices, *notices)


def _make_files(folder: ExportFolder, shared: SharedFolder, run: SparkRun) -> tuple[list[Row], tuple[str, ...]]:
    """Write the files of a run in tasks; returns their reports on files (`FILES`), and on dates without partitions."""
    options, partial = run.options, folder.partial
    kinds = {kind for table in options.tables for kind in KINDS[table]}

    def made(decided: Mapping[bool, Decided] | None) -> list[Row]:
        write = WriteFiles(options, run.learned_facts, run.given, shared, folder.run, decided)
        return run.in_parts(kinds).mapInArrow(write, ddl(FILES)).collect()

    rows = made(None)
    decided = {open_: _decide(options, [row for row in rows if row["open"] == open_]) for open_ in (False, True)}
    problems = [problem for one in decided.values() for problem in one.problems]
    if problems:
        # Only now is it known which dates have the most rows.
        with folder.output():
            _remove_attempts(partial)
        rows = made(decided)
    return [row for row in rows if row["path"] is not None], tuple(problem.detail for problem in problems)


def _decide(options: ExportOptions, rows: Sequence[Row]) -> Decided:
    """Which days of tables get partitions, by the row counts of all tasks."""
    days: dict[str, Counter[int]] = {table: Counter() for table in options.tables}
    for row in rows:
        if row["days"] is not None:
            days[row["table"]].update(msgspec.msgpack.decode(row["days"], type=dict[int, int]))
    partitions = TablePartitions()
    own = {table: partitions.of(table, days[table]) for table in sorted(options.tables, key=TABLE_NAMES.index)}
    return Decided(own, tuple(partitions.problems), min((row["part"] for row in rows), default=0))


def _remove_attempts(partial: ConfinedPath) -> None:
    for left in partial.names():
        if _ATTEMPT.fullmatch(left):
            (partial / left).remove_tree()


def _written(path: str, partial: ConfinedPath, table: str) -> tuple[str, str]:
    """The attempt that a task wrote a file in, and the file's path in the export.

    Raises OutputError if the path is not one.
    """
    attempt, _, name = path.partition("/")
    if not _ATTEMPT.fullmatch(attempt) or not is_table_file(name, table):
        raise OutputError(f"a task of Spark wrote {path}, which is not a file of {partial}")
    return attempt, name
