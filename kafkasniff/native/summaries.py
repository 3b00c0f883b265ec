"""Tables of summaries in memory for the kernel, and how it shows errors (`kernel/summary_errors.zig`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from kafkasniff.native.calls import address_of
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import texts_of


class SummaryTable:
    """The bytes of a table in memory for the kernel. Raises ValueError if they are invalid."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, table: bytes) -> None:
        if not kernel.check_summary(table, len(table)):
            raise ValueError("not a table of the kernel")
        self._bytes = ctypes.create_string_buffer(table, len(table))
        self.address = ctypes.addressof(self._bytes)


class _Paint(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64 * 2) for name in ("failure", "warning", "dim", "reset")),
        ("names", ctypes.c_void_p),
        ("names_size", ctypes.c_uint64),
        ("first", ctypes.c_int64),
    )


class SummaryPaint:
    """The texts before errors, throttling and a broker's words, the text after each, and the names of error codes."""

    def __init__(self, failure: str, warning: str, dim: str, reset: str, names: Mapping[int, str | None]) -> None:
        self._kept: list[bytes] = []
        first = min(names)
        known = (names.get(code) for code in range(first, max(names) + 1))
        self._names = texts_of((None if name is None else name.encode() for name in known), self._kept)
        paint = self._paint = _Paint(names=self._names.ctypes.data, names_size=len(self._names), first=first)
        for member, text in (("failure", failure), ("warning", warning), ("dim", dim), ("reset", reset)):
            encoded = text.encode()
            setattr(paint, member, (ctypes.c_uint64 * 2)(address_of(encoded, self._kept), len(encoded)))
        self.address = ctypes.addressof(paint)
