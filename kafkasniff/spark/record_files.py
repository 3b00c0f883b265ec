"""Rows of `records` that stage 1 writes to Parquet files itself, a window after the other.

Most rows of an export are records, and nothing that other tasks learn changes those whose topic is known. Through Spark
they would be compressed, copied and read three more times.

A connection that is most of the traffic is a single task, beside idle cores. If it has more than one window, another
process sorts and writes them: a thread that does so stops the one that decodes for a third of the time, since it needs
the interpreter's lock for each of many short steps.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.closing import ClosedAtExit
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.worker_processes import Workers, end_with_parent
from kafkasniff.spark.division import SMALL_PART
from kafkasniff.spark.task_files import FileReport, file_reports, own_folder
from kafkasniff.spark.task_output import TaskOutput
from kafkasniff.spark.worker_settings import settle_worker
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
"""Windows that are sorted and written at the same time, while the next one is staged: each also waits for the disk."""


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
        # One thread: batches are staged one after the other.
        self._stager = ThreadPoolExecutor(1, "kafkasniff-records")
        self._process: Workers | None = None
        self._few: list[pa.RecordBatch] = []
        """The rows of the window, until they are worth a file."""
        self._staging: StagedFiles | None = None
        self._bytes = 0
        self._windows = 0
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0
        self._handed_on: deque[Future[None]] = deque()
        """For each window that the process has or gets, but has not finished."""
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
        while self._waiting:
            self._next_staged()
        if self._staging is not None:
            self._staging.close()
            # Here, since there is nothing else to do.
            self.reports += self._finish(self._windows)
        if self._process is not None:
            for handed_on in self._handed_on:
                handed_on.result()
            self._process.send(0, None)
            while self._handed_on:
                self._receive()
        return few

    def close(self) -> None:
        """Stop the threads, and remove what was staged."""
        self._stager.shutdown(cancel_futures=True)
        self._stack.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._staging is None:
            self._few.append(batch)
            if self._bytes < self._to.least:
                return
            self._staging = StagedFiles(self._finish.staged(self._windows))
            some, self._few = self._few, []
        else:
            some = [batch]
        for one in some:
            self._stage(self._staging, one)
        if self._bytes >= self._to.window:
            self._end_window()

    @cached_property
    def _finish(self) -> _FinishWindow:
        return _FinishWindow(self._to, self._shard, self._attempt, self._stack.enter_context(own_folder()))

    def _stage(self, files: StagedFiles, batch: pa.RecordBatch) -> None:
        while self._waiting and self._waiting_bytes + batch.nbytes > WAITING_BYTES:
            self._next_staged()
        self._waiting.append((self._stager.submit(files.write, RECORDS, batch), batch.nbytes))
        self._waiting_bytes += batch.nbytes

    def _next_staged(self) -> None:
        """Wait for the thread to stage one more batch."""
        done, size = self._waiting.popleft()
        done.result()
        self._waiting_bytes -= size

    def _end_window(self) -> None:
        assert self._staging is not None
        if self._process is None:
            self._process = self._stack.enter_context(Workers(_finish_windows, [self._finish]))
        # Else windows would fill the disk.
        while len(self._handed_on) >= FINISHED_AT_ONCE:
            self._receive()
        self._handed_on.append(self._stager.submit(self._hand_on, self._staging, self._windows))
        self._staging = None
        self._bytes = 0
        self._windows += 1

    def _hand_on(self, files: StagedFiles, number: int) -> None:
        files.close()
        assert self._process is not None
        self._process.send(0, number)

    def _receive(self) -> None:
        """Wait until one more window is finished."""
        self._handed_on.popleft().result()
        assert self._process is not None
        for _, reports in self._process.messages():
            self.reports += reports


class _FinishWindow:
    """Writes the files of a window that is staged, in the task or in another process."""

    def __init__(self, to: RecordOutput, shard: int, attempt: int, folder: ConfinedPath) -> None:
        """`folder`: of the task, has a folder for each window."""
        self._to = to
        self._shard = shard
        self._attempt = attempt
        self._folder = folder

    def __call__(self, number: int) -> list[FileReport]:
        """Raises OSError, and OutputError."""
        window = self._window(number)
        output = self._to.output
        into = output.open(self._attempt, window)
        partitions = TablePartitions()
        written = finalise(
            [self.staged(number)],
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

    def staged(self, number: int) -> ConfinedPath:
        """The folder for the staged rows of a window."""
        return self._window(number) / "staged"

    def _window(self, number: int) -> ConfinedPath:
        return self._folder / f"{number:05}"


def _finish_windows(finish: _FinishWindow, end: Connection[list[FileReport], int | None]) -> None:
    """What the process does: it receives numbers of windows, and returns their files in this order."""
    # Files of a task that was stopped must not appear after the driver has removed its folder.
    end_with_parent()
    settle_worker()
    begun: deque[Future[list[FileReport]]] = deque()
    with ThreadPoolExecutor(FINISHED_AT_ONCE) as pool:
        while (number := end.recv()) is not None:
            begun.append(pool.submit(finish, number))
            if len(begun) == FINISHED_AT_ONCE:
                end.send(begun.popleft().result())
        while begun:
            end.send(begun.popleft().result())


def _nameless(batch: pa.RecordBatch) -> pa.Array | None:
    """Which rows have the id of their topic but not its name; None: none."""
    topics = batch.column("topic")
    if not topics.null_count and not topics.dictionary.null_count:
        return None
    waits = pc.and_(pc.is_null(topics.dictionary_decode()), pc.is_valid(batch.column("topic_id").dictionary_decode()))
    return waits if pc.any(waits).as_py() else None
