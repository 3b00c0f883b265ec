"""Crafted connections whose every packet has the time that the test says."""

from __future__ import annotations

from typing import Any

from tests.craft.conversation import START_NS, Conversation, Side
from tests.craft.packet import ACK, SYN, Packet

MS = 1_000_000


def at(milliseconds: float) -> int:
    """That long after the start."""
    return START_NS + round(milliseconds * MS)


class Timeline(Conversation):
    """A conversation in which no time goes by unless `at` says so."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"step_ns": 0, **options})

    def at(self, milliseconds: float) -> Timeline:
        self.time_ns = at(milliseconds)
        return self

    def open(self, broker_ms: float, client_ms: float, begin: float = 0.0) -> None:
        """A handshake whose answer comes after `broker_ms`, and the client's acknowledgement `client_ms` later."""
        self.at(begin)._add("client", SYN)
        self._seen["broker"] = self._next["client"]
        self.at(begin + broker_ms)._add("broker", SYN | ACK)
        self._seen["client"] = self._next["broker"]
        self.at(begin + broker_ms + client_ms)._add("client", ACK)

    def data(self, side: Side, milliseconds: float, payload: bytes) -> Packet:
        """One segment, which acknowledges all that the peer has sent."""
        self._seen[side] = self._next["broker" if side == "client" else "client"]
        (packet,) = self.at(milliseconds).send(side, payload, len(payload), acknowledge=False)
        return packet

    def acked(self, side: Side, milliseconds: float) -> Packet:
        return self.at(milliseconds).acknowledge(side)

    def add(self, milliseconds: float, packet: Packet) -> Packet:
        """A packet as it is, but for the time."""
        self.packets.append(packet.but(time_ns=at(milliseconds)))
        return self.packets[-1]

    def in_order(self) -> list[Packet]:
        return sorted(self.packets, key=lambda packet: packet.time_ns)
