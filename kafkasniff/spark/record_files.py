"""Rows of `records` that stage 1 writes to Parquet files itself, a window after the other.

Most rows of an export are records, and nothing that other tasks learn changes those whose topic is known. Through Spark
they would be compressed, copied and read three more times. Other threads sort and write them: a connection that is most
of the traffic is a single task, beside idle cores.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.closing import ClosedAtExit
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.spark.division import SMALL_PART
from kafkasniff.spark.task_files import FileReport, file_reports, own_folder
from kafkasniff.spark.task_output import TaskOutput
from kafkasniff.tables.exports.finalise import REST, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import HeldSessions

__all__ = ["RECORDS", "RecordFiles", "RecordOutput"]

RECORDS: Final = "records"

WINDOW_BYTES: Final = 256 << 20
"""Staged bytes that are sorted together, and become a file for each day: those of a shard of usual size."""
WAITING_BYTES: Final = 32 << 20
"""Bytes of rows that wait for the thread that stages them."""
FINISHED_AT_ONCE: Final = 2
"""Windows that are sorted and written at the same time, while the next one is staged."""


class RecordOutput:
    """Where the tasks of stage 1 write final rows of `records`. Picklable."""

    def __init__(self, options: ExportOptions, output: TaskOutput, run: int) -> None:
        self.options = msgspec.structs.replace(options, tables=(RECORDS,))
        self.output = output
        self.run = run
        # Constants of the driver, so that tests can change them.
        self.window = WINDOW_BYTES
        self.least = SMALL_PART
        """Fewer staged bytes are not worth a file: those rows take the usual way."""


class RecordFiles(ClosedAtExit):
    """Takes the staged rows of `records` of a shard; a context manager."""

    def __init__(self, output: RecordOutput, shard: int, attempt: int) -> None:
        self._to = output
        self._shard = shard
        self._attempt = attempt
        self._stack = contextlib.ExitStack()
        self._folder: ConfinedPath | None = None
        # One thread: batches are staged one after the other.
        self._stager = ThreadPoolExecutor(1, "kafkasniff-records")
        self._finisher = ThreadPoolExecutor(FINISHED_AT_ONCE, "kafkasniff-files")
        self._few: list[pa.RecordBatch] = []
        """The rows of the window, until they are worth a file."""
        self._staging: StagedFiles | None = None
        self._bytes = 0
        self._windows = 0
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0
        self._finishing: deque[Future[list[FileReport]]] = deque()
        self.reports: list[FileReport] = []
        """The files, once `finish` was called."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take staged rows; returns those whose topic other tasks may know. Raises OSError, and OutputError."""
        waits = _nameless(batch)
        if waits is not None:
            self._add(batch.filter(pc.invert(waits)))
            return batch.filter(waits)
        self._add(batch)
        return batch.slice(0, 0)

    def finish(self) -> list[pa.RecordBatch]:
        """Finish all files; returns rows that are too few for one. Raises as `take`."""
        few, self._few = self._few, []
        if self._staging is not None:
            self._end_window()
        self._finished(0)
        return few

    def close(self) -> None:
        """Stop the threads, and remove what was staged."""
        self._stager.shutdown(cancel_futures=True)
        self._finisher.shutdown(cancel_futures=True)
        self._stack.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._staging is None:
            self._few.append(batch)
            if self._bytes < self._to.least:
                return
            self._staging = StagedFiles(self._window() / "staged")
            some, self._few = self._few, []
        else:
            some = [batch]
        for one in some:
            self._stage(self._staging, one)
        if self._bytes >= self._to.window:
            self._end_window()

    def _window(self) -> ConfinedPath:
        if self._folder is None:
            self._folder = self._stack.enter_context(own_folder())
        return self._folder / f"{self._windows:05}"

    def _stage(self, files: StagedFiles, batch: pa.RecordBatch) -> None:
        while self._waiting and self._waiting_bytes + batch.nbytes > WAITING_BYTES:
            done, size = self._waiting.popleft()
            done.result()
            self._waiting_bytes -= size
        self._waiting.append((self._stager.submit(files.write, RECORDS, batch), batch.nbytes))
        self._waiting_bytes += batch.nbytes

    def _end_window(self) -> None:
        assert self._staging is not None
        closed = self._stager.submit(self._staging.close)
        # Else windows would fill the disk.
        self._finished(FINISHED_AT_ONCE - 1)
        self._finishing.append(
            self._finisher.submit(partial(self._finish_window, self._window(), self._windows, closed))
        )
        self._staging = None
        self._bytes = 0
        self._windows += 1

    def _finished(self, left: int) -> None:
        """Wait until all rows are staged, and at most `left` windows are being finished."""
        while self._waiting:
            self._waiting.popleft()[0].result()
        self._waiting_bytes = 0
        while len(self._finishing) > left:
            self.reports += self._finishing.popleft().result()

    def _finish_window(self, window: ConfinedPath, number: int, closed: Future[None]) -> list[FileReport]:
        closed.result()
        output = self._to.output
        into = output.open(self._attempt, window)
        partitions = TablePartitions()
        written = finalise(
            [window / "staged"],
            into,
            f"{output.file_name(self._to.run)}-{self._shard:05}-{number:05}",
            self._to.options,
            names=LearnedNames(LearnedFacts()),
            sessions=HeldSessions(),
            partitions=partitions,
            # Windows that are written at the same time may share the output's folder.
            rest=window / REST,
        )
        output.deliver(into, written[RECORDS])
        window.remove_tree()
        return file_reports(output, into, written, partitions, part=self._shard, open_=False)


def _nameless(batch: pa.RecordBatch) -> pa.Array | None:
    """Which rows have the id of their topic but not its name; None: none."""
    topics = batch.column("topic")
    if not topics.null_count and not topics.dictionary.null_count:
        return None
    waits = pc.and_(pc.is_null(topics.dictionary_decode()), pc.is_valid(batch.column("topic_id").dictionary_decode()))
    return waits if pc.any(waits).as_py() else None
