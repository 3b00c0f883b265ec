"""Splits an input into the numbers and bytes that a parser is called with. Every input is valid."""

from __future__ import annotations


class Intake:
    """Reads an input from its front; past the end there are zeros and no bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        """Bytes left."""
        return len(self._data) - self._at

    def number(self, width: int = 1, *, signed: bool = False) -> int:
        """A big-endian number of `width` bytes."""
        return int.from_bytes(self.take(width), "big", signed=signed)

    def take(self, count: int) -> bytes:
        """Up to `count` bytes."""
        found = self._data[self._at : self._at + count]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        return self.take(len(self))
