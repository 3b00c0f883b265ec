"""A copy of some bytes, all blank until they are explicitly kept."""

from __future__ import annotations

from typing import Final

__all__ = ["BLANK", "Copied", "Visible"]

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

    def differs(self, first: int, last: int) -> bool:
        """Whether any of `data[first:last]` was replaced by something else."""
        return self.part(first, last) != memoryview(self.data)[first:last]

    def part(self, first: int, last: int) -> memoryview:
        """The replacement of `data[first:last]`. Released before the copy changes its length, which it never does."""
        return memoryview(self.bytes)[first - self.start : last - self.start]


class Visible(Copied):
    """Which bytes may be shown: 1 for each that was kept, 0 for blanks and for anything that was put in their place."""

    __slots__ = ()

    def __init__(self, data: bytes, start: int, end: int) -> None:
        super().__init__(data, start, end)
        self.bytes = bytearray(end - start)

    def keep(self, first: int, last: int) -> None:
        """Show `data[first:last]`."""
        self.bytes[first - self.start : last - self.start] = b"\1" * (last - first)

    def hide(self, first: int, last: int, stand_in: int = BLANK) -> None:
        """Blank it again."""
        self.bytes[first - self.start : last - self.start] = bytes(last - first)

    def put(self, at: int, value: bytes) -> None:
        """Hide the bytes at `at`, which `value` replaces elsewhere."""
        self.hide(at, at + len(value))

    def differs(self, first: int, last: int) -> bool:
        """Whether any of these bytes is hidden."""
        return self.bytes.find(0, first - self.start, last - self.start) >= 0
