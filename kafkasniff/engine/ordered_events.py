"""The events of a batch of packets, from feeding to emitting, in an order that no batch boundary changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafkasniff.engine.followed import FollowedEnd
from kafkasniff.engine.line_runs import LineRun
from kafkasniff.engine.paired import PairedRun
from kafkasniff.kafka.connection.events import Event, MessageEvent
from kafkasniff.model import Connection, Exchange, Lines, Message, Problem, SaslToken

__all__ = ["EVENT", "LOSS", "Collected", "Keyed", "Output", "Outputs", "Shown", "begins_exchange"]

Output = Message | SaslToken | Exchange | Problem | Connection
Shown = Output | Lines

Outputs = list[Any]
"""Receives outputs: a list of `Output` or of `Shown`."""

Keyed = Any
"""Order of the packet, place of the connection (-1: none), place within the connection, and the entry: the connection
and an `Event | Problem | FollowedEnd`, or a `PairedEntry`, which is longer."""
EVENT: Final = 5
"""Length of an entry with an event."""
LOSS: Final = Problem("memory-bound", "")
"""The place of the report on the bounds of side tables (`memory_budget.Beside`) among events of a window of lines."""


class Collected(NamedTuple):
    """The results of some packets."""

    keyed: list[Keyed]
    """Events, unordered."""
    paired: PairedRun | None = None
    """Messages of whole exchanges, in order, that are emitted one by one."""
    run: LineRun | None = None
    """Messages whose lines are written natively, in order."""
    names: Sequence[tuple[str, str]] = ()
    """Address and name, from the packets' name records, if lines are written."""

    def in_order(self) -> Iterator[Keyed]:
        """Events and messages of whole exchanges in order."""
        # The first three differ between any two entries, so that the comparison never reaches the events.
        self.keyed.sort()
        return iter(self.keyed) if self.paired is None else self.paired.among(self.keyed)


def begins_exchange(event: Event | Problem | FollowedEnd) -> bool:
    """Whether an exchange begins with this event."""
    # A response without an API has no visible request.
    return isinstance(event, MessageEvent) and (event.is_request or event.decoded.api_key is None)
