"""Capture files into packets: just enough of pcap and pcapng for the captures that the tests disturb. Anything that is
not understood raises ValueError: a capture that was read in half would weaken every test that uses it."""

from __future__ import annotations

import functools
import gzip
import ipaddress
import struct
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import zstandard

from tests.craft.packet import Packet

CAPTURES = Path(__file__).parents[2] / "captures"
LINK_HEADERS = {1: 14, 113: 16, 276: 20, 0: 4, 108: 4, 101: 0}
"""Length of the header in front of IP, by the number of the link layer."""


def file_bytes(path: Path) -> bytes:
    """The content of the file, decompressed by its suffix."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if path.suffix == ".lz4":
        return bytes(lz4.frame.decompress(data))
    return data


def raw_packets(data: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    """(time_ns, link layer, captured bytes, length on the wire) of each packet of a pcap or pcapng."""
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        yield from _pcapng(data)
        return
    forms = {
        b"\xd4\xc3\xb2\xa1": ("<", 1000),
        b"\xa1\xb2\xc3\xd4": (">", 1000),
        b"\x4d\x3c\xb2\xa1": ("<", 1),
        b"\xa1\xb2\x3c\x4d": (">", 1),
    }
    if data[:4] not in forms:
        raise ValueError("neither pcap nor pcapng")
    order, unit = forms[data[:4]]
    link = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    position = 24
    while position < len(data):
        seconds, fraction, length, wire = struct.unpack_from(f"{order}IIII", data, position)
        position += 16
        yield seconds * 1_000_000_000 + fraction * unit, link, data[position : position + length], wire
        position += length


def _pcapng(data: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    order = "<"
    interfaces: list[tuple[int, int]] = []
    position = 0
    while position < len(data):
        kind = struct.unpack_from("<I", data, position)[0]
        if kind == 0x0A0D0D0A:
            order = "<" if data[position + 8 : position + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, length = struct.unpack_from(f"{order}II", data, position)
        body = data[position + 8 : position + length - 4]
        position += length
        if kind == 1:
            interfaces.append((struct.unpack_from(f"{order}H", body)[0], _ticks(body[8:], order)))
        elif kind == 6:
            interface, high, low, captured, wire = struct.unpack_from(f"{order}IIIII", body)
            link, ticks = interfaces[interface]
            yield (high << 32 | low) * 1_000_000_000 // ticks, link, body[20 : 20 + captured], wire
        elif kind in {2, 3}:
            raise ValueError("simple and obsolete packet blocks are not read here")


def _ticks(options: bytes, order: str) -> int:
    """Ticks per second of an interface: if_tsresol, microseconds without."""
    position = 0
    while position + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}HH", options, position)
        if code == 0:
            break
        if code == 9:
            value = options[position + 4]
            return int(2 ** (value & 0x7F)) if value & 0x80 else int(10**value)
        position += 4 + length + -length % 4
    return 1_000_000


@functools.cache
def _text(address: bytes) -> str:
    return str(ipaddress.ip_address(address))


def tcp_packet(time_ns: int, link: int, data: bytes, wire: int) -> Packet | None:
    """The TCP segment in a captured packet; None for other protocols."""
    if link not in LINK_HEADERS:
        raise ValueError(f"link layer {link} is not read here")
    start = LINK_HEADERS[link]
    while link == 1 and data[start - 2 : start] in {b"\x81\x00", b"\x88\xa8"}:
        start += 4
    version = data[start] >> 4
    if version == 4:
        total, ident = struct.unpack_from(">HH", data, start + 2)
        header, protocol = (data[start] & 15) * 4, data[start + 9]
        src, dst = (_text(data[start + at : start + at + 4]) for at in (12, 16))
        if struct.unpack_from(">H", data, start + 6)[0] & 0x3FFF:
            raise ValueError("fragments are not read here")
    elif version == 6:
        ident = struct.unpack_from(">I", data, start)[0] & 0xFFFFF
        total, header, protocol = 40 + struct.unpack_from(">H", data, start + 4)[0], 40, data[start + 6]
        src, dst = (_text(data[start + at : start + at + 16]) for at in (8, 24))
    else:
        return None
    if protocol != 6:
        return None
    tcp = start + header
    sport, dport, seq, ack, length, flags, window = struct.unpack_from(">HHIIBBH", data, tcp)
    # A total length of 0 is what segmentation offload leaves: the captured length holds.
    end = wire if total == (0 if version == 4 else 40) else start + total
    payload = data[tcp + (length >> 4) * 4 : end]
    cut = max(0, end - len(data))
    return Packet(time_ns, src, sport, dst, dport, seq, ack, flags, payload, window, ident, cut)


def read_packets(path: Path) -> list[Packet]:
    found = (tcp_packet(*raw) for raw in raw_packets(file_bytes(path)))
    return [packet for packet in found if packet is not None]


@functools.cache
def shipped_packets(name: str) -> list[Packet]:
    return read_packets(CAPTURES / name)


@functools.cache
def is_cut(path: Path) -> bool:
    """Whether a snap length cut packets of a capture: something of them is lost already."""
    return any(packet is not None and packet.cut for packet in (tcp_packet(*raw) for raw in _cut_packets(path)))


def _cut_packets(path: Path) -> Iterator[tuple[int, int, bytes, int]]:
    """Those of which there are fewer bytes than were on the wire."""
    return (raw for raw in raw_packets(file_bytes(path)) if len(raw[2]) < raw[3])
