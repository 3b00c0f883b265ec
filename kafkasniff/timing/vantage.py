"""Where a capture was made, judged by its handshakes, and what cannot be known from there."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec
import numpy as np

from kafkasniff.native.links import UNKNOWN
from kafkasniff.timing.exchanges import Timed, TimedColumns
from kafkasniff.timing.network import ExchangeNetwork, Vantage

__all__ = ["DurationRange", "Unknown", "Vantages", "unknown_of"]

MAX_SEEN: Final = 1 << 20
"""Maximum number of connections that are remembered as counted."""

Unknown = Literal["response", "round-trip", "delayed-acks", "vantage", "client-side", "wait", "beyond-least"]
"""response: no response, or no times, so nothing can be split; round-trip: the path to the broker, which is included in
its time; delayed-acks: it is known only from acknowledgements, which may be late; vantage: where the capture was
made; client-side: the path between the client and the capture point, by which the client waited longer; wait:
whether the broker waited as requested; beyond-least: whether this exchange's path to the broker took longer than the
minimum, which would be in the broker's time.
"""


def unknown_of(timed: Timed) -> tuple[Unknown, ...]:
    """Unknowns about the timing of an exchange."""
    network = timed.network
    if timed.marks is None or timed.parts.broker is None:
        return ("response",)
    found: list[Unknown] = []
    if network is None or network.to_broker is None:
        found.append("round-trip")
    else:
        if network.handshake[0] is None:
            found.append("delayed-acks")
        found.append("beyond-least")
    vantage = None if network is None else network.vantage
    if vantage is None:
        found.append("vantage")
    elif vantage in ("broker", "between"):
        found.append("client-side")
    if timed.parts.may_wait:
        found.append("wait")
    return tuple(found)


class DurationRange(msgspec.Struct):
    """The lowest and the highest of some durations, in nanoseconds."""

    low: int
    high: int


class Vantages:
    """How many connections were captured where, and how far away the ends were, by the handshakes."""

    def __init__(self) -> None:
        self.counts: dict[Vantage, int] = {}
        self.unknown = 0
        """Connections whose handshake is not in the capture."""
        self.to_broker: DurationRange | None = None
        self.to_client: DurationRange | None = None
        self._seen: set[int] = set()

    def take(self, timed: TimedColumns) -> None:
        """Count the connections of exchanges, each once, by the first exchange that ended."""
        order = np.argsort(timed.places, kind="stable")
        connections, firsts = np.unique(timed.connections[order], return_index=True)
        for connection, place in zip(connections.tolist(), timed.places[order[firsts]].tolist(), strict=True):
            if connection in self._seen or len(self._seen) >= MAX_SEEN:
                continue
            self._seen.add(connection)
            network = None if place == UNKNOWN else ExchangeNetwork.of(timed.networks.one(place))
            self._count(network)
        # The same in any batches.
        self.counts = {name: self.counts[name] for name in get_args(Vantage) if name in self.counts}

    def _count(self, network: ExchangeNetwork | None) -> None:
        vantage = None if network is None else network.vantage
        if network is None or vantage is None:
            self.unknown += 1
            return
        self.counts[vantage] = self.counts.get(vantage, 0) + 1
        broker, client = network.handshake
        self.to_broker = _wider(self.to_broker, broker)
        self.to_client = _wider(self.to_client, client)

    @property
    def connections(self) -> int:
        """Number of counted connections."""
        return self.unknown + sum(self.counts.values())


def _wider(span: DurationRange | None, value: int | None) -> DurationRange | None:
    if value is None:
        return span
    return DurationRange(value, value) if span is None else DurationRange(min(span.low, value), max(span.high, value))
