"""A table of Kafka straight from the data source (`table=exchanges`), for captures that are small.

A reader has no shuffle, and what one connection says of names, brokers and fetch sessions counts for others. So one
task reads everything, as `export` with one process does. `pipeline.decode` divides the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.locations import FileSelection, find_captures
from kafkasniff.capture.timeline.source import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.spark.keys import TaskKeys
from kafkasniff.spark.table_rows import OUTPUT_ROWS, STAGED_FOR
from kafkasniff.spark.task_files import own_folder
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.finalise import REST, final_rows
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import Sessions

__all__ = ["local_captures", "local_key_log", "scan_table"]

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
