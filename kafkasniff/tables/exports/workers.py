"""Step 1 in several processes, this one among them: each reads all captures and keeps its share of the connections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from kafkasniff.runtime.worker_processes import Workers
from kafkasniff.tables.exports.shard import Hooks, ReadingProgress, ShardResult, ShardTask, run_shard

__all__ = ["run_shards"]

SIGN_SECONDS: Final = 0.2
"""Time between two progress messages of a worker."""


class _Together:
    """The progress of all processes, as if one read the captures."""

    def __init__(self, processes: int) -> None:
        self._read = [0] * processes
        self.bytes_total: int | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of the captures, averaged over the processes."""
        return sum(self._read) // len(self._read)

    def note(self, process: int, read: int, total: int | None) -> None:
        """Record the progress of a process."""
        self._read[process] = read
        self.bytes_total = total


def run_shards(tasks: Sequence[ShardTask], hooks: Hooks) -> list[ShardResult]:
    """Run tasks in parallel, the first one here and each other one in a process; returns their results in order.

    Raises the exceptions of a task, and KafkasniffError if a process ends without a result. No process is left then.
    """
    together = _Together(len(tasks))
    found: dict[int, ShardResult] = {}
    mine: list[ReadingProgress] = []

    def hear(timeout: float) -> None:
        for worker, message in workers.messages(timeout, without=found):
            if isinstance(message, ShardResult):
                found[worker] = message
            else:
                together.note(worker + 1, *message)
        if mine:
            together.note(0, mine[0].bytes_read, mine[0].bytes_total)
        if hooks.part is not None:
            hooks.part()

    with Workers(_work, list(tasks[1:])) as workers:
        if hooks.opened is not None:
            hooks.opened(together)
        first = run_shard(tasks[0], Hooks(mine.append, lambda: hear(0)))
        while len(found) < len(workers):
            hear(SIGN_SECONDS)
    return [first, *(found[worker] for worker in range(len(workers)))]


def _work(task: ShardTask, end: Connection[Any, Any]) -> None:
    """Read captures and report progress now and then."""
    reading: list[ReadingProgress] = []
    next_sign = 0.0

    def part() -> None:
        nonlocal next_sign
        now = time.monotonic()
        if now >= next_sign and reading:
            next_sign = now + SIGN_SECONDS
            # Raises if the parent has ended, which ends this process, too.
            end.send((reading[0].bytes_read, reading[0].bytes_total))

    end.send(run_shard(task, Hooks(reading.append, part)))
