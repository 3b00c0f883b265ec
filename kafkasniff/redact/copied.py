"""A copy of some bytes, all blank until they are explicitly kept."""

from __future__ import annotations

from typing import Final

__all__ = ["BLANK", "Copied"]

BLANK: Final = 0xFF
"""The byte used for blanks. It is invalid as a length, and is not mistaken for a real value: a stream that was out of
step stays so, whereas zeros would be records of Kafka's own topics, ids of schemas, nulls.
"""


class Copied:
    """Blank bytes, as many as `data[start:end]`; positions are those in `data`."""

    __slots__ = ("bytes", "data", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.bytes = bytearray([BLANK]) * (end - start)

    def keep(self, first: int, last: int) -> None:
        """Show `data[first:last]`."""
        self.bytes[first - self.start : last - self.start] = self.data[first:last]

    def hide(self, first: int, last: int, stand_in: int = BLANK) -> None:
        """Blank it again; `stand_in`: the byte to use."""
        self.bytes[first - self.start : last - self.start] = bytes([stand_in]) * (last - first)

    def put(self, at: int, value: bytes) -> None:
        """Replace the bytes at `at`."""
        self.bytes[at - self.start : at - self.start + len(value)] = value

    def part(self, first: int, last: int) -> memoryview:
        """The replacement of `data[first:last]`. Released before the copy changes its length, which it never does."""
        return memoryview(self.bytes)[first - self.start : last - self.start]
