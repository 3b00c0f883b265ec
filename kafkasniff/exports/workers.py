"""Step 1 in several processes: each reads all captures and keeps its share of the connections.

Workers share nothing but what they write. They end when this process does, whichever way it goes: at the next sign of
life that nobody takes.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from kafkasniff.errors import KafkasniffError
from kafkasniff.exports.shard import Hooks, Reading, ShardResult, ShardTask, run_shard

__all__ = ["run_shards"]

SIGN_SECONDS: Final = 0.2
"""Time between two signs of life of a worker."""
PATIENCE_SECONDS: Final = 5.0
"""How long a worker may take to end when it is told to."""


class _Together:
    """How far all workers are, as if one read the captures."""

    def __init__(self, workers: int) -> None:
        self._read = [0] * workers
        self.bytes_total: int | None = None

    @property
    def bytes_read(self) -> int:
        """Of the captures, on average."""
        return sum(self._read) // len(self._read)

    def note(self, worker: int, read: int, total: int | None) -> None:
        """A worker says how far it is."""
        self._read[worker] = read
        self.bytes_total = total


def run_shards(tasks: Sequence[ShardTask], hooks: Hooks) -> list[ShardResult]:
    """Run tasks at once, each in a process; returns their results in order.

    Raises what a task raises, KafkasniffError where a process ends without a word. No process is left then.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    ends: list[Connection] = []
    try:
        for task in tasks:
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(task, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            ends.append(mine)
        return _results(processes, ends, hooks)
    finally:
        _end(processes)
        for end in ends:
            end.close()


def _results(processes: list[BaseProcess], ends: list[Connection], hooks: Hooks) -> list[ShardResult]:
    together = _Together(len(ends))
    if hooks.opened is not None:
        hooks.opened(together)
    found: dict[int, ShardResult] = {}
    while len(found) < len(ends):
        for worker, message in _messages(ends, found):
            if message is None:
                processes[worker].join(PATIENCE_SECONDS)
                raise KafkasniffError(f"a worker process ended with code {processes[worker].exitcode}")
            if isinstance(message, ShardResult):
                found[worker] = message
            elif isinstance(message, BaseException):
                raise message
            else:
                together.note(worker, *message)
        if hooks.part is not None:
            hooks.part()
    return [found[worker] for worker in range(len(ends))]


def _messages(ends: list[Connection], found: dict[int, ShardResult]) -> Iterator[tuple[int, Any]]:
    """What workers say, None for one that says no more."""
    open_ends = [end for worker, end in enumerate(ends) if worker not in found]
    for end in wait(open_ends, SIGN_SECONDS):
        worker = ends.index(end)  # type: ignore[arg-type]
        try:
            yield worker, ends[worker].recv()
        except (EOFError, OSError):
            yield worker, None


def _end(processes: list[BaseProcess]) -> None:
    """End what still runs."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(PATIENCE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _work(task: ShardTask, end: Connection) -> None:
    """A worker's whole life."""
    # Ctrl-C goes to all processes of the terminal: the first one says what becomes of the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 50, 100)
    reading: list[Reading] = []
    next_sign = 0.0

    def part() -> None:
        nonlocal next_sign
        now = time.monotonic()
        if now >= next_sign and reading:
            next_sign = now + SIGN_SECONDS
            # Raises where nobody listens any more, and that is the end.
            end.send((reading[0].bytes_read, reading[0].bytes_total))

    try:
        end.send(run_shard(task, Hooks(reading.append, part)))
    except BrokenPipeError:
        return
    except Exception as error:
        told = error
        if not isinstance(error, KafkasniffError | OSError):
            told = KafkasniffError(f"a worker process failed: {type(error).__name__}: {error}")
            told.add_note(traceback.format_exc())
        with contextlib.suppress(OSError):
            end.send(told)
