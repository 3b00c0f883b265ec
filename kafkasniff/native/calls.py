"""Structures passed to and from the kernel; `kernel/call.zig` has the same."""

from __future__ import annotations

import ctypes
from typing import Final, Literal, NamedTuple

DONE: Final = 0
ODD: Final = 1
"""Python has to decode these bytes."""
NO_ROOM: Final = 2
COMPRESSED: Final = 3
"""The requested batches have to be decompressed."""
ASKS: Final = 5
"""The caller has to answer first (`names.LineNames`)."""

FORMS: Final = {"auto": 0, "base64": 1, "hex": 2}
RECORDS: Final = {"full": 0, "batches": 1 << 2, "skip": 2 << 2}
PACKED_RECORDS: Final = {**RECORDS, "metadata": RECORDS["batches"], "columns": 3 << 2}
SHOW_SECRETS: Final = 1 << 4
PACK: Final = 1 << 5
PAYLOAD: Final = {"shown": 0, "dropped": 1 << 6, "hashed": 2 << 6}
JSON_RECORDS: Final = 1 << 8
"""Bits of `Call.wants`."""


class Hiding(NamedTuple):
    """How payload is shown in JSON (`payload.Payload`)."""

    form: Literal["shown", "dropped", "hashed"] = "shown"
    salt: bytes = b""
    """Key of hashes, at most 64 bytes."""
    person: bytes = b""
    """Their personalization, at most 16 bytes."""


class CompressedBatch(ctypes.Structure):
    """A compressed batch of records."""

    _fields_ = (
        ("position", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("codec", ctypes.c_uint8),
        ("magic", ctypes.c_uint8),
        ("spare", ctypes.c_uint16),
        ("count", ctypes.c_uint32),
        ("records", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
    )


class Control(ctypes.Structure):
    """What a type of control records says."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint64),
        ("program", ctypes.c_void_p),
        ("type", ctypes.c_int16),
        ("version", ctypes.c_int16),
        ("fronted", ctypes.c_uint32),
    )


class Call(ctypes.Structure):
    """Memory for results, the request, and the results."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("notes", ctypes.c_void_p),
        ("notes_size", ctypes.c_uint64),
        ("batches", ctypes.POINTER(CompressedBatch)),
        ("batches_size", ctypes.c_uint64),
        ("batches_given", ctypes.c_uint64),
        ("headers", ctypes.c_char_p),
        ("headers_size", ctypes.c_uint64),
        ("marks", ctypes.c_char_p),
        ("marks_size", ctypes.c_uint64),
        ("salt", ctypes.c_char_p),
        ("salt_size", ctypes.c_uint64),
        ("controls", ctypes.c_void_p),
        ("controls_size", ctypes.c_uint64),
        ("person", ctypes.c_char * 16),
        ("wants", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("program", ctypes.c_void_p),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("max_records", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        ("notes_written", ctypes.c_uint64),
        ("batches_wanted", ctypes.c_uint64),
        ("records", ctypes.c_uint64),
        ("truncated", ctypes.c_uint64),
        ("after", ctypes.c_uint64),
        ("looked_at", ctypes.c_uint64),
        ("controls_wanted", ctypes.c_uint64),
    )


class Base(ctypes.Structure):
    """Base values for the records of a batch."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("timestamp", ctypes.c_int64),
        ("append", ctypes.c_int64),
        ("appends", ctypes.c_uint64),
        ("wire", ctypes.c_uint64),
    )


class Item(ctypes.Structure):
    """One of several messages."""

    _fields_ = (
        ("program", ctypes.c_void_p),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("output_end", ctypes.c_uint64),
        ("notes_end", ctypes.c_uint64),
        ("after", ctypes.c_uint64),
        ("status", ctypes.c_int32),
        ("records", ctypes.c_uint32),
        ("truncated", ctypes.c_uint32),
        ("looked_at", ctypes.c_uint16),
        ("extensions", ctypes.c_uint16),
    )


class SummaryCall(ctypes.Structure):
    """Memory for summaries, and names (`names.NativeNames`); `kernel/summary.zig` has the same structure."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("names", ctypes.c_void_p),
        ("paint", ctypes.c_void_p),
        ("written", ctypes.c_uint64),
    )


class Noted(NamedTuple):
    """A problem of a body."""

    number: int
    """Its number: `kernel/walk_notes.zig`, `Problem`."""
    path: str
    position: int
    """Position in the data."""
    numbers: tuple[int, int, int]


def address_of(text: bytes, kept: list[bytes]) -> int:
    """The address of a text, which is valid while it is kept."""
    kept.append(text)
    address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
    assert address is not None
    return address
