"""Structures of Thrift's compact protocol, which Parquet's footers and page headers are: as much as bounds need.

Source: thrift/doc/specs/thrift-compact-protocol.md. Reading costs in proportion to the bytes, whatever they say.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_NESTING", "MAX_STRUCTS", "CompactReader"]

MAX_NESTING: Final = 32
"""Structures in each other; Parquet's are seven deep."""
MAX_STRUCTS: Final = 262_144
"""Structures in all. Each costs its reader some hundred bytes, up to a thousand for a column of a row group, and can be
one byte long. A file of 256 row groups with 60 columns has some 100,000."""


class CompactReader:
    """Reads one structure from bytes. Raises ValueError where they are none, are cut, or exceed the bounds."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._structs = 0
        self.at = 0
        """Bytes that were read."""

    def read(self) -> dict[int, Any]:
        """The numbers of a structure, and of those in it, by field; None stands for everything else."""
        try:
            found = self._struct(0)
        except IndexError:
            raise ValueError("it is cut") from None
        if self.at > len(self._data):
            raise ValueError("it is cut")
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _struct(self, depth: int) -> dict[int, Any]:
        self._structs += 1
        if depth > MAX_NESTING or self._structs > MAX_STRUCTS:
            raise ValueError(f"it has more than {MAX_STRUCTS} structures, or more than {MAX_NESTING} in each other")
        found: dict[int, Any] = {}
        field = 0
        while True:
            head = self._data[self.at]
            self.at += 1
            if not head:
                return found
            field = field + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            # Of a field the type is the value of a truth.
            found[field] = kind == 1 if kind in {1, 2} else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in {4, 5, 6}:
            return self._number()
        if kind == 12:
            return self._struct(depth + 1)
        if kind in {1, 2, 3}:
            self.at += 1
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            size = self._varint()
            self.at += size
        elif kind in {9, 10}:
            head = self._data[self.at]
            self.at += 1
            self._elements(head >> 4 if head >> 4 < 15 else self._varint(), (head & 15,), depth)
        elif kind == 11:
            size = self._varint()
            if size:
                kinds = self._data[self.at]
                self.at += 1
                self._elements(size, (kinds >> 4, kinds & 15), depth)
        else:
            raise ValueError(f"there is no type {kind}")
        return None

    def _elements(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        # Each element takes a byte at least.
        if size > len(self._data) - self.at:
            raise ValueError("it is cut")
        if depth > MAX_NESTING:
            raise ValueError(f"it has more than {MAX_NESTING} lists in each other")
        for _ in range(size):
            for kind in kinds:
                self._value(kind, depth + 1)
