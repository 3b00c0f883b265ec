"""Small TCP frames, numbered by their payload."""

from __future__ import annotations

import struct
from typing import Final

MACS: Final = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
"""For scapy's Ether: without addresses it would ask the network for them."""


def segment(payload: bytes, *, seq: int = 1, sport: int = 40000, dport: int = 9092) -> bytes:
    """An IPv4 packet with a TCP segment."""
    tcp = struct.pack(">HHIIBBHHH", sport, dport, seq, 7, 0x50, 0x18, 512, 0, 0)
    size = 20 + len(tcp) + len(payload)
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 1, 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    return header + tcp + payload


def frame(payload: bytes, **changes: int) -> bytes:
    """The same after an Ethernet header."""
    return bytes.fromhex("020000000002 020000000001 0800") + segment(payload, **changes)


def frames(count: int, size: int = 40) -> list[bytes]:
    """Frames with payloads `0000000000…`, `0000000001…`."""
    return [frame(marked(number, size), seq=1 + number * size) for number in range(count)]


def marked(number: int, size: int = 40) -> bytes:
    return b"%010d" % number + bytes(size - 10)


def numbers(payloads: list[bytes]) -> list[int]:
    """The numbers of frames, from their payloads."""
    return [int(payload[:10]) for payload in payloads]
