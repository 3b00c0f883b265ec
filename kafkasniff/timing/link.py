"""The network of one TCP connection, judged by its packets: handshake, both senders, end. No payload is read."""

from __future__ import annotations

from typing import Final, Literal

from kafkasniff.timing.link_half import Budget, LinkHalf

__all__ = ["Link", "Opening", "Vantage"]

FAR: Final = 4
"""One path counts as the longer one from this ratio on."""
NOWHERE_NS: Final = 100_000
"""Shorter round trips do not show where the capture was made: one machine, or one switch."""

Vantage = Literal["client", "broker", "between", "anywhere"]
"""Where packets were captured: near the client, near the broker, in between; anywhere: both are so near that it makes
no difference.
"""
Opening = Literal["answered", "refused", "unanswered"]
"""The outcome of a handshake."""


class Link:
    """One lifetime of a connection. Times are ns since the epoch."""

    __slots__ = (
        "acknowledged",
        "answered",
        "asked",
        "asked_last",
        "before",
        "budget",
        "client",
        "closed",
        "ended",
        "ended_by",
        "ends",
        "first_time",
        "halves",
        "last_time",
        "refused",
        "reset",
        "reset_by",
        "syns",
    )

    def __init__(
        self, ends: tuple[tuple[int, int, int], tuple[int, int, int]], time: int, budget: Budget, *, asks: bool
    ) -> None:
        self.budget = budget
        self.ends = ends
        """(address high half, low half, port) of the sender of the first packet, and of the other end."""
        self.halves = (LinkHalf(self), LinkHalf(self))
        """In the same order."""
        self.halves[0].peer, self.halves[1].peer = self.halves[1], self.halves[0]
        self.first_time = self.last_time = time
        self.asked = time if asks else None
        """The first SYN."""
        self.asked_last = self.asked
        """The SYN that was answered: the last one before the SYN-ACK."""
        self.answered: int | None = None
        """The SYN-ACK."""
        self.acknowledged: int | None = None
        """The client's first packet after that."""
        self.refused: int | None = None
        self.syns = 0
        self.reset_by: LinkHalf | None = None
        self.ended: int | None = None
        """The first FIN, or RST of an answered connection."""
        self.ended_by: LinkHalf | None = None
        """Who sent it."""
        self.reset = False
        """It was a RST."""
        self.closed = False
        self.before: Link | None = None
        """The previous connection between the same ends, as long as it may be queried."""
        # Without a SYN the end with the higher port: clients use the upper range (RFC 6335, section 6).
        self.client = self.halves[0 if asks or ends[0][2] > ends[1][2] else 1]

    def give_back(self) -> None:
        """It is no longer needed: others may use its share of memory."""
        self.budget.left += sum(half.remembered for half in self.halves)

    def end_by(self, half: LinkHalf, time: int, *, reset: bool) -> None:
        """One end closes or resets; the first one counts, since the other end only follows."""
        if self.ended is None and (self.asked is None or self.answered is not None):
            self.ended, self.ended_by, self.reset = time, half, reset

    @property
    def broker(self) -> LinkHalf:
        """The other end."""
        return self.client.peer

    def end(self, half: LinkHalf) -> tuple[int, int, int]:
        """Its address and port."""
        return self.ends[0 if half is self.halves[0] else 1]

    @property
    def opening(self) -> Opening | None:
        """The outcome of its handshake; None: its beginning was not captured."""
        if self.asked is None:
            return None
        if self.answered is not None:
            return "answered"
        return "refused" if self.refused is not None else "unanswered"

    def handshake(self) -> tuple[int | None, int | None]:
        """From the capture point to the broker and back, and to the client and back, by the handshake; ns."""
        broker = client = None
        if self.answered is not None:
            if self.asked_last is not None and self.answered >= self.asked_last:
                broker = self.answered - self.asked_last
            if self.acknowledged is not None and self.acknowledged >= self.answered:
                client = self.acknowledged - self.answered
        return broker, client

    def to_broker(self, until: int) -> int | None:
        """The lowest round trip from the capture point to the broker so far; ns."""
        return _least(self.handshake()[0], self.client.round_trip(until))

    def to_client(self, until: int) -> int | None:
        """The same to the client."""
        return _least(self.handshake()[1], self.broker.round_trip(until))

    def vantage(self) -> Vantage | None:
        """Where the capture was made, by the handshake; None: it was not captured completely."""
        broker, client = self.handshake()
        if broker is None or client is None:
            return None
        if max(broker, client) < NOWHERE_NS:
            return "anywhere"
        if broker >= FAR * client:
            return "client"
        return "broker" if client >= FAR * broker else "between"


def _least(*values: int | None) -> int | None:
    return min((one for one in values if one is not None), default=None)
