"""One stream's state in reassembly, and the rows and segments that it consists of."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

RECENT: Final = 16
"""Packets per stream remembered to distinguish a packet that was captured twice from a retransmission."""

MAX_MISSING: Final = 16
"""Gaps per stream for which late segments are still accepted."""

MASK: Final = (1 << 32) - 1
"""Sequence numbers count modulo 2^32."""

_HALF: Final = 1 << 31


class Packet(NamedTuple):
    """One TCP packet, as a row of PacketBatch; `packet` as in `model.PACKET_SHIFT`, `direction` 0 or 1."""

    direction: int
    order: int
    packet: int
    time_ns: int
    clock: int
    """Running maximum of the packet times of the run."""
    seq: int
    ack: int
    flags: int
    offset: int
    length: int
    wire_length: int
    ident: int


class Held(msgspec.Struct, frozen=True):
    """A segment; `start` is its position, `data` its captured bytes, `wire` its length on the wire.

    `held_count` and `held_clock`: the connection's packet count and packet clock when it was held back.
    """

    start: int
    data: bytes
    wire: int
    packet: int
    time_ns: int
    held_count: int = 0
    held_clock: int = 0

    def part(self, start: int, end: int) -> Held:
        """The part of it between two positions."""
        return msgspec.structs.replace(
            self, start=start, data=self.data[start - self.start : end - self.start], wire=end - start
        )


class Stream:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.next: int | None = None
        """Position of the next byte; None before the first SYN or data."""
        self.begin = 0
        """Position of the first byte, once `next` is known."""
        self.isn: int | None = None
        """Initial sequence number, if the SYN was seen."""
        self.fin: int | None = None
        """Position of the FIN, once seen."""
        self.finished = False
        """Everything up to the FIN was delivered or given up."""
        self.held: list[Held] = []
        """Segments after holes, by position, without overlaps."""
        self.missing: tuple[tuple[int, int], ...] = ()
        """The last gaps, as positions [start, end), without parts filled by late segments; at most MAX_MISSING."""
        self.held_bytes = 0
        self.opened_count = 0
        """The connection's packet count when the first hole opened, or when a packet of the peer was seen since."""
        self.acked = -1
        """The highest position that the peer acknowledged while a hole was open."""
        self.heard = False
        """A packet of its sender was captured, with or without data."""
        self.ack: int | None = None
        """Acknowledgement number of the peer's last packet."""
        self.passed = 0
        """While nothing of the sender was captured: bytes that the peer acknowledged since its own first packet."""
        self.ahead_next = -1
        self.ahead_count = 0
        self.repeated = 0
        self.ignored = 0
        """Captured bytes that the stream already had, and those that are not part of it."""
        self.recent: tuple[tuple[int, int, int], ...] = ()
        """(seq, wire length, ident) of the last RECENT packets with data."""

    def miss(self, start: int, end: int) -> None:
        """Record a gap: its bytes may still arrive."""
        if start < end:
            self.missing = (*self.missing, (start, end))[-MAX_MISSING:]

    def find_missing(self, start: int, end: int) -> bool:
        """Whether all of [start, end) lies within one gap, which it then fills."""
        for index, (begin, stop) in enumerate(self.missing):
            if begin <= start and end <= stop:
                rest = [part for part in ((begin, start), (end, stop)) if part[0] < part[1]]
                self.missing = (*self.missing[:index], *rest, *self.missing[index + 1 :])[-MAX_MISSING:]
                return True
        return False

    def remember(self, key: tuple[int, int, int]) -> bool:
        """Record one packet with data; True if the same packet is among the last RECENT."""
        known = key in self.recent
        self.recent = (*self.recent[1 - RECENT :], key)
        return known

    def hear(self) -> None:
        """Record that a packet of the sender was captured."""
        self.heard = True
        self.passed = 0

    def acknowledge(self, ack: int) -> None:
        """Record the acknowledgement number of a packet of the peer."""
        if not self.heard and self.ack is not None:
            self.passed += ((ack - self.ack + _HALF) & MASK) - _HALF
        self.ack = ack

    def position(self, seq: int) -> int:
        """Unwrap a sequence number: the position nearest to `next` that has these low 32 bits (RFC 9293, 3.4)."""
        expected = self.next or 0
        return expected + ((seq - expected + _HALF) & MASK) - _HALF
