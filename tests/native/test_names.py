"""Names for lines of the kernel: the table of topics that it asks for, and how it grows, forgets and is cleared."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from kafkasniff.native import names as module
from kafkasniff.native.names import FIRST_PLACES, LineNames, MessageSession, NativeNames
from kafkasniff.native.sessions import KnownSessions, NativeSessions

WANTED, UNKNOWN, GIVEN, LEARNT = range(4)
TOPICS, ROOM, SESSION = 1, 2, 4


class Facts:
    """What an enricher would know."""

    def __init__(self) -> None:
        self.learned = 0
        self.forgets = False
        self.topics: dict[bytes, tuple[bytes | None, bool]] = {}
        self.sessions: Iterator[MessageSession | None] = iter(())
        self.continued: list[int] = []

    def topic(self, topic_id: bytes, /) -> tuple[bytes | None, bool]:
        return self.topics.get(topic_id, (None, False))

    def session(self, index: int, first: int, second: int, /) -> MessageSession | None:
        return next(self.sessions)

    def continue_sessions(self, steps: NDArray[np.uint32], /) -> None:
        self.continued += steps.tolist()


def structure(names: LineNames) -> NativeNames:
    return NativeNames.from_address(names.address)


def ask(names: LineNames, *topics: bytes) -> list[tuple[bytes | None, int]]:
    """As the kernel does: puts ids into places of the table, and reads their names and states there."""
    found = structure(names)
    for place, topic in enumerate(topics):
        names._topics["id"][place] = np.void(topic)
        names._wants[place] = place
    found.asks, found.wanted = TOPICS, len(topics)
    assert names.answer()
    rows = names._topics[: len(topics)]
    return [
        (ctypes.string_at(int(row["text"]), int(row["size"])) if row["text"] else None, int(row["state"]))
        for row in rows
    ]


A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def test_topics_are_named() -> None:
    facts = Facts()
    facts.topics = {A: (b'"orders"', True), B: (b'"given"', False)}
    names = LineNames(facts)
    assert ask(names, A, B, C) == [(b'"orders"', LEARNT), (b'"given"', GIVEN), (None, UNKNOWN)]


def test_what_was_learned_changes_other_answers() -> None:
    """Names from messages stay; others may be replaced by them."""
    facts = Facts()
    facts.topics = {A: (b'"orders"', True), B: (b'"given"', False)}
    names = LineNames(facts)
    ask(names, A, B, C)
    assert not names.changed()
    facts.learned = 1
    assert names.changed()
    assert not names.changed()
    assert names._topics["state"][:3].tolist() == [LEARNT, WANTED, WANTED]
    assert structure(names).mask == FIRST_PLACES - 1


def test_names_may_be_forgotten() -> None:
    facts = Facts()
    facts.topics = {A: (b'"orders"', True)}
    names = LineNames(facts)
    ask(names, A)
    facts.learned, facts.forgets = 1, True
    assert names.changed()
    assert names._topics["state"][0] == WANTED
    assert structure(names).used == 0


def test_the_table_grows_and_is_cleared_once_per_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PLACES", 4 * FIRST_PLACES)
    names = LineNames(Facts())
    names.bind(3)
    found = structure(names)
    sizes = []
    for index in (0, 0, 0):
        found.asks, found.index = ROOM, index
        assert names.answer()
        sizes.append(len(names._topics))
    assert sizes == [2 * FIRST_PLACES, 4 * FIRST_PLACES, 4 * FIRST_PLACES]
    # The message has more topics than the table has room for: Python decodes it.
    assert not names.answer()
    found.index = 1
    assert names.answer()


def test_fetch_sessions() -> None:
    facts = Facts()
    text = b'"_session":{}'
    facts.sessions = iter([MessageSession(3, text), MessageSession(3, text), MessageSession(-1, None), None])
    names = LineNames(facts)
    found = structure(names)
    found.asks = SESSION
    assert names.asks_session()
    for index in range(2):
        found.index = index
        assert names.answer()
        assert (found.answered, found.partitions) == (index, 3)
        assert ctypes.string_at(found.session, found.session_size) == text
    assert names.answer()
    assert (found.partitions, found.session, found.session_size) == (-1, None, 0)
    assert not names.answer()


def test_messages_that_the_kernel_handled_are_processed_before_it_is_answered() -> None:
    facts, sessions = Facts(), KnownSessions()
    facts.sessions = iter([MessageSession(3, None), MessageSession(-1, None)])
    names = LineNames(facts, sessions)
    names.bind(5)
    found = structure(names)
    native = NativeSessions.from_address(found.sessions)
    steps = (ctypes.c_uint32 * 5).from_address(native.steps)
    steps[0], steps[1], native.steps_used = 1, 3, 2
    found.asks, found.index, found.is_request = SESSION, 4, 1
    assert names.answer()
    assert facts.continued == [1, 3]
    # The response to a request in a session may be handled in the kernel.
    assert ctypes.string_at(found.answers, 5) == bytes([0, 0, 0, 0, 2])
    found.index = 2
    assert names.answer()
    assert facts.continued == [1, 3]
    assert ctypes.string_at(found.answers, 5) == bytes([0, 0, 0, 0, 2])


def test_messages_are_bound_by_their_number() -> None:
    names = LineNames(Facts())
    names.bind(5)
    found = structure(names)
    assert found.answers_size == 5
    assert ctypes.string_at(found.answers, 5) == bytes(5)
    assert found.answered == (1 << 64) - 1
