"""A TCP connection that carries given bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from tests.craft.packet import ACK, FIN, PSH, RST, SEQUENCE, SYN, Packet

Side = Literal["client", "broker"]

START_NS = 1_781_000_000_123_456_789
"""When crafted conversations start: fixed, so that captures are the same in every run."""

STEP_NS = 100_000
"""Between two packets of a conversation."""


class Conversation:
    """One connection from its SYN on, packet by packet in `packets`.

    The caller says what happens; sequence and acknowledgement numbers, times and IP identifications follow. Every
    method returns the packets that it added.
    """

    def __init__(
        self,
        client: tuple[str, int] = ("10.0.0.5", 51334),
        broker: tuple[str, int] = ("10.0.0.9", 9092),
        *,
        isn: tuple[int, int] = (0x1000_0000, 0x7000_0000),
        start_ns: int = START_NS,
        step_ns: int = STEP_NS,
        window: int = 65535,
    ) -> None:
        self.packets: list[Packet] = []
        self.time_ns = start_ns
        self.step_ns = step_ns
        self.window = window
        self._ends: dict[Side, tuple[str, int]] = {"client": client, "broker": broker}
        self._next: dict[Side, int] = {"client": isn[0], "broker": isn[1]}
        self._seen: dict[Side, int] = {"client": 0, "broker": 0}
        self._idents: dict[Side, Iterator[int]] = {"client": itertools.count(1), "broker": itertools.count(30_001)}

    def _add(self, side: Side, flags: int, payload: bytes = b"", *, seq: int | None = None) -> Packet:
        peer: Side = "broker" if side == "client" else "client"
        at = self._next[side] if seq is None else seq % SEQUENCE
        numbers = at, self._seen[side] if flags & ACK else 0, flags
        ident = next(self._idents[side]) & 0xFFFF
        packet = Packet(self.time_ns, *self._ends[side], *self._ends[peer], *numbers, payload, self.window, ident)
        if seq is None:
            self._next[side] = packet.end
        self.time_ns += self.step_ns
        self.packets.append(packet)
        return packet

    def handshake(self) -> list[Packet]:
        """SYN, SYN-ACK, ACK."""
        syn = self._add("client", SYN)
        self._seen["broker"] = self._next["client"]
        answer = self._add("broker", SYN | ACK)
        self._seen["client"] = self._next["broker"]
        return [syn, answer, self._add("client", ACK)]

    def send(
        self, side: Side, data: bytes, sizes: int | Sequence[int] = 1448, *, acknowledge: bool = True
    ) -> list[Packet]:
        """`data` in segments of `sizes` bytes (the last size repeats), and the peer's acknowledgement of it all."""
        cycle: Iterable[int] = itertools.repeat(sizes) if isinstance(sizes, int) else sizes
        last = sizes if isinstance(sizes, int) else sizes[-1]
        pieces: list[bytes] = []
        position = 0
        for size in itertools.chain(cycle, itertools.repeat(last)):
            if position >= len(data):
                break
            pieces.append(data[position : position + size])
            position += size
        sent = [self._add(side, ACK | (PSH if piece is pieces[-1] else 0), piece) for piece in pieces]
        if acknowledge:
            sent.append(self.acknowledge("broker" if side == "client" else "client"))
        return sent

    def acknowledge(self, side: Side) -> Packet:
        """`side` acknowledges everything that its peer has sent."""
        self._seen[side] = self._next["broker" if side == "client" else "client"]
        return self._add(side, ACK)

    def exchange(self, request: bytes, response: bytes, sizes: int | Sequence[int] = 1448) -> list[Packet]:
        """A request and its response; the response acknowledges the request."""
        sent = self.send("client", request, sizes, acknowledge=False)
        self._seen["broker"] = self._next["client"]
        return sent + self.send("broker", response, sizes)

    def close(self, side: Side = "client") -> list[Packet]:
        """FIN, FIN-ACK, ACK."""
        peer: Side = "broker" if side == "client" else "client"
        first = self._add(side, FIN | ACK)
        self._seen[peer] = self._next[side]
        second = self._add(peer, FIN | ACK)
        self._seen[side] = self._next[peer]
        return [first, second, self._add(side, ACK)]

    def reset(self, side: Side = "broker") -> Packet:
        return self._add(side, RST | ACK)

    def wait(self, nanoseconds: int) -> None:
        self.time_ns += nanoseconds


def interleaved(conversations: Iterable[Conversation]) -> list[Packet]:
    """The packets of several conversations as one capture sees them: by time."""
    return sorted((packet for each in conversations for packet in each.packets), key=lambda packet: packet.time_ns)
