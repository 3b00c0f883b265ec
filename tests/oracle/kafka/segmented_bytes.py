"""Recent bytes of a stream, and the segments that brought them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from kafkasniff.tls.items import Segment

MAX_SEARCH: Final = 16 << 20
"""Bytes kept while searching; if nothing was found by then, the older half is dropped."""


class SegmentedBytes:
    """Bytes of one stream without a hole, in segments."""

    def __init__(self) -> None:
        self.dropped = 0
        """Bytes dropped at the bound."""
        self._data = bytearray()
        self._clipped = False
        """The first segment is incomplete: its beginning was dropped."""
        self._base = 0
        """Bytes before the first one that is kept."""
        self._segments: list[Segment] = []
        self._ends: list[int] = []
        """End of each segment, with `_base` counted."""

    def __len__(self) -> int:
        return len(self._data)

    @property
    def seen(self) -> bool:
        """The stream has had bytes."""
        return len(self._data) + self.dropped > 0

    def beginning(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        return bytes(self._data[:count])

    def add(self, segment: Segment, skip: int = 0) -> int:
        """Add a segment without its first `skip` bytes; returns its position."""
        data = segment.data[skip:]
        if len(self._data) + len(data) > MAX_SEARCH:
            self.drop(max(len(self._data) // 2, len(self._data) + len(data) - MAX_SEARCH))
        begin = len(self._data)
        self._data += data
        self._segments.append(segment)
        self._ends.append(self._base + len(self._data))
        return begin

    def drop(self, count: int) -> int:
        """Drop the first `count` bytes, and segments that lie in them; returns how many were there."""
        count = min(count, len(self._data))
        del self._data[:count]
        self.dropped += count
        self._base += count
        whole = bisect_right(self._ends, self._base)
        if count:
            before = self._ends[whole - 1] if whole else self._base - count
            self._clipped = whole < len(self._ends) and before < self._base
        del self._ends[:whole], self._segments[:whole]
        return count

    def take(self, start: int) -> list[Segment]:
        """Everything from `start` on, leaving nothing here."""
        self.drop(start)
        found, begin = [], 0
        for segment, end in zip(self._segments, self._ends, strict=True):
            data = bytes(self._data[begin : end - self._base])
            found.append(msgspec.structs.replace(segment, data=data))
            begin = end - self._base
        self._data, self._base, self._segments, self._ends = bytearray(), 0, [], []
        return found

    def order_at(self, position: int) -> int:
        """Order of the packet that brought the byte at a position."""
        return self._segments[bisect_right(self._ends, self._base + position)].order

    def _starts_segment(self, position: int) -> bool:
        if position == 0:
            return not self._clipped
        place = bisect_left(self._ends, self._base + position)
        return place < len(self._ends) and self._ends[place] == self._base + position
