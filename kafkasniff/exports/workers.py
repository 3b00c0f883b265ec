"""Step 1 in several processes: each reads all captures and keeps its share of the connections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from kafkasniff.exports.shard import Hooks, Reading, ShardResult, ShardTask, run_shard
from kafkasniff.processes import Workers

__all__ = ["run_shards"]

SIGN_SECONDS: Final = 0.2
"""Time between two signs of life of a worker."""


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
    together = _Together(len(tasks))
    found: dict[int, ShardResult] = {}
    with Workers(_work, list(tasks), start="spawn") as workers:
        if hooks.opened is not None:
            hooks.opened(together)
        while len(found) < len(tasks):
            for worker, message in workers.messages(SIGN_SECONDS, without=found):
                if isinstance(message, ShardResult):
                    found[worker] = message
                else:
                    together.note(worker, *message)
            if hooks.part is not None:
                hooks.part()
    return [found[worker] for worker in range(len(tasks))]


def _work(task: ShardTask, end: Connection[Any, Any]) -> None:
    """Read captures, with a sign of life now and then."""
    reading: list[Reading] = []
    next_sign = 0.0

    def part() -> None:
        nonlocal next_sign
        now = time.monotonic()
        if now >= next_sign and reading:
            next_sign = now + SIGN_SECONDS
            # Raises where nobody listens any more, and that is the end.
            end.send((reading[0].bytes_read, reading[0].bytes_total))

    end.send(run_shard(task, Hooks(reading.append, part)))
