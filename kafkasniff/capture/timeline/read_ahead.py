"""Reads captures in another thread while earlier data is processed."""

from __future__ import annotations

from collections.abc import Iterator

from kafkasniff.capture.timeline.source import CaptureSource
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.threads import Threads

__all__ = ["ReadAhead"]


class ReadAhead:
    """The batches of a source; one is read while the previous one is processed."""

    def __init__(self, source: CaptureSource, threads: Threads) -> None:
        self._source = source
        self._threads = threads
        self.bytes_read = 0
        """As in `CaptureSource`, as of reading the last yielded batch."""
        self.broken = False

    @property
    def bytes_total(self) -> int | None:
        """As in `CaptureSource`."""
        return self._source.bytes_total

    def __iter__(self) -> Iterator[PacketBatch]:
        batches = iter(self._source)
        source = self._source

        def read(_: int) -> tuple[PacketBatch | None, int, bool]:
            batch = next(batches, None)
            return batch, source.bytes_read, source.broken

        task = self._threads.begin(read)
        while True:
            batch, self.bytes_read, self.broken = task.result()
            if batch is None:
                return
            task = self._threads.begin(read)
            yield batch
