"""What earlier messages add to those of a batch, before any output looks at them: sessions and names of topics.

Fetch messages are applied to their sessions in order.

A request of a session lists the partitions whose offsets have changed, and so the same ones again and again. The effect
of a list is kept by its topics and partitions, which the kernel copies from the body without decoding the rest.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.message_table import Collected, Messages, MessageSessions
from kafkasniff.engine.roles import distinct
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.plan import teaches_topics
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSessions, SessionStep, uses_sessions
from kafkasniff.kafka.apis import entities
from kafkasniff.kafka.connection.events import Detail, MessageEvent
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.definition import FORMATS, Struct, program_of
from kafkasniff.model import Body, Direction, Endpoint
from kafkasniff.native.feed import ARENA, ENDED, KEYS, REQUEST, TAGS, VERSIONS
from kafkasniff.native.library import Kernel, address_of
from kafkasniff.native.names import CHOSEN, INSIDE, ChosenFields

MAX_KEPT: Final = 1 << 11
"""Lists that are kept; then all are read again."""
MAX_LIST: Final = 1 << 10
"""Bytes of the fields of a request that are copied. Requests with more are decoded every time."""

METADATA_LOG: Final = entities.METADATA_TOPIC.encode()
METADATA_ID: Final = uuid_bytes(entities.METADATA_TOPIC_ID)
"""Bytes of messages whose records may name topics."""
_OPTIONS: Final = DecodeOptions(records="skip")
_PARTITIONS: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": {"partition": CHOSEN}}
_FORGOTTEN: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": CHOSEN}
_REQUEST: Final = {
    **{"session_id": CHOSEN, "session_epoch": CHOSEN},
    **{"topics": _PARTITIONS, "forgotten_topics_data": _FORGOTTEN},
}
"""The fields that `SessionStep.of_request` reads, in their order on the wire."""
IDENTITY: Final = struct.Struct(">ii")
"""The first two of them."""
_FULL: Final = frozenset({INITIAL_EPOCH, FINAL_EPOCH})
"""Epochs of full requests."""
_RESPONSE: Final = {"error_code": CHOSEN, "session_id": CHOSEN}
_ANSWER: Final = struct.Struct(">hi")
"""The fields of a response that decide what becomes of the session."""

Bools = NDArray[np.bool_]
Version = tuple[int, int]
"""An API's key and version."""


class SessionFollower:
    """Applies messages to the sessions of `enricher`."""

    def __init__(self, kernel: Kernel, enricher: Enricher) -> None:
        self._enricher = enricher
        self._requests = _Fields(kernel, request_plan, _REQUEST, MAX_LIST)
        self._responses = _Fields(kernel, response_plan, _RESPONSE, _ANSWER.size)
        self._steps: dict[tuple[Version, bytes], SessionStep | None] = {}
        self._places: dict[Version, int | None] = {}
        """Where the bodies of requests have `IDENTITY`; at most one for each defined version of Fetch."""

    def apply(self, collected: Collected, detail: Detail) -> MessageSessions:
        """Apply the messages of the next packets, whose exchanges have their numbers."""
        sessions, message_sessions = self._enricher.sessions, MessageSessions.of(collected.messages)
        # Sessions are in bodies.
        if sessions is None or detail.decode.headers or not detail.decode.bodies:
            return message_sessions
        places: dict[int, int] = {}
        for index, message in _in_order(collected):
            if not message.is_request:
                if sessions.waits(message.exchange):
                    self._response(sessions, message)
                continue
            exchange = message.exchange
            step = self._step(sessions, message)
            session = None if step is None else sessions.request(message.broker, exchange, step)
            content = message_sessions.by_exchange[exchange] = None if session is None else session.content
            if content is not None and index is not None:
                place = places.get(id(content))
                if place is None:
                    message_sessions.contents.append(content)
                    place = places[id(content)] = len(message_sessions.contents)
                message_sessions.places[index] = place
        return message_sessions

    def show(self, applied: Mapping[int, object]) -> None:
        """These are the messages that the enricher sees next (`MessageSessions.by_exchange`)."""
        self._enricher.applied = applied  # type: ignore[assignment]  # set by `apply`

    def _step(self, sessions: FetchSessions, message: _FetchMessage) -> SessionStep | None:
        """What a request does; None: it has no session, or one that nobody knows."""
        identity = self._identity(message)
        if identity is not None and identity[1] not in _FULL and (message.broker, identity[0]) not in sessions:
            return None
        copied = self._requests.of(message)
        if copied is None:
            return _step_of(message.body())
        number, epoch = IDENTITY.unpack_from(copied)
        # Full requests begin or end sessions, which is rare, and they read less of the lists.
        if epoch in _FULL:
            return None if number == 0 and epoch == FINAL_EPOCH else _step_of(message.body())
        if (message.broker, number) not in sessions:
            return None
        key = message.version, copied[IDENTITY.size :]
        if key not in self._steps:
            if len(self._steps) >= MAX_KEPT:
                self._steps.clear()
            self._steps[key] = _step_of(message.body())
        kept = self._steps[key]
        # The lists of a request's step never change.
        return None if kept is None else SessionStep(number, epoch, kept.by_id, kept.added, kept.forgotten)

    def _identity(self, message: _FetchMessage) -> tuple[int, int] | None:
        """Session and epoch of a regular request, if they have a fixed place. Hot."""
        version = message.version
        if version not in self._places:
            schema = request_plan(*version).schema
            self._places[version] = None if schema is None else place_of_identity(schema.root)
        place = self._places[version]
        if place is None or not message.address or message.position + place + IDENTITY.size > message.end:
            return None
        number, epoch = IDENTITY.unpack_from(message.data, message.position + place)
        return number, epoch

    def _response(self, sessions: FetchSessions, message: _FetchMessage) -> None:
        copied = self._responses.of(message)
        if copied is not None:
            error, number = _ANSWER.unpack(copied)
            sessions.response(message.broker, message.exchange, number, error)
        elif (body := message.body()) is not None:
            sessions.response(message.broker, message.exchange, body.get("session_id"), body.get("error_code"))


def _step_of(body: Body | None) -> SessionStep | None:
    return None if body is None else SessionStep.of_request(body)


class _FetchMessage(NamedTuple):
    """A message that may belong to a session."""

    is_request: bool
    version: Version
    exchange: int
    broker: Endpoint | None
    event: MessageEvent | None
    """Set unless it is a regular message."""
    data: bytes = b""
    address: int = 0
    """Address of `data`; 0: `position` is unknown."""
    start: int = 0
    """Place of the message; the next two are those of its body and of its end."""
    position: int = 0
    end: int = 0

    def body(self) -> Body | None:
        """The body as far as it can be decoded, without records."""
        if self.event is not None:
            return self.event.read().body
        if self.is_request:
            return decode_request(self.data, self.start, self.end, _OPTIONS).body
        return decode_response(self.data, self.start, self.end, *self.version, _OPTIONS).body


def _in_order(collected: Collected) -> Iterator[tuple[int | None, _FetchMessage]]:
    """The Fetch messages among regular messages and events, with the indices of regular ones."""
    rows = iter(()) if collected.messages is None else _rows(collected.messages)
    row = next(rows, None)
    for stop, (_, _, _, connection, event) in zip(collected.stops, collected.keyed, strict=True):
        if not isinstance(event, MessageEvent):
            continue
        decoded = event.decoded
        key, version = decoded.api_key, decoded.api_version
        if not uses_sessions(key, version) or (decoded.body is None and decoded.rest is None):
            continue
        while row is not None and row[0] < stop:
            yield row
            row = next(rows, None)
        assert key is not None
        assert version is not None
        number = connection.exchanges[event.ordinal].number
        yield None, _FetchMessage(event.is_request, (key, version), number, connection.broker, event)
    while row is not None:
        yield row
        row = next(rows, None)


def _rows(messages: Messages) -> Iterator[tuple[int, _FetchMessage]]:
    """The regular messages that may belong to sessions."""
    rows = messages.rows[: messages.here]
    codes = rows["code"].astype(np.int64)
    wanted = np.zeros(KEYS * VERSIONS, bool)
    versions = {code: divmod(code, VERSIONS) for code in distinct(codes)} if len(codes) else {}
    for code, (key, version) in versions.items():
        wanted[code] = uses_sessions(key, version) and request_plan(key, version).schema is not None
    index = np.flatnonzero(wanted[codes] & ((rows["flags"] & ENDED) == 0))
    if not len(index):
        return
    chosen = rows.take(index)
    flags, start = chosen["flags"], chosen["start"].astype(np.int64)
    in_arena = (flags & ARENA) > 0
    kept: list[bytes] = []
    stores = messages.buffer, messages.arena
    addresses = [address_of(data, kept) if data else 0 for data in stores]
    brokers = [None if owner is None else owner.broker for owner in messages.owners]
    # One tuple for each: there may be as many as messages. The body is after the tagged fields of the header.
    fields = zip(
        ((flags & REQUEST) > 0).tolist(),
        map(versions.__getitem__, chosen["code"].tolist()),
        chosen["number"].tolist(),
        map(brokers.__getitem__, chosen["connection"].tolist()),
        itertools.repeat(None),
        map(stores.__getitem__, in_arena.tolist()),
        np.where(flags & TAGS, 0, np.array(addresses, np.uint64)[in_arena.astype(np.intp)]).tolist(),
        start.tolist(),
        (start + chosen["body"]).tolist(),
        (start + chosen["size"]).tolist(),
        strict=False,
    )
    yield from zip(index.tolist(), map(_FetchMessage._make, fields), strict=True)


class _Fields:
    """Copies fields of bodies in one direction; `plan`: that of its messages, `wanted`: fields by name."""

    def __init__(
        self, kernel: Kernel, plan: Callable[[int, int], MessagePlan], wanted: Mapping[str, object], most: int
    ) -> None:
        self._kernel = kernel
        self._plan = plan
        self._wanted = wanted
        self._most = most
        self._known: dict[Version, ChosenFields | None] = {}
        """At most one for each defined version of Fetch."""

    def of(self, message: _FetchMessage) -> bytes | None:
        """The fields; None if they have to be read from the decoded body. Hot."""
        version = message.version
        if version not in self._known:
            self._known[version] = self._new(version)
        fields = self._known[version]
        if fields is None or (message.event is None and not message.address):
            return None
        if message.event is None:
            return fields.of(message.address, message.end, message.position)
        rest = message.event.decoded.rest
        if rest is None or rest.cut:
            return None
        return fields.of(address_of(rest.data, []), rest.end, rest.position)

    def _new(self, version: Version) -> ChosenFields | None:
        schema = self._plan(*version).schema
        if schema is None:
            return None
        return ChosenFields(
            self._kernel, program_of(schema.root, roles=[0, *_roles(schema.root, self._wanted)]), self._most
        )


def place_of_identity(layout: Struct) -> int | None:
    """Bytes before `IDENTITY` in a request's body; None if they vary."""
    place = 0
    for field, following in pairwise(layout.fields):
        if field.name == "session_id":
            return place if following.name == "session_epoch" and field.type == following.type == "int32" else None
        if field.array or field.type not in FORMATS:
            return None
        place += FORMATS[field.type][1]
    return None


def _roles(layout: Struct, wanted: Mapping[str, object]) -> Iterator[int]:
    """A role for each op of a struct's fields."""
    for field in (*layout.fields, *layout.tagged):
        role = wanted.get(field.name, 0)
        yield role if isinstance(role, int) else INSIDE
        if field.struct is not None:
            yield from _roles(field.struct, role if isinstance(role, Mapping) else {})


# -- topics that earlier messages add ----------------------------------------------------------------------------------


class BatchTopics:
    """The topics that earlier messages add to those of a batch. `enricher`: has processed everything before the batch.

    The messages of the batch are looked through for names only if some topic id had none. `read`: whether the kernel
    finds that exchanges of these responses have nothing to learn from, by their indices.
    """

    def __init__(
        self,
        enricher: Enricher,
        collected: Collected,
        read: Callable[[NDArray[np.intp]], Bools],
    ) -> None:
        self._catalog = enricher.catalog
        self._collected = collected
        self._read = read
        self._learned: dict[str, tuple[int, str]] | None = None
        """By topic id: the first message that sees the name, and the name."""
        self._limit = 0
        """From this message on, other names may be known, too."""

    def is_known(self, topic_id: str, message: int) -> bool:
        """Whether it is known what a message sees of a topic id that had no name before the batch."""
        if self._learned is None:
            self._learn()
        return message < self._limit or self.name(topic_id, message) is not None

    def name(self, topic_id: str, message: int) -> str | None:
        """The name of a topic id that had none before the batch; None: this message does not see any."""
        assert self._learned is not None
        first, name = self._learned.get(topic_id, (0, None))
        return name if name is not None and message >= first else None

    def of_session(self, request: int) -> list[str] | None:
        """The known topics of a request's session; None: they are not known here."""
        sessions = self._collected.sessions
        if sessions is None or request >= len(sessions.places):
            return None
        index = int(sessions.places[request])
        if not index:
            return []
        content = sessions.contents[index - 1]
        found = []
        for topic in content.topics:
            name = self._catalog.topic(topic) if content.by_id else topic
            if name is None:
                if not self.is_known(topic, request):
                    return None
                name = self.name(topic, request)
            if name is not None:
                found.append(name)
        return found

    def _learn(self) -> None:
        """Note which topic ids messages of the batch name."""
        learned = self._learned = {}
        messages = self._collected.messages
        assert messages is not None
        self._limit = messages.here
        if any(_has_metadata_log(data) for data in (messages.buffer, messages.arena)):
            self._limit = 0
        student = Enricher(adds=False, sessions=False)
        for first, key, version, direction, body in sorted(self._teachers(messages), key=itemgetter(0)):
            student.catalog = Catalog()
            student.name_body(key, version, direction, body)
            for topic_id, name in student.catalog.learnt.items():
                learned.setdefault(topic_id, (first, name))

    def _teachers(self, messages: Messages) -> Iterator[tuple[int, int, int, Direction, Body]]:
        """Bodies that may name topic ids, and the first message that sees these names."""
        rows = messages.rows[: messages.here]
        is_request = (rows["flags"] & REQUEST) > 0
        for asks in (True, False):
            index = _of_teachers(rows, is_request == asks, asks=asks)
            if not asks:
                index = index[~self._read(index)]
            for at in index.tolist():
                row = rows[at]
                data, start = messages.arena if row["flags"] & ARENA else messages.buffer, int(row["start"])
                key, version = divmod(int(row["code"]), VERSIONS)
                end = start + int(row["size"])
                decoded = (
                    decode_request(data, start, end, _OPTIONS)
                    if asks
                    else decode_response(data, start, end, key, version, _OPTIONS)
                )
                if decoded.body is not None:
                    yield at + 1, key, version, "request" if asks else "response", decoded.body
        for stop, (*_, event) in zip(self._collected.stops, self._collected.keyed, strict=True):
            if not isinstance(event, MessageEvent):
                continue
            decoded, frame = event.decoded, event.frame
            direction: Direction = "request" if event.is_request else "response"
            if _has_metadata_log(frame.data[frame.start : frame.end]):
                self._limit = min(self._limit, stop)
            if decoded.api_key is None or decoded.api_version is None:
                continue
            if teaches_topics(decoded.api_key, decoded.api_version, direction):
                body = event.read().body
                if body is not None:
                    yield stop, decoded.api_key, decoded.api_version, direction, body


def _has_metadata_log(data: bytes) -> bool:
    """Whether there may be records of KRaft's metadata log, which name topic ids."""
    return METADATA_LOG in data or METADATA_ID in data


def _of_teachers(rows: NDArray[np.void], chosen: Bools, *, asks: bool) -> NDArray[np.intp]:
    """The chosen messages whose kind names topic ids."""
    codes = rows["code"].astype(np.int64)
    table = np.zeros(KEYS * VERSIONS, bool)
    for code in distinct(codes) if len(codes) else ():
        table[code] = teaches_topics(*divmod(code, VERSIONS), "request" if asks else "response")
    found: NDArray[np.intp] = np.flatnonzero(chosen & table[codes])
    return found
