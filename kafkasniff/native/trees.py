"""How bodies are shown as trees below lines of text; `kernel/tree.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from kafkasniff.native.calls import address_of

TIME, ERROR_CODE, FIRST_ENUM = 1, 2, 3
"""Roles of ops in programs of trees: times in milliseconds, error codes, and from here on the values of enums."""
TIMES: Final = 0x80
"""Added to the role of an enum some of whose values are times."""
MAX_ENUMS: Final = TIMES - FIRST_ENUM
PAGE: Final = 256
"""Characters that are described at once."""

_TEXT: Final = [("text", np.uint64), ("size", np.uint64)]
_NAME: Final = np.dtype([("number", np.int64), ("key", _TEXT), ("name", _TEXT)])
_ENUM: Final = np.dtype([("values", np.uint64), ("size", np.uint64)])


class Colours(NamedTuple):
    """Codes before names, annotations and the place of the message, and after each."""

    name: bytes
    note: bytes
    dim: bytes
    reset: bytes


class EnumName(NamedTuple):
    """A value of an enum and its name."""

    value: int | bytes
    name: bytes


class _Style(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_uint64),
        ("enums", ctypes.c_void_p),
        ("enums_size", ctypes.c_uint64),
        ("pages", ctypes.c_void_p),
        *((name, ctypes.c_uint64 * 2) for name in Colours._fields),
    )


class TreeStyle:
    """What trees have in common. `address` is that of the structure.

    `width`: columns available; `characters`: how the characters of a page are shown (`printable.shown_characters`).
    """

    def __init__(self, colours: Colours, width: int, characters: Callable[[int], bytes]) -> None:
        style = self._style = _Style()
        self.address = ctypes.addressof(style)
        self._characters = characters
        self._kept: list[bytes] = []
        """Texts whose addresses the kernel has."""
        self._names: list[object] = []
        self._enums = np.zeros(MAX_ENUMS, _ENUM)
        self._pages = np.zeros(0x11_0000 // PAGE, np.uint64)
        style.width, style.enums, style.pages = width, self._enums.ctypes.data, self._pages.ctypes.data
        for name, code in zip(Colours._fields, colours, strict=True):
            getattr(style, name)[:] = address_of(code, self._kept), len(code)

    def add_enum(self, values: Iterable[EnumName]) -> int | None:
        """The role of fields with the values of an enum; None if there are too many enums."""
        style, kept = self._style, self._kept
        if style.enums_size == MAX_ENUMS:
            return None
        rows = [
            (value, (0, 0), (address_of(name, kept), len(name)))
            if isinstance(value, int)
            else (0, (address_of(value, kept), len(value)), (address_of(name, kept), len(name)))
            for value, name in values
        ]
        names = np.array(rows, _NAME)
        self._names.append(names)
        self._enums[style.enums_size] = names.ctypes.data, len(names)
        style.enums_size += 1
        return FIRST_ENUM + int(style.enums_size) - 1

    def add_page(self, number: int) -> None:
        """Describe the characters of a page."""
        self._pages[number] = address_of(self._characters(number * PAGE), self._kept)
