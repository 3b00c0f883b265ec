"""What a batch of packets yields: one table of regular messages, and events for everything else, in one order.

The stream engine returns regular messages as rows: whole, of a known kind, and in order. No batch boundary changes the
order of rows and events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import FollowedEnd, MessageOwner
from kafkasniff.engine.roles import client_id_text
from kafkasniff.enrich.sessions import SessionContent
from kafkasniff.kafka.connection.events import Event, MessageEvent
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Connection, DecidedRequest, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.native.feed import ARENA, NONE, REQUEST, joined

HEADER: Final = 10
"""Bytes of a request's header before its client id; the last two are the client id's length."""
EVENTS: Final = 4
"""Largest number of events of one message, for numbering their places."""

Output = Message | SaslToken | Exchange | Problem | Connection
Shown = Output | Lines | DecidedRequest

Outputs = list[Any]
"""Receives outputs: a list of `Output` or of `Shown`."""

Address = tuple[str, str]
"""An address and its name, from a name record."""
Keyed = tuple[int, int, float, Any, Any]
"""Order of the packet, place of the connection (-1: none), place within the connection; the connection, and an
`Event | Problem | FollowedEnd | Address`."""
LOSS: Final = Problem("memory-bound", "")
"""The place of the report on the bounds of side tables (`inspector_state.Beside`) among events of a window of lines."""


class MessageSessions(NamedTuple):
    """The fetch sessions of the messages of a batch (`session_follower.py`)."""

    places: NDArray[np.uint32]
    """By regular message: 1 plus the index of its session in `contents`, 0 if it is in no known session."""
    contents: list[SessionContent]
    by_exchange: dict[int, SessionContent | None]
    """Exchanges whose requests may belong to a session."""

    @classmethod
    def of(cls, messages: Messages | None) -> MessageSessions:
        """No sessions."""
        return cls(np.zeros(0 if messages is None else messages.here, np.uint32), [], {})


class Begun(NamedTuple):
    """Requests with lines whose exchange ends later and needs no other state."""

    places: NDArray[np.intp]
    selected: NDArray[np.uint8]
    """Whether a filter selects each of them."""


class Messages(NamedTuple):
    """The regular messages of a batch, in packet order."""

    rows: NDArray[np.void]
    """`native.feed.MESSAGE`."""
    buffer: bytes
    arena: bytes
    owners: Sequence[MessageOwner | None]
    """By connection index, at the end of the batch."""
    asked: NDArray[np.void]
    """Requests of earlier batches that leave (`StreamEngine.keep`)."""
    here: int
    """Messages of this batch; the rows after them are requests of earlier batches that are answered here."""
    lines: Begun | None = None
    """Set if the messages have lines."""

    @property
    def begun(self) -> NDArray[np.intp]:
        """Requests that are kept until their exchange ends; rows that are events are gone."""
        if self.lines is not None:
            return self.lines.places
        return np.flatnonzero((self.rows["pair"] == NONE) & (self.rows["flags"] & REQUEST > 0))

    def owner(self, row: np.void) -> MessageOwner:
        """The connection of a message."""
        owner = self.owners[int(row["connection"])]
        assert owner is not None
        return owner

    def client_id(self, index: int) -> str | bytes | None:
        """The client id of a request, or of the request of a response; bytes if it is not UTF-8."""
        row = self.rows[index]
        return self.client_id_of(row if row["flags"] & REQUEST else self.rows[row["pair"]])

    def client_id_of(self, row: np.void) -> str | bytes | None:
        """That of a request."""
        size = int(row["client_id"])
        if size < 0:
            return None
        start = int(row["start"]) + HEADER
        return client_id_text((self.arena if row["flags"] & ARENA else self.buffer)[start : start + size])

    def only(self, chosen: NDArray[np.bool_]) -> Messages:
        """Some of the messages: both of an exchange, or none."""
        if chosen.all():
            return self
        rows = self.rows.compress(chosen)
        whole = rows["pair"] != NONE
        rows["pair"][whole] = (np.cumsum(chosen) - 1)[rows["pair"][whole]]
        return self._replace(rows=rows, here=len(rows))

    def with_requests(self, asked: NDArray[np.void], answers: NDArray[np.intp]) -> Messages:
        """The same with requests of earlier batches, by their responses here."""
        if not len(asked):
            return self
        self.rows["pair"][answers] = self.here + np.arange(len(asked))
        asked["pair"] = answers
        return self._replace(rows=joined((self.rows, asked)))


class Collected(NamedTuple):
    """The results of some packets."""

    keyed: list[Keyed]
    """Events, in order."""
    messages: Messages | None = None
    """Other messages, in order."""
    stops: Sequence[int] = ()
    """For each event, the first message that does not precede it."""
    pinned: frozenset[int] = frozenset()
    """Numbers of exchanges that begin with these messages and end with an event, whose selection is decided."""
    sessions: MessageSessions | None = None
    """Set if the messages were applied to their fetch sessions."""


def begins_exchange(event: Event | Problem | FollowedEnd | Address) -> bool:
    """Whether an exchange begins with this event."""
    # A response without an API has no visible request.
    return isinstance(event, MessageEvent) and (event.is_request or event.decoded.api_key is None)


def stops_of(rows: NDArray[np.void], owners: Sequence[MessageOwner | None], events: Sequence[Keyed]) -> list[int]:
    """For each event, in order, the first of these messages that does not precede it, by the inspector's sort key."""
    if not events:
        return []
    orders: list[int] = rows["order"].tolist()
    stops: list[int] = []
    at = 0
    for order, place, within, _, _ in events:
        at = bisect_left(orders, order, at)
        high = bisect_right(orders, order, at)
        if at < high:
            # All messages of a packet belong to one connection.
            owner = owners[int(rows["connection"][at])]
            assert owner is not None
            if owner.place == place:
                steps: list[int] = (rows["step"][at:high].astype(np.int64) * EVENTS).tolist()
                at += bisect_left(steps, within)
            elif owner.place < place:
                at = high
        stops.append(at)
    return stops


# -- exchanges as columns ----------------------------------------------------------------------------------------------


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PairColumns(NamedTuple):
    """Exchanges as columns of one length."""

    owners: Sequence[MessageOwner | None]
    """By connection index."""
    asked: NDArray[np.void]
    """The requests (`native.feed.MESSAGE`)."""
    answered: NDArray[np.void]
    """The responses."""
    ends: Any
    """Facts about each owner, for the consumer of the columns."""
    names: list[str]
    client_id: Ints
    """Index in `names`, `NONE` if there is none."""
    facts: Any = None
    """Facts from the bodies, for the consumer of the columns; None: only headers were read."""
    selected: bool = True
    """Whether a filter keeps them."""
    problems: Ints = np.zeros(0, np.int64)
    """Number of problems of each; empty: there are none."""


class PairFinder(Protocol):
    """Finds exchanges that become columns."""

    def may_take(self, code: int, options: DecodeOptions) -> bool:
        """Whether regular exchanges of a version of an API, by its code, can be columns."""

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and a mask of the other messages of whole exchanges.

        `capture`: the name of a capture by its index.
        """
