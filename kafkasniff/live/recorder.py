"""The flight recorder: the packets of the last minutes, in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from kafkasniff.capture.write.capture_writer import WrittenBlocks

__all__ = ["FlightRecorder"]


class FlightRecorder:
    """Keeps what a `Keeper` writes for `seconds`, and at most `size` bytes, whichever is less.

    `head`: the section and the interfaces, as pcapng.
    """

    broken = False
    """Memory does not become full: the oldest packets are dropped."""

    def __init__(self, head: bytes, seconds: float, size: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._head = head
        self._seconds = seconds
        self._most = size
        self._clock = clock
        self._kept: deque[tuple[float, bytes]] = deque()
        """Blocks of a batch with their time, the oldest first."""
        self._size = 0

    def write(self, blocks: WrittenBlocks) -> None:
        """Keep packets."""
        if len(blocks.sizes):
            self._kept.append((self._clock(), blocks.data))
            self._size += len(blocks.data)
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - self._seconds
        while self._kept and (self._kept[0][0] < oldest or self._size > self._most):
            self._size -= len(self._kept.popleft()[1])

    def pieces(self) -> list[bytes]:
        """The kept packets as pieces of a pcapng file, which are shared, not copied."""
        self._forget()
        return [self._head, *(data for _, data in self._kept)]

    def close(self) -> None:
        """Nothing to finish."""
