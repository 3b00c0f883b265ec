"""The structures of the native feed; `kernel/feed_state.zig` and `kernel/feed_found.zig` have the same."""

from __future__ import annotations

import ctypes
from struct import Struct
from typing import Any, Final

import numpy as np

__all__ = [
    "ARENA",
    "COLUMNS",
    "CONNECTION",
    "ENDED",
    "HELD",
    "JUDGED",
    "KEYS",
    "MARKS",
    "MAX_FRAME",
    "MESSAGE",
    "NONE",
    "NO_ROW",
    "RECENT",
    "REQUEST",
    "SILENT",
    "TAGS",
    "UNKNOWN_KIND",
    "VERSIONS",
    "WAITING",
    "FeedCall",
    "packing",
]

KEYS: Final = 128
VERSIONS: Final = 32
"""Limits of API keys and versions that are looked up."""
RECENT: Final = 16
NONE: Final = 0xFFFF_FFFF
"""No index."""
REQUEST: Final = 1
ARENA: Final = 2
TAGS: Final = 4
SILENT: Final = 8
ENDED: Final = 16
"""Flags of a message."""

MAX_FRAME: Final = 4 << 20
"""Maximum size of a frame; larger ones are left to Python (`feed.MAX_FRAME`)."""
MARKS: Final = 1 << 16
"""Bytes that mark endpoints (`feed.MARKS`)."""
JUDGED: Final = 4
"""The first request of a connection that began in the kernel was accepted (`feed.Begun`); 0: it did not begin there."""
UNKNOWN_KIND: Final = 0x80
NO_ROW: Final = (1 << 64) - 1

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
        *((name, np.uint32) for name in ("early", "early_last", "early_count", "early_bytes", "ticks")),
        *((name, np.uint32) for name in ("silent", "silent_last", "silent_count", "silent_ended", "spare")),
        *((name, np.int64) for name in ("order", "time", "packet")),
    ],
    align=True,
)
CONNECTION: Final = np.dtype(
    [
        ("high", np.uint64, (2,)),
        ("low", np.uint64, (2,)),
        ("port", np.uint16, (2,)),
        *((name, np.uint8) for name in ("here", "client", "active", "loss", "begun")),
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
        *((name, np.int64) for name in ("order", "first_packet", "last_packet", "first_time")),
        *((name, np.uint32) for name in ("seq", "size", "next", "due")),
    ],
    align=True,
)
"""A segment after a hole, or an early response (`feed.Held`)."""
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

COLUMNS: Final = (
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
"""Columns of a batch, and the packet clock."""


class FeedCall(ctypes.Structure):
    """`feed.Feed`."""

    _fields_ = (
        ("rows", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in COLUMNS),
        ("buffer", ctypes.c_char_p),
        ("buffer_size", ctypes.c_uint64),
        ("connections", ctypes.c_void_p),
        ("connections_size", ctypes.c_uint64),
        ("table", ctypes.c_void_p),
        ("table_size", ctypes.c_uint64),
        ("secret", ctypes.c_uint64 * 4),
        ("waiting", ctypes.c_void_p),
        ("waiting_size", ctypes.c_uint64),
        ("held", ctypes.c_void_p),
        ("held_size", ctypes.c_uint64),
        ("active", ctypes.c_void_p),
        ("active_used", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("free", "free_held", "max_frame", "every_end")),
        ("idle", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("begins", ctypes.c_void_p),
        ("begins_size", ctypes.c_uint64),
        ("begins_used", ctypes.c_uint64),
        ("places", ctypes.c_void_p),
        ("places_rows", ctypes.c_void_p),
        ("places_used", ctypes.c_uint64),
        ("marks", ctypes.c_void_p),
        ("judged_row", ctypes.c_uint64),
        ("judged", ctypes.c_uint32),
        ("asked_size", ctypes.c_uint32),
        ("asked_at", ctypes.c_uint64),
        ("asked_connection", ctypes.c_uint64),
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


def packing(dtype: np.dtype[Any]) -> Struct:
    """Packs and unpacks one row of such memory, with padding, as a flat tuple; without alignment."""
    codes = {"u8": "Q", "i8": "q", "u4": "I", "i4": "i", "u2": "H", "i2": "h", "u1": "B"}
    parts: list[str] = []

    def walk(one: np.dtype[Any], base: int, end: int) -> int:
        """Add the parts of a type at `base`; `end` bytes of the row are described before, the result afterwards."""
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
