"""Decides which fetch sessions the kernel follows, and applies the messages that it has handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import orjson

from kafkasniff.enrich.sessions import FetchSession, FetchSessions, SessionKey, session_fields
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel
from kafkasniff.native.sessions import KnownSession, KnownSessions
from kafkasniff.sinks.session_steps import known_session

__all__ = ["SessionFollower", "SessionText", "session_json", "topics_of"]

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
