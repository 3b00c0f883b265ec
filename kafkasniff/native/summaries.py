"""Calls of the kernel that write summaries, with the memory and the names that they need."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import ITEM
from kafkasniff.native.calls import DONE, NO_ROOM, Item, SummaryCall
from kafkasniff.native.library import Kernel

__all__ = ["SummaryCaller", "SummaryTable", "items_of"]

FIRST_OUTPUT: Final = 64 << 10
"""Bytes of summaries of one call: 128 messages take some 8 KiB."""
MAX_OUTPUT: Final = 8 << 20
"""Bytes of one summary at most: a longer one is Python's."""


class SummaryTable:
    """The bytes of a table where the kernel finds them. Raises ValueError where they are none."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, table: bytes) -> None:
        if not kernel.check_summary(table, len(table)):
            raise ValueError("not a table of the kernel")
        self._bytes = ctypes.create_string_buffer(table, len(table))
        self.address = ctypes.addressof(self._bytes)


class SummaryCaller:
    """Memory for calls, one at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._call = SummaryCall()
        self._pointer = ctypes.pointer(self._call)
        self._size = 0
        self._grow(FIRST_OUTPUT)
        self.name_topics({})

    def _grow(self, size: int) -> None:
        output = bytearray(size)
        self.view, self._size = memoryview(output), size
        self._call.output = ctypes.addressof(ctypes.c_char.from_buffer(output))
        self._call.output_size = size

    def name_topics(self, names: Mapping[bytes, str]) -> None:
        """From here on these are the names of topic ids (16 bytes each)."""
        ids = sorted(names)
        texts = [names[topic_id].encode("utf-8", "surrogatepass") for topic_id in ids]
        self._ends = np.cumsum([len(text) for text in texts], dtype=np.uint32)
        self._ids, self._names = b"".join(ids), b"".join(texts)
        self.lend_topics(self._call)

    def lend_topics(self, call: SummaryCall) -> None:
        """Give a call the names, for as long as they stay and this caller is kept."""
        call.ids, call.names, call.topics = self._ids, self._names, len(self._ends)
        call.ends = self._ends.ctypes.data

    def write(self, data: bytes, items: NDArray[np.void], sessions: NDArray[np.int64] | None = None) -> int:
        """Write the summaries of items (`caller.ITEM`) one behind the other into `view`; hot.

        An item's program is the address of a table, 0 where Python makes the summary. Its results are `status`,
        `output_end` and `after`, where the body ends. `sessions`: the partitions of the fetch session that an item
        belongs to, negative where they are unknown; without it, Python makes such summaries. Returns how many items
        were looked at, 1 or more.
        """
        call = self._call
        call.sessions = None if sessions is None else sessions.ctypes.data
        place = ctypes.cast(items.ctypes.data, ctypes.POINTER(Item))
        while (looked := self._kernel.summaries(self._pointer, data, len(data), place, len(items))) == 0:
            if self._size >= MAX_OUTPUT:
                items["status"][0] = NO_ROOM
                items["output_end"][0] = call.written = 0
                return 1
            self._grow(min(4 * self._size, MAX_OUTPUT))
        return int(looked)

    def summaries(
        self, data: bytes, items: NDArray[np.void], sessions: NDArray[np.int64] | None = None
    ) -> list[bytes | None]:
        """The summaries of items as UTF-8; None where Python makes them, as of bodies with bytes behind them."""
        found: list[bytes | None] = []
        while len(found) < len(items):
            rest = items[len(found) :]
            looked = self.write(data, rest, None if sessions is None else sessions[len(found) :])
            output = bytes(self.view[: self._call.written])
            begin = 0
            names = ("status", "output_end", "after", "end")
            columns = (rest[name][:looked].tolist() for name in names)
            for status, stop, after, end in zip(*columns, strict=True):
                found.append(output[begin:stop] if status == DONE and after == end else None)
                begin = stop
        return found


def items_of(addresses: list[int], starts: list[int], ends: list[int]) -> NDArray[np.void]:
    """Items for calls: the table of each message, and where its body is."""
    items = np.zeros(len(addresses), ITEM)
    items["program"], items["start"], items["end"] = addresses, starts, ends
    return items
