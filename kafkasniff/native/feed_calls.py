"""Streams in the native kernel: memory for connections in step; packets in, messages out (`kernel/feed.zig`).

This module handles memory, and knows nothing of Kafka; `engine.in_step` hands connections over and takes them back.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.feed import (
    ARENA,
    COLUMNS,
    CONNECTION,
    HELD,
    KEYS,
    MARKS,
    MAX_FRAME,
    MESSAGE,
    NO_ROW,
    NONE,
    UNKNOWN_KIND,
    VERSIONS,
    WAITING,
    FeedCall,
)
from kafkasniff.native.library import Kernel
from kafkasniff.native.rows import copied
from kafkasniff.tcp.packets import PacketBatch

__all__ = ["Fed", "Feed"]

FIRST_CONNECTIONS: Final = 64
FIRST_WAITING: Final = 1024
FIRST_HELD: Final = 64
SPARE_MESSAGES: Final = 256
FIRST_ARENA: Final = 1 << 16

_DONE, _NO_MESSAGES, _NO_ARENA, _NO_WAITING, _UNKNOWN, _NO_HELD, _JUDGE = range(7)


class Fed(msgspec.Struct, frozen=True):
    """Result for a batch."""

    messages: NDArray[np.void]
    """`MESSAGE`, in the order of the packets that completed them."""
    left: NDArray[np.uint32]
    """Rows of the batch that were not processed, ascending."""
    back: list[int]
    """Connections that left."""
    arena: bytes
    """Bytes of messages with the flag `ARENA`; the rest of it is undefined."""
    bytes: int
    """Bytes of the streams that were processed, and those of completed frames."""
    framed: int
    repeated: int
    """Retransmitted bytes."""
    kept: int
    """Bytes of incomplete frames, of segments after holes, and of early responses."""
    begun: list[tuple[int, int]]
    """Connections that began here: index, and the row of the SYN."""
    judged: list[tuple[int, int]]
    """Connections whose first request was accepted, and its row; not `JUDGED` if its packet was left to Python."""


_NOTHING: Final = np.zeros(0, np.uint32)


class Feed:
    """Memory for connections, and the calls. `idle`: nanoseconds of silence after which a connection has ended.

    `every_end`: report exchanges, with their retransmissions. `kind`: returns the facts about an API's version
    (`feed.Kind`) by its code, key times `VERSIONS` plus version. `judge`: returns whether bytes are a request that a
    connection can begin with.
    """

    def __init__(
        self,
        kernel: Kernel,
        kind: Callable[[int], int],
        judge: Callable[[bytes, int, int], bool],
        *,
        idle: int,
        max_frame: int,
        every_end: bool,
    ) -> None:
        self._kernel = kernel
        self._kind = kind
        self._judge = judge
        self._call = call = FeedCall()
        self._address = ctypes.addressof(call)
        call.idle, call.max_frame, call.every_end = idle, min(max_frame, MAX_FRAME), every_end
        ctypes.memmove(call.secret, os.urandom(ctypes.sizeof(call.secret)), ctypes.sizeof(call.secret))
        self._kinds = np.full(KEYS * VERSIONS, UNKNOWN_KIND, np.uint8)
        call.kinds = self._kinds.ctypes.data
        self.connections: NDArray[np.void] = np.zeros(0, CONNECTION)
        """By index; views of it are invalid after `add`."""
        self.waiting: NDArray[np.void] = np.zeros(0, WAITING)
        self.held: NDArray[np.void] = np.zeros(0, HELD)
        self._active: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._unused: list[int] = []
        """Free indices of connections, the lowest last."""
        self._table: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._entered = 0
        self.arena = _unfilled(FIRST_ARENA)
        """Incomplete frames, and those that were in pieces."""
        call.arena, call.arena_size = _address(self.arena), len(self.arena)
        self._messages: NDArray[np.void] = np.zeros(0, MESSAGE)
        call.free = call.free_held = NONE
        self._grow_waiting(FIRST_WAITING)
        self._grow_connections(FIRST_CONNECTIONS)

    # -- connections ------------------------------------------------------------------------------------------------

    def add(self, endpoints: tuple[tuple[int, int, int], tuple[int, int, int]]) -> int:
        """The index of a connection between these endpoints; the caller writes its state there."""
        self._make_room(1)
        index = self._unused.pop()
        found = self.connections[index]
        found["here"] = 0
        for side, (high, low, port) in enumerate(endpoints):
            found["high"][side], found["low"][side], found["port"][side] = high, low, port
        self._kernel.feed_enter(self._address, index)
        return index

    def _make_room(self, count: int) -> None:
        while len(self._unused) < count:
            self._grow_connections(2 * len(self.connections))

    def activate(self, index: int) -> None:
        """A connection whose state was written may have an incomplete frame."""
        found = self.connections[index]
        if not found["active"]:
            found["active"] = 1
            self._active[self._call.active_used] = index
            self._call.active_used += 1

    def remove(self, index: int) -> None:
        """A connection has ended."""
        self._kernel.feed_forget(self._address, index)
        self.connections["here"][index] = 0
        self._unused.append(index)

    def _grow_connections(self, count: int) -> None:
        before = len(self.connections)
        # Pages of it that nobody writes take no memory.
        grown = np.zeros(count, CONNECTION)
        self.memory = grown.view(np.uint8).data
        """The bytes of `connections`."""
        grown[:before] = self.connections
        self.connections = grown
        self._unused = [*range(count - 1, before - 1, -1), *self._unused]
        self._table = np.full(4 * count, NONE, np.uint32)
        active = np.zeros(count, np.uint32)
        active[:before] = self._active
        self._active = active
        call = self._call
        call.active = active.ctypes.data
        call.connections, call.connections_size = grown.ctypes.data, count
        call.table, call.table_size = self._table.ctypes.data, len(self._table)
        for index in range(before):
            self._kernel.feed_enter(self._address, index)

    # -- requests without a response ----------------------------------------------------------------------------------

    def wait(self) -> int:
        """The index of an entry for a waiting request."""
        if self._call.free == NONE:
            self._grow_waiting(2 * len(self.waiting))
        index: int = self._call.free
        self._call.free = int(self.waiting["next"][index])
        return index

    def wait_no_more(self, index: int) -> None:
        """Free the entry."""
        self.waiting["next"][index] = self._call.free
        self._call.free = index

    def _grow_waiting(self, count: int) -> None:
        before = len(self.waiting)
        self.waiting_memory = bytearray(count * WAITING.itemsize)
        """The bytes of `waiting`."""
        grown = np.frombuffer(self.waiting_memory, WAITING)
        grown[:before] = self.waiting
        grown["next"][before:] = np.arange(before + 1, count + 1)
        grown["next"][-1] = self._call.free
        self.waiting = grown
        self._call.free = before
        self._call.waiting, self._call.waiting_size = grown.ctypes.data, count

    # -- segments after holes, early responses ------------------------------------------------------------------------

    def hold_no_more(self, index: int) -> None:
        """Free the entry."""
        self.held["next"][index] = self._call.free_held
        self._call.free_held = index

    def _grow_held(self) -> None:
        before = len(self.held)
        count = max(2 * before, FIRST_HELD)
        self.held_memory = bytearray(count * HELD.itemsize)
        """The bytes of `held`."""
        grown = np.frombuffer(self.held_memory, HELD)
        grown[:before] = self.held
        grown["next"][before:] = np.arange(before + 1, count + 1)
        grown["next"][-1] = self._call.free_held
        self.held = grown
        self._call.free_held = before
        self._call.held, self._call.held_size = grown.ctypes.data, count

    # -- packets ------------------------------------------------------------------------------------------------------

    def put(self, data: bytes) -> int:
        """Copy bytes of an incomplete frame into the arena; returns their position."""
        at: int = self._call.arena_used
        end = at + len(data)
        if end > len(self.arena):
            self._grow_arena(2 * end)
        ctypes.memmove(_address(self.arena) + at, data, len(data))
        self._call.arena_used = end
        return at

    def kind(self, code: int) -> int:
        """Facts about a version of an API."""
        if self._kinds[code] == UNKNOWN_KIND:
            self._kinds[code] = self._kind(code)
        return int(self._kinds[code])

    def _grow_arena(self, size: int) -> None:
        grown = _unfilled(size)
        ctypes.memmove(_address(grown), self.arena, self._call.arena_used)
        self.arena = grown
        self._call.arena, self._call.arena_size = _address(grown), size

    def feed(self, batch: PacketBatch, clock: NDArray[np.int64], begins: NDArray[np.uint32] = _NOTHING) -> Fed:
        """Process the packets of connections that are here; `clock`: the packet clock at each row.

        `begins`: rows with a SYN of an unknown connection, ascending.
        """
        call, rows = self._call, len(batch)
        beginning = self._begin(begins)
        judged: list[tuple[int, int]] = []
        before = self.arena
        # Incomplete data is less than the used part; the pieces of this batch are moved at most twice.
        self.arena = _unfilled(call.arena_used + 2 * int(batch.length.sum(dtype=np.int64)) + FIRST_ARENA)
        call.arena, call.arena_size, call.arena_used = _address(self.arena), len(self.arena), 0
        self._kernel.feed_carry(self._address, _address(before))
        for name in COLUMNS:
            column = clock if name == "clock" else getattr(batch, name)
            setattr(call, name, column.ctypes.data)
        call.rows, call.row = rows, 0
        call.buffer, call.buffer_size = batch.buffer, len(batch.buffer)
        if len(self._messages) < rows + SPARE_MESSAGES:
            self._messages = np.empty(rows + SPARE_MESSAGES, MESSAGE)
        call.messages, call.messages_size = self._messages.ctypes.data, len(self._messages)
        left = np.empty(rows, np.uint32)
        back = np.empty(len(self.connections), np.uint32)
        call.left, call.back = left.ctypes.data, back.ctypes.data
        call.messages_used = call.left_used = call.back_used = call.bytes = call.framed = call.repeated = 0
        while True:
            status = self._kernel.feed(self._address)
            if status == _DONE:
                break
            if status == _NO_MESSAGES:
                grown = np.empty(2 * len(self._messages), MESSAGE)
                grown[: len(self._messages)] = self._messages
                self._messages = grown
                call.messages, call.messages_size = grown.ctypes.data, len(grown)
            elif status == _NO_ARENA:
                self._grow_arena(2 * len(self.arena))
            elif status == _NO_WAITING:
                self._grow_waiting(2 * len(self.waiting))
            elif status == _NO_HELD:
                self._grow_held()
            elif status == _JUDGE:
                start, row = call.asked_at, call.row
                call.judged_row, call.judged = row, self._judge(batch.buffer, start, start + call.asked_size)
                if call.judged:
                    judged.append((call.asked_connection, row))
            else:
                self._kinds[call.asked] = self._kind(call.asked)
        messages = copied(self._messages[: call.messages_used])
        in_arena = bool((messages["flags"] & ARENA).any())
        return Fed(
            messages,
            left[: call.left_used],
            back[: call.back_used].tolist(),
            self.arena if in_arena else b"",
            call.bytes,
            call.framed,
            call.repeated,
            call.kept,
            self._begun(beginning),
            judged,
        )

    def _begin(self, begins: NDArray[np.uint32]) -> list[NDArray[Any]]:
        """Let connections begin with these rows; returns the call's memory: rows, places and their rows, marks."""
        call, count = self._call, len(begins)
        call.begins_size, call.begins_used, call.places_used, call.judged_row = count, 0, 0, NO_ROW
        if not count:
            return []
        self._make_room(count)
        places = np.array(self._unused[: -count - 1 : -1], np.uint32)
        memory: list[NDArray[Any]] = [begins, places, np.empty(count, np.uint32), np.zeros(MARKS, np.uint8)]
        call.begins, call.places, call.places_rows, call.marks = (column.ctypes.data for column in memory)
        return memory

    def _begun(self, memory: list[NDArray[Any]]) -> list[tuple[int, int]]:
        """The connections that began, and the rows of their SYNs."""
        count: int = self._call.places_used
        if not count:
            return []
        del self._unused[-count:]
        _, places, rows, _ = memory
        return list(zip(places[:count].tolist(), rows[:count].tolist(), strict=True))


_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object


def _unfilled(size: int) -> bytes:
    """Uninitialized bytes for the kernel to fill; the rest is never read (like C's `PyBytes_FromStringAndSize`)."""
    made: bytes = _new_bytes(None, size)
    return made


def _address(data: bytes) -> int:
    """The address of bytes, valid while they are kept."""
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found
