"""Tables straight from the data source (`table=exchanges`): a reader has no shuffle, so each task reads everything.

Names, brokers and fetch sessions are told on one connection and count for others. So a task reassembles and decodes all
connections; what is divided among tasks is making rows, which is more than half of the work. `pipeline.decode` divides
all of it; this is for captures that are small, and for those who have nothing but SQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkasniff.capture.key_log_file import open_key_log
from kafkasniff.capture.source import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import UsageError
from kafkasniff.exports.beginning import new_state
from kafkasniff.exports.finalise import REST, final_rows
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.partitions import Partitions
from kafkasniff.exports.shard import parts
from kafkasniff.exports.staged import StagedFiles
from kafkasniff.exports.stager import Stager
from kafkasniff.kafka.named_apis import FETCH
from kafkasniff.model import Connection, Exchange, Problem
from kafkasniff.rows.exchanges import session_step
from kafkasniff.rows.resolve import Names
from kafkasniff.rows.sessions import Sessions
from kafkasniff.spark.keys import TaskKeys
from kafkasniff.spark.locations import find_captures
from kafkasniff.spark.table_rows import OUTPUT_ROWS, STAGED_FOR, own_folder
from kafkasniff.spark.worker_kernel import check_kernel

__all__ = ["local_captures", "local_key_log", "scan_options", "scan_table"]

_STEPS: Final = ExportOptions(tables=("exchanges",), bodies=False)
"""What is staged of other shards' Fetch exchanges, whose sessions may be ours, too."""


def local_captures(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Path and name of the captures that paths, folders and patterns name.

    Raises CaptureError as `find_captures` does, UsageError for one of another machine.
    """
    files = find_captures(paths)
    remote = [file.name for file in files if "://" in file.path]
    if remote:
        raise UsageError(f"{remote[0]}: for tables of captures elsewhere take kafkasniff.spark.pipeline.decode")
    return [(file.path, file.name) for file in files]


def local_key_log(path: str) -> str:
    """Where all tasks find a key log.

    Raises UsageError where it cannot be read, MissingPartError as `TaskKeys` does.
    """
    TaskKeys(open_key_log(path))
    return os.path.abspath(path)


def scan_table(
    captures: Sequence[tuple[str, str]],
    table: str,
    options: ExportOptions,
    shard: int,
    shards: int,
    *,
    keylog: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a table that belong to one of `shards` shards, sorted; those of all are the table.

    `captures`: path and name of each; `keylog`: a file with secrets of TLS. Raises CaptureError where a capture cannot
    be opened, and what `local_key_log` does.
    """
    check_kernel()
    with own_folder() as folder:
        tellings = Tellings()
        state = new_state(options, Catalog(tellings=tellings), sessions=False)
        if keylog is not None:
            keys = open_key_log(keylog)
            TaskKeys(keys)  # a task without the means to decrypt must not look like one without keys
            state.inspector.follow_key_log(keys)
        files = StagedFiles(folder)
        stagers = [Stager(one, state.enricher, files) for one in (options, _STEPS)]
        scan = _Scan(stagers[0], stagers[1] if table == "exchanges" else None, tellings, shard, shards)
        names = tuple(name for _, name in captures)
        with open_captures([path for path, _ in captures]) as source:
            for batch in source:
                batch.captures = names
                for part in parts(batch):
                    for events in state.inspector.feed_slices(part):
                        scan.take(state.enricher.feed(events))
        scan.take(state.enricher.feed(state.inspector.close()))
        scan.flush()
        files.close()
        tellings.hosts.update(state.inspector.names)
        for _, _, batches in final_rows(
            [folder],
            options,
            names=Names(tellings),
            sessions=Sessions(),
            partitions=Partitions.none(),
            rest=folder / REST,
            tables=[table],
        ):
            for rows in batches:
                keys = rows.column("connection_id").fill_null(0).to_numpy()
                ours = rows.filter(pa.array(np.mod(keys, shards) == shard))
                for start in range(0, len(ours), OUTPUT_ROWS):
                    yield ours.slice(start, OUTPUT_ROWS)


class _Scan:
    """Sorts what an inspector yields: what is ours, what our rows need to know, and what only tells."""

    def __init__(self, ours: Stager, steps: Stager | None, tellings: Tellings, shard: int, shards: int) -> None:
        self._ours = ours
        self._steps = steps
        self._tellings = tellings
        self._shard = shard
        self._shards = shards

    def take(self, events: Sequence[Any]) -> None:
        ours: list[Any] = []
        steps: list[Exchange] = []
        for event in events:
            if not isinstance(event, Exchange | Connection | Problem):
                continue
            if (event.connection_id or 0) % self._shards == self._shard:
                ours.append(event)
            elif isinstance(event, Connection):
                self._tellings.connection(event)
            elif isinstance(event, Exchange) and _has_step(event):
                steps.append(event)
        self._ours.take(ours)
        if self._steps is not None:
            self._steps.take(steps)

    def flush(self) -> None:
        self._ours.flush()
        if self._steps is not None:
            self._steps.flush()


def _has_step(exchange: Exchange) -> bool:
    request = exchange.request
    return request is not None and request.api_key == FETCH and session_step(request, exchange.response) is not None


def scan_options(table: str, *, ports: tuple[int, ...], show_secrets: bool) -> ExportOptions:
    """What has to be staged for a table."""
    return ExportOptions(tables=STAGED_FOR[table], ports=ports, show_secrets=show_secrets)
