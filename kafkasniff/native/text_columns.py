"""Columns of lines of text, padded by the kernel; `kernel/text_columns.zig` has the same structure and marks."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from kafkasniff.native.calls import address_of
from kafkasniff.native.library import Kernel
from kafkasniff.native.rows import grown

OUTPUT: Final = 1 << 20
"""Bytes padded at a time: most blocks of lines fit."""
MAX_WIDTH: Final = 1023
"""Width of the widest column: two digits."""
LAST: Final = "\x1fl"
"""Ends a line that has no spaces at its end."""

_TEXT: Final = np.dtype([("text", np.uint64), ("size", np.uint64)])
_COLUMNS: Final = {"ends": "e", "api": "a", "exchange": "x", "correlation": "r", "client": "c"}


def _digits(count: int, number: int) -> str:
    return "".join(chr(0x40 + (number >> 5 * place & 31)) for place in reversed(range(count)))


_MARKS: Final = {
    name: tuple(f"\x1f{kind}{_digits(2, width)}" for width in range(MAX_WIDTH + 1)) for name, kind in _COLUMNS.items()
}


def column_mark(column: str, width: int) -> str:
    """The end of a column, after its text of `width` terminal columns. Hot."""
    return _MARKS[column][min(width, MAX_WIDTH)]


def day_mark(date: str | None) -> str:
    """The beginning of a message's line; None: it has no time. Times of captures end in 2262."""
    return f"\x1fd{(date or '')[-10:]:10}"


def capture_mark(number: int) -> str:
    """Before that, the capture (`TextPadding.add_capture`), if captures are shown; 0: it has no name."""
    return f"\x1ff{_digits(4, number)}"


class _Columns(ctypes.Structure):
    _fields_ = (
        ("input", ctypes.c_void_p),
        ("input_size", ctypes.c_uint64),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in _COLUMNS),
        ("day_before", ctypes.c_char_p),
        ("day_before_size", ctypes.c_uint64),
        ("day_after", ctypes.c_char_p),
        ("day_after_size", ctypes.c_uint64),
        ("captures", ctypes.c_void_p),
        ("captures_size", ctypes.c_uint64),
        ("capture", ctypes.c_uint64),
        ("day", ctypes.c_char * 10),
    )


class TextPadding:
    """Pads consecutive lines. `day`: text before and after a date in its line; `widths`: at the beginning, by name."""

    def __init__(self, kernel: Kernel, day: tuple[bytes, bytes], widths: dict[str, int]) -> None:
        self._function = kernel.text_columns
        self._output = ctypes.create_string_buffer(OUTPUT)
        self._view = memoryview(self._output).cast("B")
        self._captures = np.zeros(1, _TEXT)
        self._count = 1
        self._kept: list[bytes] = []
        columns = self._columns = _Columns(**widths)
        columns.output, columns.output_size = ctypes.addressof(self._output), OUTPUT
        columns.day_before, columns.day_before_size = day[0], len(day[0])
        columns.day_after, columns.day_after_size = day[1], len(day[1])
        self._pointer = ctypes.pointer(columns)

    def add_capture(self, line: bytes) -> int:
        """The number of a capture that begins with this line."""
        number, self._count = self._count, self._count + 1
        known = self._captures = grown(self._captures, number, 16)
        known[number] = (address_of(line, self._kept), len(line))
        self._columns.captures, self._columns.captures_size = known.ctypes.data, self._count
        return number

    def pad(self, data: bytes) -> bytes | memoryview:
        """The next lines, or a piece of one without marks, as they are shown; a view is valid until the next call."""
        columns = self._columns
        pieces: list[bytes] = []
        columns.input, columns.input_size = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)
        columns.read = 0
        while columns.read < len(data):
            columns.written = 0
            self._function(self._pointer)
            if not pieces and columns.read == len(data):
                # Copying large blocks takes as long as padding them.
                return self._view[: columns.written]
            pieces.append(bytes(self._view[: columns.written]))
        return b"".join(pieces)
