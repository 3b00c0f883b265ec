"""Build capture files byte by byte, after draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng."""

from __future__ import annotations

import struct
from collections.abc import Iterable

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def pcap_header(order: str = "<", *, magic: int = 0xA1B2C3D4, link: int = 1, snaplen: int = 262144) -> bytes:
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link)


def pcap_record(
    data: bytes,
    time_ns: int = START,
    order: str = "<",
    *,
    unit: int = 1000,
    wire: int | None = None,
    extra: bytes = b"",
) -> bytes:
    seconds, rest = divmod(time_ns, SECOND)
    size = len(data) if wire is None else wire
    return struct.pack(order + "IIII", seconds, rest // unit, len(data), size) + extra + data


def pcap(frames: Iterable[bytes], *, link: int = 1, order: str = "<", start: int = START, step: int = 1000) -> bytes:
    """A capture of these frames, `step` nanoseconds apart."""
    records = (pcap_record(frame, start + i * step, order) for i, frame in enumerate(frames))
    return pcap_header(order, link=link) + b"".join(records)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + padded(value)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = 12 + len(padded(body))
    return struct.pack(order + "II", kind, size) + padded(body) + struct.pack(order + "I", size)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int = 1, options: bytes = b"", order: str = "<", *, snaplen: int = 0) -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + options, order)


def enhanced(
    data: bytes, ticks: int, number: int = 0, order: str = "<", *, wire: int | None = None, options: bytes = b""
) -> bytes:
    size = len(data) if wire is None else wire
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), size)
    return block(6, head + padded(data) + options, order)


def simple(data: bytes, order: str = "<", *, wire: int | None = None) -> bytes:
    return block(3, struct.pack(order + "I", len(data) if wire is None else wire) + data, order)


def obsolete(data: bytes, ticks: int, number: int = 0, order: str = "<", *, drops: int = 0xFFFF) -> bytes:
    head = struct.pack(order + "HHIIII", number, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + padded(data), order)
