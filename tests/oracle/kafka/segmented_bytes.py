"""Recent bytes of a stream, and the segments that brought them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from tests.oracle.tcp.runs import Run

__all__ = ["MAX_SEARCH", "SegmentedBytes"]

MAX_SEARCH: Final = 16 << 20
"""Bytes kept while searching; if nothing was found by then, the older half is dropped."""


class SegmentedBytes:
    """Bytes of one stream without a hole, in segments."""

    __slots__ = ("_base", "_clipped", "_data", "_ends", "_orders", "_packets", "_released", "_times", "dropped")

    def __init__(self) -> None:
        self.dropped = 0
        """Bytes dropped at the bound."""
        self._data = bytearray()
        self._clipped = False
        """The first segment is incomplete: its beginning was dropped."""
        self._base = 0
        """Bytes before the first one that is kept."""
        self._ends: list[int] = []
        """End of each segment, with `_base` counted."""
        self._packets: list[int] = []
        self._times: list[int] = []
        self._orders: list[int] = []
        self._released: list[int] = []

    def __len__(self) -> int:
        return len(self._data)

    @property
    def segments(self) -> int:
        """Number of segments of its bytes."""
        return len(self._ends)

    @property
    def seen(self) -> bool:
        """The stream has had bytes."""
        return len(self._data) + self.dropped > 0

    def beginning(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        return bytes(self._data[:count])

    def add(self, run: Run, index: int, skip: int = 0) -> int:
        """Add one segment of a run, without its first `skip` bytes; returns its position."""
        offset, length = run.offset[index] + skip, run.length[index] - skip
        if len(self._data) + length > MAX_SEARCH:
            self.drop(max(len(self._data) // 2, len(self._data) + length - MAX_SEARCH))
        begin = len(self._data)
        self._data += run.buffer[offset : offset + length]
        self._ends.append(self._base + len(self._data))
        self._packets.append(run.packet[index])
        self._times.append(run.time[index])
        self._orders.append(run.order[index])
        self._released.append(run.released[index])
        return begin

    def drop(self, count: int) -> int:
        """Drop the first `count` bytes (and the bookkeeping of whole segments); returns how many were there."""
        count = min(count, len(self._data))
        del self._data[:count]
        self.dropped += count
        self._base += count
        whole = bisect_right(self._ends, self._base)
        if count:
            before = self._ends[whole - 1] if whole else self._base - count
            self._clipped = whole < len(self._ends) and before < self._base
        if whole:
            for column in (self._ends, self._packets, self._times, self._orders, self._released):
                del column[:whole]
        return count

    def take(self, start: int) -> Run | None:
        """Everything from `start` on as a run, leaving the searcher empty. None if there is nothing."""
        self.drop(start)
        if not self._ends:
            return None
        ends = [end - self._base for end in self._ends]
        offsets = [0, *ends[:-1]]
        lengths = [end - offset for end, offset in zip(ends, offsets, strict=True)]
        count = len(ends)
        run = Run(
            bytes(self._data),
            offsets,
            lengths,
            ends,
            self._packets,
            self._times,
            self._orders,
            self._released,
            0,
            count,
        )
        self._data = bytearray()
        self._base = 0
        self._ends, self._packets, self._times, self._orders, self._released = [], [], [], [], []
        return run

    def order_at(self, position: int) -> int:
        """Order of the packet that brought the byte at a position."""
        return self._orders[bisect_right(self._ends, self._base + position)]

    def _starts_segment(self, position: int) -> bool:
        if position == 0:
            return not self._clipped
        place = bisect_left(self._ends, self._base + position)
        return place < len(self._ends) and self._ends[place] == self._base + position
