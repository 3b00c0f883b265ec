"""A copy of some bytes in which nothing is shown until somebody keeps it."""

from __future__ import annotations

from typing import Final

__all__ = ["BLANK", "Copied"]

BLANK: Final = 0xFF
"""What stands for bytes. As a length it is impossible, and nothing is taken for a value that was never there: a stream
that was out of step there is so again, and zeros would be records of Kafka's own topics, ids of schemas, nulls."""


class Copied:
    """Blank bytes, as many as `data[start:end]`; places are those in `data`."""

    __slots__ = ("bytes", "data", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.bytes = bytearray([BLANK]) * (end - start)

    def keep(self, first: int, last: int) -> None:
        """Show `data[first:last]`."""
        self.bytes[first - self.start : last - self.start] = self.data[first:last]

    def hide(self, first: int, last: int, stand_in: int = BLANK) -> None:
        """Show it no more; `stand_in`: the byte that stands there instead."""
        self.bytes[first - self.start : last - self.start] = bytes([stand_in]) * (last - first)

    def put(self, at: int, value: bytes) -> None:
        """Bytes in place of those at `at`."""
        self.bytes[at - self.start : at - self.start + len(value)] = value

    def part(self, first: int, last: int) -> memoryview:
        """What stands for `data[first:last]`. Released before the copy changes its length, which it never does."""
        return memoryview(self.bytes)[first - self.start : last - self.start]
