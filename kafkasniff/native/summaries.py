"""Tables of summaries in memory for the kernel."""

from __future__ import annotations

import ctypes

from kafkasniff.native.library import Kernel

__all__ = ["SummaryTable"]


class SummaryTable:
    """The bytes of a table in memory for the kernel. Raises ValueError if they are invalid."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, table: bytes) -> None:
        if not kernel.check_summary(table, len(table)):
            raise ValueError("not a table of the kernel")
        self._bytes = ctypes.create_string_buffer(table, len(table))
        self.address = ctypes.addressof(self._bytes)
