"""Streams in the native kernel: memory for connections in step, and packets in, messages out (`kernel/feed.zig`).

This module knows rows of memory and no Kafka; `kafkasniff.in_step` hands connections over and takes them back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.library import Kernel
from kafkasniff.packets import PacketBatch

__all__ = [
    "ARENA",
    "CONNECTION",
    "KEYS",
    "MAX_FRAME",
    "MESSAGE",
    "NONE",
    "RECENT",
    "REQUEST",
    "TAGS",
    "VERSIONS",
    "WAITING",
    "Fed",
    "Feed",
    "packing",
]

KEYS: Final = 128
VERSIONS: Final = 32
"""API keys and versions below these are looked up; there are none above."""
RECENT: Final = 16
NONE: Final = 0xFFFF_FFFF
"""No index."""
REQUEST: Final = 1
ARENA: Final = 2
TAGS: Final = 4
"""Bits of a message's `flags`."""

FIRST_CONNECTIONS: Final = 64
FIRST_WAITING: Final = 1024
FIRST_HELD: Final = 64
SPARE_MESSAGES: Final = 256

MAX_FRAME: Final = 4 << 20
"""Bytes of a frame; larger ones are Python's (`feed.MAX_FRAME`)."""
FIRST_ARENA: Final = 1 << 16
UNKNOWN_KIND: Final = 0x80

_DONE, _NO_MESSAGES, _NO_ARENA, _NO_WAITING, _UNKNOWN, _NO_HELD = range(6)

_PIECE: Final = np.dtype(
    [
        ("at", np.uint64),
        ("have", np.uint32),
        ("room", np.uint32),
        ("need", np.uint32),
        ("sized", np.uint32),
        *((name, np.int64) for name in ("first_packet", "last_packet", "first_time", "last_time")),
    ],
    align=True,
)
_RECENT: Final = np.dtype([(name, np.uint32) for name in ("seq", "wire", "ident")])
_STREAM: Final = np.dtype(
    [
        ("next", np.uint32),
        ("ack", np.uint32),
        ("bytes", np.uint64),
        ("framed", np.uint64),
        ("piece", _PIECE),
        ("packets", np.uint64),
        ("recent", _RECENT, (RECENT,)),
        *((name, np.uint64) for name in ("before", "repeated")),
        *((name, np.uint32) for name in ("held", "held_last", "held_count", "held_bytes")),
        *((name, np.int64) for name in ("opened", "acked")),
    ],
    align=True,
)
_DIALOGUE: Final = np.dtype(
    [
        ("ordinal", np.int64),
        ("last_id", np.int32),
        ("last_answer", np.int32),
        *((name, np.uint8) for name in ("has_last_id", "has_last_answer", "ids_vary", "ids_rise")),
        *((name, np.uint32) for name in ("most", "first", "last", "count", "retransmits")),
        *((name, np.int64) for name in ("order", "time", "packet")),
    ],
    align=True,
)
CONNECTION: Final = np.dtype(
    [
        ("high", np.uint64, (2,)),
        ("low", np.uint64, (2,)),
        ("port", np.uint16, (2,)),
        *((name, np.uint8) for name in ("here", "client", "active", "spare")),
        ("retransmits", np.uint32),
        *((name, np.int64) for name in ("clock", "last_packet", "last_time")),
        ("packets", np.uint64),
        ("count", np.int64),
        ("dialogue", _DIALOGUE),
        ("streams", _STREAM, (2,)),
    ],
    align=True,
)
"""A connection (`feed.Connection`)."""
WAITING: Final = np.dtype(
    [
        *((name, np.int64) for name in ("ordinal", "first_time", "time")),
        ("correlation", np.int32),
        ("message", np.uint32),
        ("next", np.uint32),
        ("code", np.uint16),
        ("spare", np.uint16),
    ],
    align=True,
)
"""A request without a response (`feed.Waiting`)."""
HELD: Final = np.dtype(
    [
        ("at", np.uint64),
        *((name, np.int64) for name in ("packet", "time", "count", "clock")),
        *((name, np.uint32) for name in ("seq", "size", "next", "spare")),
    ],
    align=True,
)
"""A segment behind a hole (`feed.Held`)."""
MESSAGE: Final = np.dtype(
    [
        ("order", np.int64),
        ("start", np.uint64),
        *(
            (name, np.int64)
            for name in (
                "first_packet",
                "last_packet",
                "packet",
                "first_time",
                "time",
                "latency",
                "duration",
                "ordinal",
            )
        ),
        ("connection", np.uint32),
        ("size", np.uint32),
        ("pair", np.uint32),
        ("correlation", np.int32),
        ("body", np.uint32),
        ("code", np.uint16),
        ("client_id", np.int16),
        ("step", np.uint32),
        ("flags", np.uint8),
        ("spare", np.uint8),
        ("retransmits", np.uint16),
    ],
    align=True,
)
"""A message (`feed.Message`)."""

_COLUMNS: Final = (
    "order",
    "capture",
    "number",
    "time_ns",
    "clock",
    "src_hi",
    "src_lo",
    "dst_hi",
    "dst_lo",
    "src_port",
    "dst_port",
    "seq",
    "ack",
    "flags",
    "offset",
    "length",
    "wire_length",
    "ident",
)


class _Feed(ctypes.Structure):
    """`feed.Feed`."""

    _fields_ = (
        ("rows", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in _COLUMNS),
        ("buffer", ctypes.c_char_p),
        ("buffer_size", ctypes.c_uint64),
        ("connections", ctypes.c_void_p),
        ("connections_size", ctypes.c_uint64),
        ("table", ctypes.c_void_p),
        ("table_size", ctypes.c_uint64),
        ("waiting", ctypes.c_void_p),
        ("waiting_size", ctypes.c_uint64),
        ("held", ctypes.c_void_p),
        ("held_size", ctypes.c_uint64),
        ("active", ctypes.c_void_p),
        ("active_used", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("free", "free_held", "max_frame", "every_end")),
        ("idle", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("row", ctypes.c_uint64),
        ("arena", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("arena_used", ctypes.c_uint64),
        ("messages", ctypes.c_void_p),
        ("messages_size", ctypes.c_uint64),
        ("messages_used", ctypes.c_uint64),
        ("left", ctypes.c_void_p),
        ("left_used", ctypes.c_uint64),
        ("back", ctypes.c_void_p),
        ("back_used", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("framed", "repeated", "kept")),
        ("asked", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
    )


class Fed(NamedTuple):
    """What came of a batch."""

    messages: NDArray[np.void]
    """`MESSAGE`, in the order of the packets that completed them."""
    left: NDArray[np.uint32]
    """Rows of the batch that were not taken, rising."""
    back: list[int]
    """Connections that are no longer here."""
    arena: bytes
    """What messages with the flag `ARENA` refer to; nothing else in it means anything."""
    bytes: int
    """Bytes of the streams that were taken, and those of frames that became whole."""
    framed: int
    repeated: int
    """Bytes that came twice."""
    kept: int
    """Bytes of unfinished frames and of segments behind holes."""


class Feed:
    """Memory for connections, and the calls. `idle`: nanoseconds of silence after which a connection is over.

    `every_end`: exchanges are wanted, and with them how many retransmissions there were. `kind`: returns what is known
    of a version of an API (`feed.Kind`) by its code, key times `VERSIONS` plus version.
    """

    def __init__(
        self, kernel: Kernel, kind: Callable[[int], int], *, idle: int, max_frame: int, every_end: bool
    ) -> None:
        self._kernel = kernel
        self._kind = kind
        self._call = call = _Feed()
        self._address = ctypes.addressof(call)
        call.idle, call.max_frame, call.every_end = idle, min(max_frame, MAX_FRAME), every_end
        self._kinds = np.full(KEYS * VERSIONS, UNKNOWN_KIND, np.uint8)
        call.kinds = self._kinds.ctypes.data
        self.connections: NDArray[np.void] = np.zeros(0, CONNECTION)
        """By index; whoever holds views of it looks again after `add`."""
        self.waiting: NDArray[np.void] = np.zeros(0, WAITING)
        self.held: NDArray[np.void] = np.zeros(0, HELD)
        self._active: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._unused: list[int] = []
        """Indices of connections that are free, the lowest last."""
        self._table: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._entered = 0
        self.arena = _unfilled(FIRST_ARENA)
        """Frames that are not whole, and those that were in pieces."""
        call.arena, call.arena_size = _address(self.arena), len(self.arena)
        self._messages: NDArray[np.void] = np.zeros(0, MESSAGE)
        call.free = call.free_held = NONE
        self._grow_waiting(FIRST_WAITING)
        self._grow_connections(FIRST_CONNECTIONS)

    # -- connections ------------------------------------------------------------------------------------------------

    def add(self, endpoints: tuple[tuple[int, int, int], tuple[int, int, int]]) -> int:
        """The index of a connection between these endpoints, whose state is to be written there."""
        if not self._unused:
            self._grow_connections(2 * len(self.connections))
        index = self._unused.pop()
        found = self.connections[index]
        found["here"] = 0
        for side, (high, low, port) in enumerate(endpoints):
            found["high"][side], found["low"][side], found["port"][side] = high, low, port
        self._kernel.feed_enter(self._address, index)
        return index

    def activate(self, index: int) -> None:
        """A connection whose state was written may have an unfinished frame."""
        found = self.connections[index]
        if not found["active"]:
            found["active"] = 1
            self._active[self._call.active_used] = index
            self._call.active_used += 1

    def remove(self, index: int) -> None:
        """A connection is over."""
        self._kernel.feed_forget(self._address, index)
        self.connections["here"][index] = 0
        self._unused.append(index)

    def _grow_connections(self, count: int) -> None:
        before = len(self.connections)
        self.memory = bytearray(count * CONNECTION.itemsize)
        """The bytes of `connections`."""
        grown = np.frombuffer(self.memory, CONNECTION)
        grown[:before] = self.connections
        self.connections = grown
        self._unused = list(range(count - 1, before - 1, -1))
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
        """The index of an entry for a request that waits."""
        if self._call.free == NONE:
            self._grow_waiting(2 * len(self.waiting))
        index: int = self._call.free
        self._call.free = int(self.waiting["next"][index])
        return index

    def wait_no_more(self, index: int) -> None:
        """The entry is free."""
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

    # -- segments behind holes ----------------------------------------------------------------------------------------

    def hold_no_more(self, index: int) -> None:
        """The entry is free."""
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
        """Put bytes of an unfinished frame into the arena; returns where."""
        at: int = self._call.arena_used
        end = at + len(data)
        if end > len(self.arena):
            self._grow_arena(2 * end)
        ctypes.memmove(_address(self.arena) + at, data, len(data))
        self._call.arena_used = end
        return at

    def kind(self, code: int) -> int:
        """What is known of a version of an API."""
        if self._kinds[code] == UNKNOWN_KIND:
            self._kinds[code] = self._kind(code)
        return int(self._kinds[code])

    def _grow_arena(self, size: int) -> None:
        grown = _unfilled(size)
        ctypes.memmove(_address(grown), self.arena, self._call.arena_used)
        self.arena = grown
        self._call.arena, self._call.arena_size = _address(grown), size

    def feed(self, batch: PacketBatch, clock: NDArray[np.int64]) -> Fed:
        """Take the packets of connections that are here; `clock`: the packet clock at each row."""
        call, rows = self._call, len(batch)
        before = self.arena
        # What is unfinished is less than what is used; the pieces of this batch are moved twice at most.
        self.arena = _unfilled(call.arena_used + 2 * int(batch.length.sum(dtype=np.int64)) + FIRST_ARENA)
        call.arena, call.arena_size, call.arena_used = _address(self.arena), len(self.arena), 0
        self._kernel.feed_carry(self._address, _address(before))
        for name in _COLUMNS:
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
            else:
                self._kinds[call.asked] = self._kind(call.asked)
        messages = self._messages[: call.messages_used].copy()
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
        )


_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object


def _unfilled(size: int) -> bytes:
    """Bytes that the kernel fills; nobody reads those that it did not (the way of C's `PyBytes_FromStringAndSize`)."""
    made: bytes = _new_bytes(None, size)
    return made


def _address(data: bytes) -> int:
    """Where bytes are, as long as somebody keeps them."""
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found


def packing(dtype: np.dtype[Any]) -> Struct:
    """Packs and unpacks one row of such memory, padding included, as a flat tuple; without alignment of its own."""
    codes = {"u8": "Q", "i8": "q", "u4": "I", "i4": "i", "u2": "H", "i2": "h", "u1": "B"}
    parts: list[str] = []

    def walk(one: np.dtype[Any], base: int, end: int) -> int:
        """Add the parts of a type at `base`, `end` bytes of the row are described; returns how many then."""
        if one.subdtype is not None:
            inner, shape = one.subdtype
            for number in range(int(np.prod(shape))):
                end = walk(inner, base + number * inner.itemsize, end)
            return end
        if one.fields is None:
            if base > end:
                parts.append(f"{base - end}x")
            parts.append(codes[one.str[1:]])
            return base + one.itemsize
        for name in one.names or ():
            found = one.fields[name]
            end = walk(found[0], base + found[1], end)
        return end

    end = walk(dtype, 0, 0)
    if dtype.itemsize > end:
        parts.append(f"{dtype.itemsize - end}x")
    return Struct("=" + "".join(parts))
