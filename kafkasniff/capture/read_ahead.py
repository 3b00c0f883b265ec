"""Captures that another thread reads while what was read before is used."""

from __future__ import annotations

from collections.abc import Iterator

from kafkasniff.capture.source import CaptureSource
from kafkasniff.packets import PacketBatch
from kafkasniff.threads import Threads

__all__ = ["ReadAhead"]


class ReadAhead:
    """The batches of a source, of which one is read while the one before is used."""

    def __init__(self, source: CaptureSource, threads: Threads) -> None:
        self._source = source
        self._threads = threads
        self.bytes_read = 0
        """As `CaptureSource` has them, when the batch was read that was yielded last."""
        self.broken = False

    @property
    def bytes_total(self) -> int | None:
        """As `CaptureSource` has it."""
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
