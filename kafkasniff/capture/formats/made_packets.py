"""Captures made of other files, and packets for messages that were never captured as packets."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Final

import msgspec

from kafkasniff.model import BrokerTimes, Direction

__all__ = ["FILE_HEADER", "LATEST_NS", "Conversation", "Converter"]

FILE_HEADER: Final = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 101)
"""pcap with nanoseconds; packets begin with IP."""
LATEST_NS: Final = (1 << 32) * 10**9 - 1
"""The latest time that a pcap file can express."""

_LARGEST: Final = 65_535 - 60
"""Bytes of data in one packet."""
_SYN_ACK: Final = 0x12
_FIN_ACK: Final = 0x11
_DATA: Final = 0x18


class Converter(ABC):
    """Bytes of a file in, bytes of a capture out. `give` takes a block, then `take` returns pieces of that."""

    failure: str | None = None
    """Why no more data follows."""
    cut = False
    """The failure is that the file ended too early."""
    damaged: str | None = None
    """What could not be read, while the rest was; known at its end."""
    omitted: str | None = None
    """What the capture lacks because the file never had it; known at its end."""
    times: BrokerTimes | None = None
    """Those of a request log, at its end."""

    @abstractmethod
    def give(self, data: bytes) -> None:
        """More bytes of the file."""

    @abstractmethod
    def take(self) -> bytes:
        """The next bytes of the capture; none: more of the file is needed, or it has ended."""

    @abstractmethod
    def finish(self) -> None:
        """The file has ended; what is left can be taken."""


class Conversation(msgspec.Struct):
    """A connection whose messages become packets."""

    client: tuple[bytes, int]
    """Address of 4 or 16 bytes, and port."""
    broker: tuple[bytes, int]
    sent: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """Bytes of the client, and of the broker."""

    start: int = 0
    """Sequence number of the first byte, before which nothing was sent."""

    def message(self, direction: Direction, message: bytes, time_ns: int) -> bytes:
        """Records of a pcap file with a message, whose length is put in front."""
        data = struct.pack(">i", len(message)) + message
        pieces = (data[at : at + _LARGEST] for at in range(0, len(data), _LARGEST))
        return b"".join([self._packet(direction, piece, _DATA, time_ns) for piece in pieces])

    def begin(self, time_ns: int, *, midway: bool) -> bytes:
        """What separates the connection from others between the same ports: the broker's SYN.

        `midway`: it did not begin with the first message that is known. Then it is as if a connection without data had
        ended before that message.
        """
        # Another file may have a connection between the same ports, with another number.
        self.start = time_ns // 1000
        self.sent = [self.start, self.start]
        opening = self._packet("response", b"", _SYN_ACK, time_ns)
        self.sent[1] += 1
        if midway:
            opening += self._packet("request", b"", _FIN_ACK, time_ns)
            opening += self._packet("response", b"", _FIN_ACK, time_ns)
            self.sent = [sent + 1 for sent in self.sent]
        return opening

    def _packet(self, direction: Direction, data: bytes, flags: int, time_ns: int) -> bytes:
        side = 0 if direction == "request" else 1
        source, target = (self.client, self.broker) if side == 0 else (self.broker, self.client)
        size = 20 + len(data)
        if len(source[0]) == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0, 64, 6, 0) + source[0] + target[0]
        else:
            ip = struct.pack(">IHBB", 6 << 28, size, 6, 64) + source[0] + target[0]
        # No data is acknowledged: that would be measured as a round trip.
        sequence, acknowledged = self.sent[side] & 0xFFFF_FFFF, self.start & 0xFFFF_FFFF
        tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 0x50, flags, 65_535, 0, 0)
        self.sent[side] += len(data)
        size += len(ip)
        return struct.pack("<IIII", *divmod(time_ns, 10**9), size, size) + ip + tcp + data
