"""Connections of a crafted capture, with sequence numbers that can be skipped, repeated or taken in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.craft.conversation import START_NS, Side
from tests.craft.packet import ACK, FIN, SYN, Packet
from tests.craft.write import pcap_bytes

__all__ = ["SEGMENT", "Talk", "Wire"]

SEGMENT: Final = 1448
"""Payload bytes of a full segment on Ethernet with TCP time stamps."""

_OVERHEAD: Final = 16 + 14 + 20 + 20
"""Bytes of a packet in a pcap file besides its payload."""


class Wire:
    """A capture in the making, up to `size` bytes."""

    def __init__(self, size: int, step_ns: int = 1_000) -> None:
        self.packets: list[Packet] = []
        self.time_ns = START_NS
        self._size = size
        self._step_ns = step_ns
        self._length = 24

    @property
    def full(self) -> bool:
        """Whether the capture is as long as it is to be."""
        return self._length >= self._size

    def add(self, packet: Packet) -> None:
        """Append a packet; its time is the wire's."""
        self.packets.append(packet.but(time_ns=self.time_ns))
        self.time_ns += self._step_ns
        self._length += _OVERHEAD + len(packet.payload)

    def talks(self) -> Iterator[Talk]:
        """Connections, each from another client, until the capture is full."""
        number = 0
        while not self.full:
            yield Talk(self, number)
            number += 1

    def pcap(self) -> bytes:
        """The capture as a file with nanoseconds."""
        return pcap_bytes(self.packets, nanoseconds=True)


class Talk:
    """One connection of a wire."""

    def __init__(self, wire: Wire, number: int = 0, broker: tuple[str, int] = ("10.0.0.9", 9092)) -> None:
        self._wire = wire
        port = 1024 + number % 60_000
        self._ends: dict[Side, tuple[str, int]] = {
            "client": (f"10.{1 + number // 60_000}.0.5", port),
            "broker": broker,
        }
        self.next: dict[Side, int] = {"client": 1, "broker": 1}
        """Sequence number of each side's next byte."""
        self._ident = 0

    def packet(self, side: Side, payload: bytes, at: int, flags: int = ACK) -> None:
        """A segment of `side` at any sequence number; it acknowledges all that its peer has sent."""
        peer: Side = "broker" if side == "client" else "client"
        self._ident += 1
        (src, sport), (dst, dport) = self._ends[side], self._ends[peer]
        ack = self.next[peer] % (1 << 32) if flags & ACK else 0
        self._wire.add(
            Packet(0, src, sport, dst, dport, at % (1 << 32), ack, flags, payload, ident=self._ident & 0xFFFF)
        )

    def open(self) -> None:
        """SYN, SYN-ACK."""
        self.packet("client", b"", 0, SYN)
        self.packet("broker", b"", 0, SYN | ACK)

    def send(self, side: Side, data: bytes, segment: int = SEGMENT) -> None:
        """`data` in order, in segments of this many bytes."""
        for first in range(0, len(data), segment):
            piece = data[first : first + segment]
            self.packet(side, piece, self.next[side])
            self.next[side] += len(piece)

    def skip(self, side: Side, count: int) -> None:
        """Bytes that the capture lacks."""
        self.next[side] += count

    def acknowledge(self, side: Side) -> None:
        """`side` acknowledges all that its peer has sent."""
        self.packet(side, b"", self.next[side])

    def close(self) -> None:
        """FIN of both sides."""
        for side in ("client", "broker"):
            self.packet(side, b"", self.next[side], FIN | ACK)
