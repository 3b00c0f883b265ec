"""What the network was like during an exchange: round trips, trouble, and where it was captured."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Self

from kafkasniff.model import NO_TIME
from kafkasniff.native.links import UNKNOWN, Network

__all__ = ["ExchangeNetwork", "Trouble", "Vantage"]

FAR: Final = 4
"""One path counts as the longer one from this ratio on."""
NOWHERE_NS: Final = 100_000
"""Shorter round trips do not show where the capture was made: one machine, or one switch."""

Vantage = Literal["client", "broker", "between", "anywhere"]
"""Where packets were captured: near the client, near the broker, in between; anywhere: both are so near that it makes
no difference.
"""


class Trouble(NamedTuple):
    """Problems of one sender's packets in a time span."""

    again: int = 0
    """Retransmitted segments: lost after the capture point, or acknowledged too late."""
    late: int = 0
    """Segments that followed later ones: lost or reordered before the capture point."""
    late_ns: int = 0
    """For how long they were missing in total."""
    closed: int = 0
    """Windows of size 0: this end could accept no more data."""
    closed_ns: int = 0
    """How long they lasted within the span."""


class ExchangeNetwork(NamedTuple):
    """The network of an exchange; durations in nanoseconds, None if unknown."""

    handshake: tuple[int | None, int | None]
    """From the capture point to the broker and back, and to the client and back, by the handshake."""
    to_broker: int | None
    """The lowest round trip from the capture point to the broker until the response was complete."""
    to_client: int | None
    """The same to the client."""
    resent_at: int | None
    """Data that the request needed was lost after the capture point, and last retransmitted at this time."""
    client_trouble: Trouble
    """Problems of the client's packets, from the first byte of the request to the last one of the response."""
    broker_trouble: Trouble

    @classmethod
    def of(cls, found: Network) -> Self:
        """The network as the engine has it."""
        handshake, trips = (tuple(_known(one) for one in pair) for pair in (found.handshake, found.round_trips))
        columns = found.again, found.late, found.late_ns, found.closed, found.closed_ns
        troubles = [Trouble(*values) for values in zip(*columns, strict=True)]
        resent_at = None if found.resent_at == NO_TIME else found.resent_at
        return cls((handshake[0], handshake[1]), trips[0], trips[1], resent_at, *troubles)

    @property
    def vantage(self) -> Vantage | None:
        """Where the capture was made, by the handshake; None: it was not captured completely."""
        broker, client = self.handshake
        if broker is None or client is None:
            return None
        if max(broker, client) < NOWHERE_NS:
            return "anywhere"
        if broker >= FAR * client:
            return "client"
        return "broker" if client >= FAR * broker else "between"


def _known(nanoseconds: int) -> int | None:
    return None if nanoseconds == UNKNOWN else nanoseconds
