"""The kernel's questions to an enricher about topic ids and fetch sessions. `tests/test_line_names.py` has it in lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.kafka.apis.named_apis import FETCH
from kafkasniff.kafka.schema.uuids import uuid_text
from kafkasniff.model import Endpoint
from kafkasniff.native.feed import REQUEST, VERSIONS
from kafkasniff.native.lines import LineBatch
from kafkasniff.native.names import MessageSession
from kafkasniff.native.sessions import KnownSessions
from kafkasniff.sinks.native_names import AddedNames, NamesAhead
from tests.engine.test_in_step import talks
from tests.engine.test_line_runs import packets_of
from tests.native.feed_messages import Seen, batches, recorded
from tests.native.kernel_and_walker import the_kernel
from tests.test_line_names import WORDS, A

BROKER = Endpoint("10.0.0.9", 9092)
NOTHING = MessageSession(-1, None)


def _fetches(*said: str) -> list[Seen]:
    _, seen = recorded(packets_of(talks([list(said)], words=WORDS), []))
    return [one for one in seen if one.message.api_key == FETCH]


def _bound(names: AddedNames, seen: list[Seen]) -> LineBatch:
    (batch,) = batches(seen, len(seen))
    bound = LineBatch(batch.messages, batch.numbers, batch.buffer, batch.arena, batch.earlier)
    names.bind(bound)
    return bound


def _asked(names: AddedNames, seen: list[Seen], index: int) -> MessageSession | None:
    body: Any = seen[index].message.body
    if seen[index].event.is_request:
        return names.session(index, body["session_id"], body["session_epoch"])
    return names.session(index, body["error_code"], body["session_id"])


def _names(known: KnownSessions | None = None) -> tuple[AddedNames, Enricher]:
    enricher = Enricher(Catalog({uuid_text(A): "given"}))
    return AddedNames(the_kernel(), enricher, lambda _: BROKER, known), enricher


def test_topics() -> None:
    names, enricher = _names()
    assert names.topic(A) == (b"given", False)
    assert names.topic(bytes([9]) * 16) == (None, False)
    before = names.learned
    enricher.catalog.learn_topic(uuid_text(bytes([9]) * 16), "größe")
    assert names.learned == before + 1
    assert names.topic(bytes([9]) * 16) == ("größe".encode(), True)
    assert not names.forgets
    enricher.catalog.most_topics = 1
    assert names.forgets


def test_sessions_as_they_begin_change_and_end() -> None:
    seen = _fetches("opens 7", "continues 7", "adds to 7", "is refused", "continues 7")
    names, _ = _names()
    _bound(names, seen)
    found = [_asked(names, seen, index) for index in range(len(seen))]
    two, five = MessageSession(2, b'{"partitions":2}'), MessageSession(5, b'{"partitions":5}')
    # Requests and responses in turn; the first request opens the session, and the refused one ends it.
    assert found == [NOTHING, NOTHING, two, NOTHING, five, NOTHING, five, NOTHING, NOTHING, NOTHING]
    # Asked again, before another message, it is the same.
    assert _asked(names, seen, 9) == NOTHING


def test_a_request_that_cannot_be_decoded_is_pythons() -> None:
    seen = _fetches("opens 7", "continues 7")
    names, _ = _names()
    bound = _bound(names, seen)
    bound.messages["size"][2] -= 3
    assert _asked(names, seen, 0) == _asked(names, seen, 1) == NOTHING
    assert _asked(names, seen, 2) is None


def test_messages_that_the_kernel_has_handled() -> None:
    seen = _fetches("opens 7", *["continues 7"] * 4)
    known = KnownSessions()
    names, enricher = _names(known)
    bound = _bound(names, seen)
    for index in range(4):
        _asked(names, seen, index)
    sessions = enricher.sessions
    assert sessions is not None
    # The session did not change, and is followed.
    connection = int(bound.messages["connection"][0])
    assert list(known._kept) == [connection]
    names.continue_sessions(np.array([4], np.uint32))
    assert list(sessions._pending) == [int(bound.numbers[4])]
    names.continue_sessions(np.array([5, 6, 7], np.uint32))
    assert not sessions._pending
    names.forget([connection])
    assert not known._kept


def test_sessions_that_change_are_released() -> None:
    seen = _fetches("opens 7", "continues 7", "continues 7", "is refused")
    known = KnownSessions()
    names, _ = _names(known)
    _bound(names, seen)
    for index in range(7):
        _asked(names, seen, index)
    assert known._kept
    # The response with an error ends it.
    _asked(names, seen, 7)
    names.release()
    assert not known._kept


def test_ahead_nothing_changes() -> None:
    seen = _fetches("opens 7", "continues 7")
    enricher = Enricher(Catalog())
    names = NamesAhead(the_kernel(), enricher, lambda _: BROKER)
    bound = _bound(names, seen)
    assert [bool(flags & REQUEST) for flags in bound.messages["flags"]] == [True, False] * 2
    assert [_asked(names, seen, index) for index in range(4)] == [None, NOTHING] * 2
    assert names.requests == {0, 2}
    assert names.responses == {1: (0, 7), 3: (0, 7)}
    assert enricher.sessions is not None
    assert len(enricher.sessions) == 0
    assert {int(code) // VERSIONS for code in bound.messages["code"]} == {FETCH}
