"""Decides which fetch sessions the kernel follows, and applies the messages that it has handled.

Of other requests, reads what they do to their sessions, without decoding most of them: a request of a session lists the
partitions whose offsets have changed, and so the same ones again and again. The effect of a list is kept by its topics
and partitions, which the kernel copies from the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import orjson

from kafkasniff.enrich.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessions,
    SessionKey,
    SessionStep,
    session_fields,
)
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.native.caller import Program
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.names import CHANGE, CHOSEN, INSIDE, PARTITION, TOPIC, ChosenFields, KnownSession, KnownSessions

MAX_KEPT: Final = 1 << 11
"""Lists that are kept; then all are read again."""
MAX_LIST: Final = 1 << 10
"""Bytes of topics and partitions of a list that is kept. Longer ones are decoded every time."""

_OPTIONS: Final = DecodeOptions(records="skip")
_PARTITIONS: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": {"partition": CHOSEN}}
_FORGOTTEN: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": CHOSEN}
_LISTS: Final = {"topics": _PARTITIONS, "forgotten_topics_data": _FORGOTTEN}
"""The fields that `SessionStep.of_request` reads, apart from the session's number and epoch."""
_KNOWN: Final = {
    "topics": {"topic": TOPIC, "topic_id": TOPIC, "partitions": {"partition": PARTITION}},
    "forgotten_topics_data": CHANGE,
}
"""The same for `native.names`."""

PARTITIONS_PER_REQUEST: Final = 16
"""A session is followed after one unchanged request per this many partitions, because following it takes time, too."""


SessionText = Callable[[int, int | None], bytes]
"""What is shown of a session: the number of its partitions, and `FetchSession.unnamed`."""


class SessionFollower:
    """Keeps `known` like `sessions`. Connections are indices in the feed.

    `text`: what requests show of their sessions; by default `session_json`.
    """

    def __init__(
        self, kernel: Kernel, sessions: FetchSessions, known: KnownSessions, text: SessionText | None = None
    ) -> None:
        self._kernel = kernel
        self._text = session_json if text is None else text
        self._sessions = sessions
        self._known = known
        self._programs: dict[int, Program] = {}
        """By the code of a version of Fetch."""
        self._keys: dict[int, SessionKey] = {}
        """By connection, the session that the kernel follows."""
        self._connections: dict[SessionKey, set[int]] = {}
        self._unchanged: dict[int, int] = {}
        """By connection, how many requests in a row changed nothing."""

    @property
    def changes(self) -> int:
        """Incremented with each change of a session."""
        return self._sessions.changes

    def asked(
        self, connection: int, code: int, key: SessionKey, session: FetchSession | None, *, is_changed: bool
    ) -> None:
        """Python has processed a request that continues a session; `session`: None if that is unknown."""
        unchanged = 0 if is_changed else self._unchanged.get(connection, 0) + 1
        if not unchanged or (session is not None and unchanged * PARTITIONS_PER_REQUEST < session.partitions):
            self._unchanged[connection] = unchanged
            return
        self.forget([connection])
        program = self._programs.get(code)
        if program is None:
            program = self._programs[code] = known_session(self._kernel, code)
        partitions = -1 if session is None else session.partitions
        if session is None:
            one = KnownSession(key[1], code, program, partitions)
        else:
            text = self._text(partitions, session.unnamed)
            one = KnownSession(key[1], code, program, partitions, topics_of(session), text)
        if not self._known.add(connection, one):
            if not self._known.is_full:
                return
            self.forget(list(self._keys))
            if not self._known.add(connection, one):
                return
        self._keys[connection] = key
        self._connections.setdefault(key, set()).add(connection)
        self._sessions.followed.add(key)

    def proceed(self, messages: Iterable[tuple[bool, int, int]]) -> None:
        """Apply messages that the kernel has handled: whether each is a request, its connection and its exchange."""
        for is_request, connection, exchange in messages:
            if is_request:
                self._sessions.proceed(self._keys[connection], exchange)
            else:
                self._sessions.keep(exchange)

    def release(self) -> None:
        """Follow sessions that have changed no longer."""
        stale = self._sessions.stale
        if stale:
            for key in stale:
                # Its connections may be forgotten by now.
                for connection in self._connections.pop(key, ()):
                    del self._keys[connection]
                    self._known.remove(connection)
            stale.clear()

    def forget(self, connections: Iterable[int]) -> None:
        """Follow the sessions of these connections no longer."""
        for connection in connections:
            self._unchanged.pop(connection, None)
            key = self._keys.pop(connection, None)
            if key is None:
                continue
            self._known.remove(connection)
            others = self._connections[key]
            others.remove(connection)
            if not others:
                del self._connections[key]
                self._sessions.followed.discard(key)


@lru_cache(maxsize=1 << 10)
def session_json(partitions: int, unnamed: int | None) -> bytes:
    """What JSON lines show of a session; `unnamed` as in `FetchSession`."""
    return orjson.dumps(session_fields(partitions, unnamed))


def topics_of(session: FetchSession) -> Iterator[tuple[bytes, set[int]]]:
    """The partitions of a session by topic, as `KnownSession` has them."""
    for topic, partitions in session.topics.items():
        if not session.by_id:
            yield topic.encode(), partitions
            continue
        try:
            yield uuid_bytes(topic), partitions
        except ValueError:
            # The session also has topics by name, from requests of an older version: requests for them are asked about.
            continue


# -- what requests do to their sessions -------------------------------------------------------------------------------


def known_session(kernel: Kernel, code: int) -> Program:
    """The program that reads the partitions of a version of Fetch for `native.names`."""
    return Program(kernel, _program(code, _KNOWN))


class SessionSteps:
    """The steps of requests, by their bytes."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._lists: dict[int, ChosenFields] = {}
        """By the code of a version of Fetch."""
        self._kept: dict[tuple[int, bytes], SessionStep | None] = {}

    def of(
        self, code: int, message: memoryview, address: int, body: int, identity: tuple[int, int]
    ) -> SessionStep | None:
        """The step of a request; see `SessionStep.of_request`. Hot.

        `address`: of the message's bytes; `body`: where the body begins; `identity`: the session's number and epoch.
        Raises Odd for a body that cannot be decoded.
        """
        number, epoch = identity
        # The other epochs begin or end sessions, which is rare, and they read less of the lists.
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            return _read(code, message, body)
        lists = self._lists.get(code) or self._new(code)
        copied = lists.of(address, len(message), body)
        if copied is None:
            return _read(code, message, body)
        key = code, copied
        kept = self._kept.get(key)
        if kept is None:
            kept = _read(code, message, body)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = kept
        # The lists of a request's step never change.
        return None if kept is None else SessionStep(number, epoch, kept.by_id, kept.added, kept.forgotten)

    def _new(self, code: int) -> ChosenFields:
        made = self._lists[code] = ChosenFields(self._kernel, _program(code, _LISTS), MAX_LIST)
        return made


def _schema(code: int) -> Schema:
    schema = request_plan(*divmod(code, VERSIONS)).schema
    assert schema is not None
    return schema


def _read(code: int, message: memoryview, body: int) -> SessionStep | None:
    data = message.tobytes()
    found, _ = _schema(code).decode(data, body, len(data), DecodeContext(_OPTIONS))
    return SessionStep.of_request(found)


def _program(code: int, wanted: Mapping[str, object]) -> bytes:
    root = _schema(code).root
    return program_of(root, roles=[0, *_roles(root, wanted)])


def _roles(struct: Struct, wanted: Mapping[str, object]) -> list[int]:
    """A role for each op of a struct's fields."""
    found: list[int] = []
    for field in (*struct.fields, *struct.tagged):
        role = wanted.get(field.name, 0)
        found.append(role if isinstance(role, int) else INSIDE)
        if field.struct is not None:
            found += _roles(field.struct, role if isinstance(role, Mapping) else {})
    return found
