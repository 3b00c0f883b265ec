"""Makers of captures whose packets, or the file around them, are what costs."""

from __future__ import annotations

import struct

from tests.capture import files
from tests.fuzz.costs.streams import heartbeat
from tests.fuzz.costs.wire import Wire

HELLO = b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03" + bytes(32) + b"\0\0\2\x13\1\1\0\0\0"
"""A TLS record with a ClientHello of one cipher suite."""


def _ip(protocol: int, payload: bytes, *, ident: int = 7, fragment: int = 0) -> bytes:
    return struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), ident, fragment, 64, protocol, 0, b"\x0a\0\0\1", b"\x0a\0\0\2"
    ) + payload  # fmt: skip


def _ethernet(packet: bytes) -> bytes:
    return bytes(12) + b"\x08\x00" + packet


def records_connections(size: int, length: int, records: int, kind: int = 0x17) -> bytes:
    """A ClientHello, then `records` records of `length` bytes: that nobody has a key for, or of a handshake (0x16)."""
    wire = Wire(size)
    record = bytes((kind, 3, 3)) + struct.pack(">H", length) + b"a" * length
    together = max(1, 1448 // len(record))
    for talk in wire.talks():
        talk.open()
        talk.send("client", HELLO)
        for _ in range(-(-records // together)):
            if wire.full:
                break
            talk.send("client", record * min(together, records))
    return wire.pcap()


def fragments_datagrams(size: int, fragments: int, length: int, overlap: int) -> bytes:
    """Datagrams of this many fragments of 8 bytes times `length`, of which the first lacks."""
    frames, total, ident = [], 0, 0
    while total < size:
        for number in range(1, 1 + fragments):
            place = number * (1 if overlap else length) % 8_000
            packet = _ip(6, bytes(8 * length), ident=ident % 65_536, fragment=0x2000 | place)
            frames.append(_ethernet(packet))
            total += len(frames[-1]) + 16
            if total >= size:
                break
        ident += 1
    return files.pcap(frames)


def odd_records(size: int) -> bytes:
    """Every fifth record claims fewer bytes on the wire than captured; the records in between form a chain."""
    out, total, number = [files.pcap_header()], 0, 0
    while total < size:
        length = 14 + number * 7 % 23
        out.append(files.pcap_record(b"\xff" * length, number, wire=length if number % 5 else 3))
        total += length + 16
        number += 1
    return b"".join(out)


def labels_in_each_other(size: int) -> bytes:
    """IP in MPLS in IP …, which does not count as nested tunnels: 8 packets, the deeper the larger the file."""
    inner = b""
    while len(inner) < size // 8:
        inner = _ip(137, b"\0\0\1\0" + inner)
    return files.pcap([_ethernet(inner)] * 8)


def interfaces_options(size: int, interfaces: int, option: int) -> bytes:
    """Sections of this many interfaces, each with a name of this many bytes, and a packet of each."""
    out: list[bytes] = []
    total = 0
    packet = _ethernet(_ip(6, struct.pack(">HHIIBBHHH", 1024, 9092, 1, 1, 0x50, 0x10, 1, 0, 0) + heartbeat(1)))
    one = files.interface(options=files.option(2, b"n" * option))
    interfaces = min(interfaces, max(1, size // len(one)))
    while total < size:
        made = [files.section(), *[one] * interfaces]
        total += sum(map(len, made))
        for number in range(interfaces):
            made.append(files.enhanced(packet, files.START // 1000, number))
            total += len(made[-1])
            if total >= size:
                break
        out += made
    return b"".join(out)


def tunnels_packets(size: int, depth: int, length: int) -> bytes:
    """IP in IP, so deep, with this many bytes within."""
    inner = _ip(6, struct.pack(">HHIIBBHHH", 1024, 9092, 1, 1, 0x50, 0x10, 1, 0, 0) + bytes(length))
    for _ in range(depth):
        inner = _ip(4, inner)
    frame = _ethernet(inner)
    return files.pcap([frame] * max(1, size // (len(frame) + 16)))
