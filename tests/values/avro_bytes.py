"""Avro's binary encoding, written from its specification (1.12, "Binary Encoding"): values to bytes."""

from __future__ import annotations

import struct
from typing import Any


def long(number: int) -> bytes:
    """A zigzag varint."""
    rest = (number << 1 ^ number >> 63) & (1 << 64) - 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def sized(data: bytes) -> bytes:
    """Bytes or a string."""
    return long(len(data)) + data


def string(text: str) -> bytes:
    return sized(text.encode())


def double(number: float) -> bytes:
    return struct.pack("<d", number)


def blocks(*items: bytes) -> bytes:
    """The elements of an array, or the entries of a map, in one block."""
    return (long(len(items)) + b"".join(items) if items else b"") + b"\0"


def union(branch: int, data: Any = b"") -> bytes:
    return long(branch) + data
