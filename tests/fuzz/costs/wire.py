"""Connections of a crafted capture, with sequence numbers that can be skipped, repeated or taken in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.craft.conversation import START_NS, Conversation, Side
from tests.craft.packet import ACK, SYN, Packet
from tests.craft.write import pcap_bytes

SEGMENT: Final = 1448
"""Payload bytes of a full segment on Ethernet with TCP time stamps."""

_OVERHEAD: Final = 16 + 14 + 20 + 20
"""Bytes of a packet in a pcap file besides its payload."""


class Wire:
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


class Talk(Conversation):
    """One connection of a wire. Every packet acknowledges all that the peer has sent."""

    def __init__(self, wire: Wire, number: int = 0, broker: tuple[str, int] = ("10.0.0.9", 9092)) -> None:
        super().__init__((f"10.{1 + number // 60_000}.0.5", 1024 + number % 60_000), broker, isn=(0, 0))
        self._wire = wire

    def _add(self, side: Side, flags: int, payload: bytes = b"", *, seq: int | None = None) -> Packet:
        self._seen[side] = self._next["broker" if side == "client" else "client"]
        packet = super()._add(side, flags, payload, seq=seq)
        self.packets.clear()
        self._wire.add(packet)
        return packet

    @property
    def next(self) -> dict[Side, int]:
        """Sequence number of each side's next byte."""
        return self._next

    def packet(self, side: Side, payload: bytes, at: int, flags: int = ACK) -> None:
        self._add(side, flags, payload, seq=at)

    def open(self) -> None:
        """SYN, SYN-ACK."""
        self._add("client", SYN)
        self._add("broker", SYN | ACK)

    def send(
        self, side: Side, data: bytes, sizes: int | Sequence[int] = SEGMENT, *, acknowledge: bool = False
    ) -> list[Packet]:
        """`data` in order, in segments of `sizes` bytes."""
        return super().send(side, data, sizes, acknowledge=acknowledge)

    def skip(self, side: Side, count: int) -> None:
        """Bytes that the capture lacks."""
        self._next[side] += count
