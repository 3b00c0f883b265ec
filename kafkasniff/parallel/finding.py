"""What of a shard's messages concerns other connections: found in a window before anything is told of it.

Most messages come as entries, unread (paired.py), and can concern no other connection; they stay unread until their
lines are made, as in one process. Those that may are read here, and once more then: that costs less than to keep them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from kafkasniff.accounts import InspectedConnection, endpoint
from kafkasniff.enrich.apart import SessionStep, Teller, Ways, session_step, ways_to_tell
from kafkasniff.kafka.detail import AHEAD_BYTES
from kafkasniff.kafka.events import ExchangeEvent, MessageEvent, VerdictEvent
from kafkasniff.kafka.message_plan import Plan
from kafkasniff.kafka.named_apis import FETCH
from kafkasniff.kafka.weight import likely_bytes
from kafkasniff.model import Body, Direction
from kafkasniff.paired import PairedEntry
from kafkasniff.paired_messages import read_request, read_response
from kafkasniff.parallel.numbered import EVENT, Entry, EventEntry
from kafkasniff.parallel.session_peek import has_sessions, requested_session, responded_session
from kafkasniff.parallel.window import BrokerEndpoint, Told
from kafkasniff.versions import Version

__all__ = ["Finder", "Finds"]


class Finds(msgspec.Struct):
    """By the indices of the entries."""

    begun: list[int]
    """At which exchanges begin."""
    told: Told
    brokers: list[tuple[int, BrokerEndpoint]]
    steps: list[tuple[int, SessionStep]]


class _Kind(msgspec.Struct, frozen=True):
    """What exchanges of one API's version may have to do with other connections."""

    version: Version
    request: Ways | None
    response: Ways | None
    sessions: bool


class Finder:
    """Goes through the windows of one shard."""

    def __init__(self) -> None:
        self._exchanges = 0
        # Exchanges whose request may have done something to a fetch session, while they are open: (place, ordinal)
        # → a number of the shard's own.
        self._fetches: dict[tuple[int, int], int] = {}
        # By the plan of the request, which is one object for each version; None: nothing.
        self._kinds: dict[Plan, _Kind | None] = {}
        self._ahead = 0
        """Bytes of memory of bodies of the window that were read here and are kept until their lines are made."""

    def find(self, entries: Sequence[Entry], teller: Teller) -> Finds:
        """Go through the next window. Hot: once for each message."""
        found = Finds([], [], [], [])
        self._ahead = 0
        begun, kinds = found.begun, self._kinds
        # Exchanges of entries whose response matters, by where they are noted. All of a window's are noted in one
        # place, and both messages of each are in the window.
        open_: dict[int, _Kind] = {}
        for index, entry in enumerate(entries):
            if len(entry) > EVENT:
                version = entry[13]
                if version is not None:
                    begun.append(index)
                    try:
                        kind = kinds[version.request]
                    except KeyError:
                        kind = self._kind(version)
                    if kind is not None:
                        self._request(found, index, entry, kind, teller)
                        if kind.sessions or kind.response is not None:
                            open_[entry[5]] = kind
                elif open_:
                    kind = open_.pop(entry[5], None)
                    if kind is not None:
                        self._response(found, index, entry, kind, teller)
            else:
                self._event(found, index, entry, teller)
        return found

    def _kind(self, version: Version) -> _Kind | None:
        request = ways_to_tell(version.key, version.version, "request")
        response = ways_to_tell(version.key, version.version, "response")
        sessions = has_sessions(version)
        matters = sessions or request is not None or response is not None
        kind = self._kinds[version.request] = _Kind(version, request, response, sessions) if matters else None
        return kind

    # -- entries

    def _request(self, found: Finds, index: int, entry: PairedEntry, kind: _Kind, teller: Teller) -> None:
        if kind.request is not None:
            _tell(found.told, index, entry, kind.version, kind.request, teller)
        if kind.sessions and entry[4].context.options.bodies:
            body = requested_session(entry, kind.version)
            if body is None:
                body = _body(entry, kind.version)
            self._step(found, index, entry[3], entry[6], "request", body)

    def _response(self, found: Finds, index: int, entry: PairedEntry, kind: _Kind, teller: Teller) -> None:
        if kind.response is not None:
            _tell(found.told, index, entry, kind.version, kind.response, teller)
        if kind.sessions and (entry[1], entry[6]) in self._fetches:
            body = responded_session(entry, kind.version)
            if body is None:
                body = _body(entry, kind.version)
            self._step(found, index, entry[3], entry[6], "response", body)

    # -- events

    def _event(self, found: Finds, index: int, entry: EventEntry, teller: Teller) -> None:
        _, place, _, connection, event = entry
        if isinstance(event, MessageEvent):
            decoded = event.decoded
            # A response without an API is one whose request was not seen.
            if event.is_request or decoded.api_key is None:
                found.begun.append(index)
            direction: Direction = "request" if event.is_request else "response"
            steps = decoded.api_key == FETCH and (event.is_request or (place, event.ordinal) in self._fetches)
            if steps or _may_tell(event, teller):
                body = self._body(event)
                if body is not None:
                    told = teller.message(decoded.api_key, decoded.api_version, direction, body)
                    found.told.extend((index, one) for one in told)
                if steps:
                    assert connection is not None
                    self._step(found, index, connection, event.ordinal, direction, body)
        elif isinstance(event, VerdictEvent):
            if event.is_kafka and connection is not None and event.client is not None:
                found.brokers.append((index, connection.endpoints[1 - event.client]))
        elif isinstance(event, ExchangeEvent) and self._fetches:
            self._fetches.pop((place, event.ordinal), None)

    def _body(self, event: MessageEvent) -> Body | None:
        """The body of a message that is an event; read once more for its line where it takes too much."""
        decoded = event.read()
        if event.decoded.rest is not None:
            size = likely_bytes(
                decoded.api_key, "request" if event.is_request else "response", event.frame.size, decoded.body
            )
            if self._ahead + size <= AHEAD_BYTES:
                self._ahead += size
                event.decoded = decoded
        return decoded.body

    def _step(  # noqa: PLR0917 - which message, and what it says
        self,
        found: Finds,
        index: int,
        connection: InspectedConnection,
        ordinal: int,
        direction: Direction,
        body: Body | None,
    ) -> None:
        """What a Fetch request or response does to a fetch session."""
        if body is None:
            return
        key = (connection.place, ordinal)
        if direction == "request":
            self._exchanges += 1
            number: int | None = self._exchanges
        else:
            number = self._fetches.pop(key, None)
        if number is None:
            return
        client = connection.kafka.client
        assert client is not None
        step = session_step(direction, number, endpoint(connection.endpoints[1 - client]), body)
        if step is not None:
            found.steps.append((index, step))
            if direction == "request":
                self._fetches[key] = number

    # -- once more

    def retell(self, entries: Sequence[Entry], told: Told, teller: Teller) -> Told:
        """What the messages of a window that was gone through tell of topics, when others tell this."""
        waiting = deque(told)
        found: Told = []
        open_: dict[int, _Kind] = {}
        for index, entry in enumerate(entries):
            while waiting and waiting[0][0] <= index:
                teller.hear(waiting.popleft()[1])
            if len(entry) > EVENT:
                version = entry[13]
                kind = open_.pop(entry[5], None) if version is None else self._kinds[version.request]
                if kind is not None:
                    if version is not None:
                        open_[entry[5]] = kind
                    ways = kind.response if version is None else kind.request
                    if ways is not None:
                        _tell(found, index, entry, kind.version, ways, teller)
            elif isinstance(entry[4], MessageEvent):
                event = entry[4]
                decoded = event.decoded
                direction: Direction = "request" if event.is_request else "response"
                body = self._body(event) if _may_tell(event, teller) else None
                for one in teller.message(decoded.api_key, decoded.api_version, direction, body):
                    found.append((index, one))
        return found


def _may_tell(event: MessageEvent, teller: Teller) -> bool:
    """Whether a message that is an event may say something of topics."""
    decoded, frame = event.decoded, event.frame
    if decoded.rest is None:
        return decoded.body is not None
    direction: Direction = "request" if event.is_request else "response"
    assert decoded.api_key is not None
    assert decoded.api_version is not None
    ways = ways_to_tell(decoded.api_key, decoded.api_version, direction)
    return ways is not None and teller.may_tell(ways, frame.data, frame.start, frame.end)


def _tell(  # noqa: PLR0917 - where it goes, and which message it is
    told: Told, index: int, entry: PairedEntry, version: Version, ways: Ways, teller: Teller
) -> None:
    """What an entry says of topics; it is read only if it may say something. Hot."""
    start = entry[7]
    if teller.may_tell(ways, entry[4].buffer, start, start + entry[8]):
        direction: Direction = "response" if entry[13] is None else "request"
        for one in teller.message(version.key, version.version, direction, _body(entry, version)):
            told.append((index, one))


def _body(entry: PairedEntry, version: Version) -> Body | None:
    """The body of an entry: it neither is read by what other messages said nor says anything for them."""
    _, _, _, connection, paired, _, _, start, size, length, correlation_id = entry[:11]
    memory = connection.kafka.memory
    if entry[13] is None:
        return read_response(paired, version, start, size, correlation_id, memory, None).body
    return read_request(paired, version, start, size, length, correlation_id, memory).body
