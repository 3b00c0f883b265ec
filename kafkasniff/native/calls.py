"""What is handed to the kernel and what comes back; `kernel/call.zig` has the same structures."""

from __future__ import annotations

import ctypes
from typing import Final, Literal, NamedTuple

__all__ = [
    "COMPRESSED",
    "DONE",
    "FORMS",
    "JSON_RECORDS",
    "NO_ROOM",
    "ODD",
    "PACK",
    "PACKED_RECORDS",
    "PAYLOAD",
    "RECORDS",
    "SHOW_SECRETS",
    "Base",
    "Batch",
    "Call",
    "Hiding",
    "Item",
    "Noted",
    "SummaryCall",
    "address_of",
]

DONE: Final = 0
ODD: Final = 1
"""Python has to read these bytes."""
NO_ROOM: Final = 2
COMPRESSED: Final = 3
"""The batches that are wanted have to be decompressed."""

FORMS: Final = {"auto": 0, "base64": 1, "hex": 2}
RECORDS: Final = {"full": 0, "batches": 1 << 2, "skip": 2 << 2}
PACKED_RECORDS: Final = {**RECORDS, "metadata": RECORDS["batches"], "columns": 3 << 2}
SHOW_SECRETS: Final = 1 << 4
PACK: Final = 1 << 5
PAYLOAD: Final = {"shown": 0, "dropped": 1 << 6, "hashed": 2 << 6}
JSON_RECORDS: Final = 1 << 8
"""Bits of `Call.wants`."""


class Hiding(NamedTuple):
    """What becomes of payload in JSON (`payload.Payload`)."""

    form: Literal["shown", "dropped", "hashed"] = "shown"
    salt: bytes = b""
    """What hashes are keyed with, 64 bytes at most."""
    person: bytes = b""
    """Their personalization, 16 bytes at most."""


class Batch(ctypes.Structure):
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


class Call(ctypes.Structure):
    """Room for results, what is wanted, and the results."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("notes", ctypes.c_void_p),
        ("notes_size", ctypes.c_uint64),
        ("batches", ctypes.POINTER(Batch)),
        ("batches_size", ctypes.c_uint64),
        ("batches_given", ctypes.c_uint64),
        ("headers", ctypes.c_char_p),
        ("headers_size", ctypes.c_uint64),
        ("marks", ctypes.c_char_p),
        ("marks_size", ctypes.c_uint64),
        ("salt", ctypes.c_char_p),
        ("salt_size", ctypes.c_uint64),
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
    )


class Base(ctypes.Structure):
    """What the records of a batch count from."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("timestamp", ctypes.c_int64),
        ("append", ctypes.c_int64),
        ("appends", ctypes.c_uint64),
        ("wire", ctypes.c_uint64),
    )


class Item(ctypes.Structure):
    """A message of several."""

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
        ("looked_at", ctypes.c_uint32),
    )


class SummaryCall(ctypes.Structure):
    """Room for summaries, and names (`names.Names`); `kernel/summary.zig` has the same structure."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("names", ctypes.c_void_p),
        ("written", ctypes.c_uint64),
    )


class Noted(NamedTuple):
    """A problem of a body."""

    number: int
    """What it is: `kernel/walk.zig`, `Problem`."""
    path: str
    position: int
    """Where in the data."""
    numbers: tuple[int, int, int]


def address_of(text: bytes, kept: list[bytes]) -> int:
    """Where a text is as long as it is kept."""
    kept.append(text)
    address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
    assert address is not None
    return address
