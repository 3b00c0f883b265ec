"""Fetch sessions over rows: the topics of a Fetch in a session, from all earlier steps of the session.

A session belongs to its broker, and its steps may come over several connections. They have to be processed broker by
broker, in the order of the requests (`Sessions`). Code that makes rows in another order looks the results up
(`HeldSessions`).
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from kafkasniff.enrich.catalog import BEFORE
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSessions, SessionContent, SessionStep
from kafkasniff.model import Endpoint, Message

MAX_ANSWERS: Final = 1 << 16
"""Responses that wait for their time while requests are processed; the earliest is taken first."""

ExchangeKey = tuple[int, int]
"""`connection_id` and `exchange_id`."""


class SessionSource(Protocol):
    """Source of the content of sessions."""

    def held(self, key: ExchangeKey, broker: Endpoint, time_ns: int | None, step: SessionStep) -> SessionContent | None:
        """The session content that applies to a Fetch exchange; None if it has no known session."""

    def answer(self) -> None:
        """Called after the last row."""


def session_step(request: Message, response: Message | None) -> SessionStep | None:
    """The effect of a Fetch exchange on its session; None if it has no session."""
    step = SessionStep.of_request(request.body or {})
    if step is None:
        return None
    if response is not None:
        step.answer_ns = response.time_ns
        step.answer(response.body or {})
    return lasting(step)


def lasting(step: SessionStep) -> SessionStep | None:
    """What remains of a step once its response is known; None if it changes no session."""
    if step.number == 0 and step.epoch == FINAL_EPOCH:
        return None
    if step.epoch == INITIAL_EPOCH and (step.answer_error or not step.answer_number):
        # Its only effect is the end of the session that it may have had.
        step.by_id, step.added = False, {}
        return step if step.number else None
    return step


class Sessions:
    """Fetch sessions over rows that come in the order of their requests; a state may hold them."""

    def __init__(self) -> None:
        self._sessions = FetchSessions()
        self._answers: list[tuple[int, int, Endpoint, int | None, int]] = []
        """Pending responses, as a heap: (time, number of the exchange, broker, session, error)."""
        self._number = 0

    def held(self, key: ExchangeKey, broker: Endpoint, time_ns: int | None, step: SessionStep) -> SessionContent | None:
        """See `SessionSource`."""
        del key
        return self.step(broker, time_ns, step)

    def step(self, broker: Endpoint, time_ns: int | None, step: SessionStep) -> SessionContent | None:
        """Process a Fetch exchange; returns the session content that applies to it, if any."""
        now = BEFORE if time_ns is None else time_ns
        self.answer(now)
        self._number += 1
        session = self._sessions.request(broker, self._number, step)
        if step.answer_number is not None:
            at = now if step.answer_ns is None else step.answer_ns
            heapq.heappush(self._answers, (at, self._number, broker, step.answer_number, step.answer_error))
            if len(self._answers) > MAX_ANSWERS:
                self._answered(heapq.heappop(self._answers))
        return None if session is None else session.content

    def answer(self, until: int | None = None) -> None:
        """Take the responses up to a time; None: all. See `SessionSource`."""
        while self._answers and (until is None or self._answers[0][0] <= until):
            self._answered(heapq.heappop(self._answers))

    def of(self, brokers: Container[Endpoint | None]) -> Sessions:
        """The state of some brokers' sessions after all responses."""
        sessions = Sessions()
        sessions._sessions = self._sessions.of(brokers)
        return sessions

    def replace(self, brokers: Container[Endpoint | None], others: Sessions) -> None:
        """Replace some brokers' sessions by those of another process."""
        self._sessions.replace(brokers, others._sessions)

    def _answered(self, answer: tuple[int, int, Endpoint, int | None, int]) -> None:
        _, number, broker, session_id, error = answer
        self._sessions.response(broker, number, session_id, error)


class HeldSessions:
    """Content of sessions, computed before and looked up by exchange."""

    def __init__(self) -> None:
        self._found: dict[ExchangeKey, bytes] = {}
        self._read = lru_cache(maxsize=1024)(_read_held)

    def add(self, key: ExchangeKey, data: bytes) -> None:
        """Add the output of `encode_held`."""
        self._found[key] = data

    def held(self, key: ExchangeKey, broker: Endpoint, time_ns: int | None, step: SessionStep) -> SessionContent | None:
        """See `SessionSource`."""
        del broker, time_ns, step
        data = self._found.get(key)
        return None if data is None else self._read(data)

    def answer(self) -> None:
        """See `SessionSource`."""


_HELD: Final = msgspec.msgpack.Decoder(tuple[tuple[str, ...], bool, int, int | None])


def encode_held(held: SessionContent) -> bytes:
    """Encode as bytes; equal content gives equal bytes."""
    return msgspec.msgpack.encode(held)


def _read_held(data: bytes) -> SessionContent:
    # The same object for the same bytes: rows of a session share its list of topics.
    return SessionContent(*_HELD.decode(data))
