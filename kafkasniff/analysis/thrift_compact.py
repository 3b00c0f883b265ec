"""Structures of Thrift's compact protocol, as used in Parquet's footers and page headers.

Source: thrift/doc/specs/thrift-compact-protocol.md. The cost of reading is proportional to the number of bytes,
whatever they contain. Fields that are not requested are skipped; a field of an unexpected type is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "MAX_NESTING",
    "MAX_STRUCTS",
    "CompactReader",
    "Element",
    "FieldKind",
    "Shape",
    "list_of",
    "number",
    "structure",
    "text",
]

MAX_NESTING: Final = 32
"""Maximum nesting of structures; Parquet's are seven deep."""
MAX_STRUCTS: Final = 262_144
"""Maximum number of structures. Each costs the reader some hundred bytes but can be one byte long. A file of 256 row
groups with 60 columns has some 100,000.
"""

_TRUE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (1, *range(3, 13))
_BITS: Final = {_I16: 16, _I32: 32, _I64: 64}


class FieldKind(Enum):
    """Expected type of a field's value."""

    NUMBER = 1
    """An i16, i32 or i64, as an int."""
    TEXT = 2
    """Bytes."""
    PLACES = 3
    """A list of structures: the offset of each; the structures are skipped."""


Shape: TypeAlias = "dict[int, FieldKind | Shape | tuple[Shape]]"
"""The requested fields of a structure by id. A field that is a structure itself has its own shape. A list of structures
has their shape in a tuple, and is read as `Element`s.
"""


class Element(NamedTuple):
    """A structure of a list."""

    start: int
    """Its offset."""
    end: int
    fields: dict[int, Any]


class CompactReader:
    """Reads one structure from bytes. Raises ValueError if they are invalid, truncated, or exceed the bounds."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._structs = 0
        self.at = at
        """Offset of the next byte to be read."""

    def read(self, shape: Shape) -> dict[int, Any]:
        """The requested fields that exist."""
        try:
            return self._struct(shape, 0)
        except IndexError:
            raise ValueError("it is truncated") from None

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")
        if value >> 64:
            raise ValueError("a number is too long")
        return value

    def _number(self, bits: int) -> int:
        """Arrow would use the lowest bits of a number that is too large."""
        value = self._data[self.at]
        if value < 0x80:
            self.at += 1
            return (value >> 1) ^ -(value & 1)
        value = self._varint()
        if value >> bits:
            raise ValueError(f"a number has more than {bits} bits")
        return (value >> 1) ^ -(value & 1)

    def _count(self, depth: int) -> None:
        self._structs += 1
        if depth > MAX_NESTING or self._structs > MAX_STRUCTS:
            raise ValueError(
                f"it has more than {MAX_STRUCTS} structures, or is nested more than {MAX_NESTING} levels deep"
            )

    def _struct(self, shape: Shape, depth: int) -> dict[int, Any]:
        self._count(depth)
        found: dict[int, Any] = {}
        field = 0
        while True:
            head = self._data[self.at]
            self.at += 1
            if not head:
                return found
            field = field + (head >> 4) if head >> 4 else self._number(16)
            if not 0 <= field < 1 << 15:
                raise ValueError(f"there is no field {field}")
            wanted = shape.get(field)
            kind = head & 15
            if wanted is None:
                # For a boolean, the type of a field is its value; an element of a list has a byte for it.
                self.at = self.at if kind in {1, 2} else self._skip(self.at, kind, depth)
            elif wanted is FieldKind.NUMBER and kind in _BITS:
                found[field] = self._number(_BITS[kind])
            else:
                found[field] = self._wanted(field, wanted, kind, depth)

    def _wanted(self, field: int, wanted: FieldKind | Shape | tuple[Shape], kind: int, depth: int) -> Any:
        if isinstance(wanted, tuple):
            if kind == _LIST:
                return self._elements(field, wanted[0], depth)
        elif isinstance(wanted, dict):
            if kind == _STRUCT:
                return self._struct(wanted, depth + 1)
        elif wanted is FieldKind.TEXT:
            if kind == _BINARY:
                size = self._varint()
                self.at += size
                if self.at > len(self._data):
                    raise ValueError("it is truncated")
                return self._data[self.at - size : self.at]
        elif wanted is FieldKind.PLACES and kind == _LIST:
            return self._places(field, depth)
        raise ValueError(f"its field {field} has type {kind}")

    def _elements(self, field: int, shape: Shape, depth: int) -> list[Element]:
        found = []
        for _ in range(self._structures(field)):
            start = self.at
            fields = self._struct(shape, depth + 2)
            found.append(Element(start, self.at, fields))
        return found

    def _places(self, field: int, depth: int) -> list[int]:
        """Offset of each structure of a list."""
        places = []
        for _ in range(self._structures(field)):
            places.append(self.at)
            self.at = self._skip_struct(self.at, depth + 2)
        return places

    def _structures(self, field: int) -> int:
        """Number of elements of the list that begins here."""
        size, kind = self._list_head()
        if size and kind != _STRUCT:
            raise ValueError(f"its field {field} is a list of type {kind}")
        return size

    def _list_head(self) -> tuple[int, int]:
        head = self._data[self.at]
        self.at += 1
        size = head >> 4 if head >> 4 < 15 else self._varint()
        self._check_size(size)
        return size, head & 15

    def _check_size(self, size: int) -> None:
        # Each element takes at least one byte.
        if size > len(self._data) - self.at:
            raise ValueError("it is truncated")

    # -- skipping, as for most of a footer: offsets are passed along, which is faster

    def _skip_struct(self, at: int, depth: int) -> int:
        self._count(depth)
        data = self._data
        while True:
            head = data[at]
            at += 1
            if not head:
                return at
            if head < 16:
                at = _after_number(data, at)
            kind = head & 15
            if kind in _BITS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == _BINARY and data[at] < 128:
                at += data[at] + 1
            elif kind > 2 or not kind:
                at = self._skip(at, kind, depth)

    def _skip(self, at: int, kind: int, depth: int) -> int:
        data = self._data
        if kind == _LIST and data[at] < 0xF0 and data[at] & 15 in _BITS:
            for _ in range(data[at] >> 4):
                at += 1
                while data[at] > 127:
                    at += 1
            return at + 1
        if kind == _STRUCT:
            return self._skip_struct(at, depth + 1)
        if kind in _BITS:
            return _after_number(data, at)
        if kind == _BINARY:
            self.at = at
            size = self._varint()
            return self.at + size
        if kind in {1, 2, _BYTE}:
            return at + 1
        if kind == _DOUBLE:
            return at + 8
        self.at = at
        if kind in {_LIST, _SET}:
            size, element = self._list_head()
            return self._skip_elements(size, (element,), depth)
        if kind != _MAP:
            raise ValueError(f"there is no type {kind}")
        size = self._varint()
        self._check_size(size)
        if not size:
            return self.at
        kinds = self._data[self.at]
        self.at += 1
        return self._skip_elements(size, (kinds >> 4, kinds & 15), depth)

    def _skip_elements(self, size: int, kinds: tuple[int, ...], depth: int) -> int:
        if depth > MAX_NESTING:
            raise ValueError(f"its lists are nested more than {MAX_NESTING} levels deep")
        at = self.at
        for _ in range(size):
            for kind in kinds:
                at = self._skip(at, kind, depth + 1)
        return at


def _after_number(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


# -- writing: a value is the type of a field and its bytes


def structure(fields: Mapping[int, tuple[int, bytes]]) -> tuple[int, bytes]:
    """A structure of fields by their ids, in ascending order."""
    found = bytearray()
    last = 0
    for field, (kind, value) in fields.items():
        if not 0 < field - last < 16:
            raise ValueError(f"field {field} cannot follow field {last}")
        found.append((field - last) << 4 | kind)
        found += value
        last = field
    found.append(0)
    return _STRUCT, bytes(found)


def number(value: int, bits: int = 64) -> tuple[int, bytes]:
    """An i32 or i64."""
    return (_I32 if bits == 32 else _I64), _varint(value << 1 ^ value >> 63)


def text(value: bytes) -> tuple[int, bytes]:
    """Bytes, with their length."""
    return _BINARY, _varint(len(value)) + value


def list_of(elements: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """A list of values of one type."""
    values = list(elements)
    kind = values[0][0] if values else _STRUCT
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + _varint(len(values))
    return _LIST, head + b"".join(value for _, value in values)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
