"""The bytes of one stream while they are identified, and the written packets that have them, by position."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, NamedTuple

__all__ = [
    "MAX_PIECES",
    "MAX_PLACES",
    "MAX_REPEATED",
    "BlankedStream",
    "PayloadPlace",
    "RepeatedBytes",
    "UncutBytes",
]

MAX_REPEATED: Final = 128 << 10
"""Bytes of a stream that are remembered after their packets, for packets captured twice: an answer to the same packet
within the last 16 is one (`tcp.stream.RECENT`).
"""

MAX_PLACES: Final = 262_144
"""Maximum number of packets of a stream with unknown bytes; beyond it the first stay blank. 16 MiB after a hole need
this many if each holds 64 bytes; more are forgeries.
"""

MAX_PIECES: Final = 4_096
"""Maximum number of pieces with holes between them. Searched and provisionally cut streams have more than one."""


class PayloadPlace(NamedTuple):
    """The payload of a written packet."""

    position: int
    """Position of its first byte in the stream."""
    end: int
    at: int
    """Its offset in the file."""
    header: int
    """Offset of its TCP header in the file."""
    pseudo: int
    """Sum of what a TCP checksum covers besides header and payload."""


class UncutBytes:
    """Delivered bytes outside of frames so far: pieces, with a hole between any two."""

    __slots__ = ("pieces", "size")

    def __init__(self) -> None:
        self.pieces: deque[tuple[int, bytearray]] = deque()
        """Each with the position of its first byte."""
        self.size = 0

    def add(self, position: int, data: bytes, most: int) -> None:
        """Add delivered bytes; the first pieces are dropped if they exceed `most` bytes, or are too many."""
        if self.pieces and self.pieces[-1][0] + len(self.pieces[-1][1]) == position:
            self.pieces[-1][1].extend(data)
        else:
            self.pieces.append((position, bytearray(data)))
        self.size += len(data)
        while self.size > most or len(self.pieces) > MAX_PIECES:
            self.drop()

    def drop(self) -> tuple[int, bytes]:
        """Take out the first piece."""
        position, data = self.pieces.popleft()
        self.size -= len(data)
        return position, bytes(data)

    def cut(self, count: int) -> None:
        """Take out the first bytes of the first piece."""
        position, data = self.pieces.popleft()
        self.size -= count
        del data[:count]
        if data:
            self.pieces.appendleft((position + count, data))

    def clear(self) -> None:
        """Take out all."""
        self.pieces.clear()
        self.size = 0


class RepeatedBytes:
    """Recently identified bytes of a stream, by position, for packets that are captured again.

    Pieces do not overlap: each byte is identified once. At the bound the first ones of the stream are dropped.
    """

    __slots__ = ("_first", "_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[tuple[int, bytes]] = []
        self._first = 0
        """Those before it are gone: they are cleared out when they are half of all."""
        self._size = 0

    def add(self, position: int, data: bytes) -> None:
        """These bytes were identified."""
        insort(self._pieces, (position, data), lo=self._first, key=itemgetter(0))
        self._size += len(data)
        while self._size > MAX_REPEATED:
            self._size -= len(self._pieces[self._first][1])
            self._first += 1
        if self._first > len(self._pieces) // 2:
            del self._pieces[: self._first]
            self._first = 0

    def within(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The pieces that have bytes of [begin, end), with their positions."""
        index = bisect_left(self._pieces, end, lo=self._first, key=itemgetter(0)) - 1
        while index >= self._first:
            position, data = self._pieces[index]
            if position + len(data) <= begin:
                break
            yield position, data
            index -= 1


class BlankedStream:
    """One stream: its delivered bytes, and the packets that have them."""

    __slots__ = ("at", "begin", "cut", "longest", "places", "repeated", "uncut")

    def __init__(self) -> None:
        self.at: int | None = None
        """Position after the delivered bytes; None before the first."""
        self.begin = 0
        self.uncut = UncutBytes()
        self.cut: dict[tuple[int, int, int, int], deque[int]] = {}
        """Positions of frames that were not reported yet, in order; several if they are indistinguishable."""
        self.places: list[PayloadPlace] = []
        """Packets with bytes that may still be identified."""
        self.longest = 0
        """Bytes of the longest of them."""
        self.repeated = RepeatedBytes()
        """Recently identified bytes, for packets that are captured again."""

    def add_place(self, place: PayloadPlace) -> None:
        """Note a written packet; if there are too many, the first are dropped."""
        insort(self.places, place)
        self.longest = max(self.longest, place.end - place.position)
        if len(self.places) > MAX_PLACES:
            del self.places[: MAX_PLACES // 2]

    def drop_places(self, low: int) -> None:
        """Drop the first packets, as long as they end before or at `low`."""
        count = 0
        while count < len(self.places) and self.places[count].end <= low:
            count += 1
        del self.places[:count]
        if not self.places:
            self.longest = 0

    def places_within(self, begin: int, end: int) -> Iterator[PayloadPlace]:
        """The packets that may have bytes of [begin, end), in order."""
        places = self.places
        for index in range(bisect_left(places, begin - self.longest, key=itemgetter(0)), len(places)):
            place = places[index]
            if place.position >= end:
                break
            yield place
