"""A captured TCP segment without its link layer and file format."""

from __future__ import annotations

import functools
import ipaddress
import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

FIN = 0x01
SYN = 0x02
RST = 0x04
PSH = 0x08
ACK = 0x10

SEQUENCE = 1 << 32
"""TCP sequence numbers are counted modulo this."""


Stream = tuple[str, int, str, int]
"""One direction of a 4-tuple: source address and port, destination address and port."""


class Packet(NamedTuple):
    time_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    seq: int
    ack: int
    flags: int
    payload: bytes = b""
    window: int = 65535
    ident: int = 0
    """IPv4 identification, 16 bits; the flow label in IPv6."""
    cut: int = 0
    """Payload bytes on the wire beyond `payload`, which a snap length kept out of the capture."""

    @property
    def stream(self) -> Stream:
        return (self.src, self.sport, self.dst, self.dport)

    @property
    def connection(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The same for both directions."""
        ends = ((self.src, self.sport), (self.dst, self.dport))
        return ends if ends[0] <= ends[1] else (ends[1], ends[0])

    @property
    def consumed(self) -> int:
        """How far the packet moves the sequence number."""
        return len(self.payload) + self.cut + bool(self.flags & SYN) + bool(self.flags & FIN)

    @property
    def end(self) -> int:
        return (self.seq + self.consumed) % SEQUENCE

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.src

    def but(self, **changes: object) -> Packet:
        return self._replace(**changes)  # type: ignore[arg-type]


def ahead(sequence: int, other: int) -> int:
    """How far `sequence` is ahead of `other`, modulo wrap: -2³¹ to 2³¹ - 1."""
    return (sequence - other + (1 << 31)) % SEQUENCE - (1 << 31)


def checksum(data: bytes) -> int:
    """The Internet checksum, RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@functools.cache
def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def ip_bytes(packet: Packet) -> bytes:
    """The packet from its IP header on, with true checksums; without the `cut` bytes, which the headers count."""
    src, dst = packed(packet.src), packed(packet.dst)
    tcp_length = 20 + len(packet.payload) + packet.cut
    numbers = packet.sport, packet.dport, packet.seq, packet.ack, 5 << 4, packet.flags, packet.window
    tcp = struct.pack(">HHIIBBHHH", *numbers, 0, 0)
    if packet.is_ipv6:
        pseudo = src + dst + struct.pack(">II", tcp_length, 6)
        ip = struct.pack(">IHBB", 6 << 28 | packet.ident & 0xFFFFF, tcp_length, 6, 64) + src + dst
    else:
        pseudo = src + dst + struct.pack(">HH", 6, tcp_length)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + tcp_length, packet.ident & 0xFFFF, 0x4000, 64, 6, 0) + src + dst
        ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    whole = pseudo + tcp + packet.payload
    return ip + tcp[:16] + struct.pack(">H", checksum(whole)) + tcp[18:] + packet.payload


def carriers(packets: Iterable[Packet]) -> dict[Stream, list[Packet]]:
    """The packets of each stream that carry data."""
    result: dict[Stream, list[Packet]] = defaultdict(list)
    for packet in packets:
        if packet.payload:
            result[packet.stream].append(packet)
    return result


def retimed(packets: Iterable[Packet]) -> list[Packet]:
    """The packets with times that never go back: each has at least the time of the one before it.

    A capture that was shuffled has the clock of the machine that captured it, not that of the packets' senders.
    """
    result: list[Packet] = []
    now = -(2**63)
    for packet in packets:
        now = max(now, packet.time_ns)
        result.append(packet if packet.time_ns == now else packet.but(time_ns=now))
    return result


def spread(packets: Iterable[Packet]) -> list[Packet]:
    """The packets with times that grow from each to the next, by a nanosecond at least."""
    result: list[Packet] = []
    now = -(2**63)
    for packet in packets:
        now = max(now + 1, packet.time_ns)
        result.append(packet.but(time_ns=now))
    return result
