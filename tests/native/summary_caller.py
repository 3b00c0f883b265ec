"""Calls of the kernel that write summaries alone, with the memory and the names that they need."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.schema.errors import error_codes, error_name
from kafkasniff.native.caller import ITEM
from kafkasniff.native.calls import DONE, NO_ROOM, Item, SummaryCall
from kafkasniff.native.library import Kernel
from kafkasniff.native.names import LineNames, MessageSession
from kafkasniff.native.summaries import SummaryPaint

FIRST_OUTPUT = 64 << 10
MAX_OUTPUT = 8 << 20
ASKS = 5


class GivenNames:
    """What a test says of topics, and of the fetch session of the message at hand."""

    def __init__(self) -> None:
        self.names: Mapping[bytes, str] = {}
        self.learned = 0
        self.forgets = True
        self.partitions = -1

    def topic(self, topic_id: bytes) -> tuple[bytes | None, bool]:
        name = self.names.get(topic_id)
        return None if name is None else name.encode(), name is not None

    def session(self, index: int, first: int, second: int) -> MessageSession:
        return MessageSession(self.partitions, b"{}" if self.partitions >= 0 else None)

    def continue_sessions(self, steps: NDArray[np.uint32]) -> None:
        raise AssertionError("the kernel follows no sessions here")


class SummaryCaller:
    """Memory for calls, one at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.call = SummaryCall()
        self._pointer = ctypes.pointer(self.call)
        self._size = 0
        self._grow(FIRST_OUTPUT)
        self.given = GivenNames()
        self.names = LineNames(self.given)
        self.call.names = self.names.address
        self._paint = SummaryPaint("", "", "", "", {code: error_name(code) for code in error_codes()})
        self.call.paint = self._paint.address

    def _grow(self, size: int) -> None:
        output = bytearray(size)
        self.view, self._size = memoryview(output), size
        self.call.output = ctypes.addressof(ctypes.c_char.from_buffer(output))
        self.call.output_size = size

    def name_topics(self, names: Mapping[bytes, str]) -> None:
        """From here on these are the names of topic ids (16 bytes each)."""
        self.given.names = names
        self.given.learned += 1
        self.names.changed()

    def write(self, data: bytes, items: NDArray[np.void], session: int = -1) -> int:
        """Write the summaries of items (`caller.ITEM`) one after the other into `view`.

        An item's program is the address of a table, 0 where Python makes the summary. Its results are `status`,
        `output_end` and `after`, where the body ends. `session`: the partitions of the fetch session that items belong
        to, negative where they are unknown. Returns how many items were looked at, 1 or more.
        """
        self.given.partitions = session
        self.names.bind(len(items))
        place = ctypes.cast(items.ctypes.data, ctypes.POINTER(Item))
        while True:
            looked = int(self._kernel.summaries(self._pointer, data, len(data), place, len(items)))
            if looked < len(items) and items["status"][looked] == ASKS:
                assert self.names.answer()
            elif looked:
                return looked
            elif self._size >= MAX_OUTPUT:
                items["status"][0] = NO_ROOM
                items["output_end"][0] = self.call.written = 0
                return 1
            else:
                self._grow(min(4 * self._size, MAX_OUTPUT))

    def summaries(self, data: bytes, items: NDArray[np.void]) -> list[bytes | None]:
        """The summaries of items as UTF-8; None if Python makes them, as for bodies with trailing bytes."""
        found: list[bytes | None] = []
        while len(found) < len(items):
            rest = items[len(found) :]
            looked = self.write(data, rest)
            output = bytes(self.view[: self.call.written])
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
