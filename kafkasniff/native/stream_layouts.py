"""Structures of the stream engine, as the kernel describes them (`kernel/stream_types.zig`, `layout`)."""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np

_CODES: Final = {
    "i1": ctypes.c_int8,
    "u1": ctypes.c_uint8,
    "i2": ctypes.c_int16,
    "u2": ctypes.c_uint16,
    "i4": ctypes.c_int32,
    "u4": ctypes.c_uint32,
    "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64,
}


class _Field(NamedTuple):
    name: str
    offset: int
    length: int
    """Elements of an array; 0: no array."""
    code: str


class Layouts:
    """The structures by name, from the kernel's description of them."""

    def __init__(self, text: str) -> None:
        self._fields: dict[str, list[_Field]] = {}
        self._sizes: dict[str, int] = {}
        for entry in text.split(";"):
            name, _, parts = entry.partition("=")
            for part in parts.split(","):
                if not part:
                    continue
                field, offset, code = part.split(":")
                if field == "size" and not code:
                    self._sizes[name] = int(offset)
                    continue
                count, _, one = code.rpartition("*")
                self._fields.setdefault(name, []).append(_Field(field, int(offset), int(count or 0), one))

    def rows(self, name: str) -> np.dtype[Any]:
        """The type of the rows of an array of these."""
        fields = self._fields[name]
        formats: list[Any] = [(one.code, (one.length,)) if one.length else one.code for one in fields]
        names, offsets = [one.name for one in fields], [one.offset for one in fields]
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self._sizes[name]})

    def structure(self, name: str) -> type[ctypes.Structure]:
        """A structure that is passed to a function."""
        found: list[tuple[str, Any]] = []
        end = 0
        for one in sorted(self._fields[name], key=lambda field: field.offset):
            if one.offset > end:
                found.append((f"padding_{end}", ctypes.c_uint8 * (one.offset - end)))
            element: Any = _CODES[one.code]
            kind = element * one.length if one.length else element
            found.append((one.name, kind))
            end = one.offset + ctypes.sizeof(kind)
        if end < self._sizes[name]:
            found.append((f"padding_{end}", ctypes.c_uint8 * (self._sizes[name] - end)))
        made: type[ctypes.Structure] = type(name, (ctypes.Structure,), {"_pack_": 1, "_fields_": found})
        assert ctypes.sizeof(made) == self._sizes[name]
        return made
