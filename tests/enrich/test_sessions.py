"""Fetch sessions by the rules of KIP-227, on bodies as the dissectors give them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.session_follower import IDENTITY, place_of_identity
from kafkasniff.enrich import Catalog, Enricher, sessions
from kafkasniff.enrich.sessions import MAX_NAMED, FetchSession, FetchSessions, SessionStep, session_fields
from kafkasniff.kafka.apis.dissectors import FETCH, api
from kafkasniff.model import Endpoint
from tests.craft.from_layout import encoded

BROKER, OTHER = Endpoint("10.0.0.9", 9092), Endpoint("10.0.0.10", 9092)
ORDERS, PAYMENTS = "3hvnHBaqQU2Y6pOqkwEIng", "kWPwuFi0TiCTnIpKhOP3lg"


def fetch(session: int, epoch: int, topics: Any = None, forgotten: Any = None) -> dict[str, Any]:
    """`topics`, `forgotten`: id → partitions; v13 names topics by id."""
    return {
        "session_id": session,
        "session_epoch": epoch,
        "topics": [
            {"topic_id": one, "partitions": [{"partition": number} for number in numbers]}
            for one, numbers in (topics or {}).items()
        ],
        "forgotten_topics_data": [
            {"topic_id": one, "partitions": list(numbers)} for one, numbers in (forgotten or {}).items()
        ],
    }


def request(found: FetchSessions, broker: Endpoint | None, exchange: int, body: dict[str, Any]) -> FetchSession | None:
    step = SessionStep.of_request(body)
    return None if step is None else found.request(broker, exchange, step)


def respond(found: FetchSessions, broker: Endpoint | None, exchange: int, body: dict[str, Any]) -> None:
    found.response(broker, exchange, body.get("session_id"), body.get("error_code"))


def opened(topics: Any, session: int = 7, exchange: int = 1) -> FetchSessions:
    found = FetchSessions()
    assert request(found, BROKER, exchange, fetch(0, 0, topics)) is None, "a full request names all itself"
    respond(found, BROKER, exchange, {"error_code": 0, "session_id": session, "responses": []})
    return found


def held(found: FetchSessions, exchange: int, body: dict[str, Any], broker: Endpoint = BROKER) -> int | None:
    session = request(found, broker, exchange, body)
    return None if session is None else session.partitions


def test_a_session_is_what_its_first_request_named_and_later_ones_changed() -> None:
    found = opened({ORDERS: [0, 1, 2], PAYMENTS: [0]})
    assert held(found, 2, fetch(7, 1)) == 4
    assert held(found, 3, fetch(7, 2, {ORDERS: [1, 3]})) == 5, "1 was in it, 3 is new"
    assert held(found, 4, fetch(7, 3, {}, {ORDERS: [0, 9], PAYMENTS: [0]})) == 3
    session = request(found, BROKER, 5, fetch(7, 4))
    assert session is not None
    assert session.topics == {ORDERS: {1, 2, 3}}
    # One session belongs to one broker; one that got empty is closed.
    assert held(found, 6, fetch(7, 1), OTHER) is None
    assert held(found, 7, fetch(7, 5, {}, {ORDERS: [1, 2, 3]})) == 0
    respond(found, BROKER, 7, {"error_code": 0, "session_id": 0})
    assert held(found, 8, fetch(7, 6)) is None
    # Topics without partitions, and invalid names, take no room.
    session = request(opened({ORDERS: [0], PAYMENTS: [], "x" * 256: [0]}), BROKER, 2, fetch(7, 1))
    assert session is not None
    assert session.topics == {ORDERS: {0}}


def test_a_large_session_names_no_topics_with_each_request() -> None:
    """20,000 topics with each request of 60 bytes made gigabytes of a megabyte."""
    large = {f"{number:022}": [0] for number in range(MAX_NAMED + 1)}
    found, known = opened(large), Catalog()
    for topic_id in large:
        known.learn_topic(topic_id, f"topic-{topic_id}")
    session = request(found, BROKER, 2, fetch(7, 1))
    assert session is not None
    assert (session.content.names(known), session.content.unnamed) == ((), MAX_NAMED + 1)
    assert session_fields(session.partitions, session.content.unnamed) == {"partitions": 101, "topics": 101}
    request(found, BROKER, 3, fetch(7, 2, {}, {min(large): [0]}))
    assert (len(session.content.names(known)), session.content.unnamed) == (MAX_NAMED, None)
    assert session_fields(session.partitions, session.content.unnamed) == {"partitions": 100}


def test_forgotten_topics_leave_no_gaps_to_walk_over() -> None:
    """A dictionary keeps the places of what was deleted: one that grew large and shrank would be slow for ever."""
    found = opened({f"{number:022}": [0] for number in range(2_000)})
    session = request(found, BROKER, 2, fetch(7, 1, {}, {f"{number:022}": [0] for number in range(1, 2_000)}))
    assert session is not None
    assert len(session.topics) == 1
    assert sys.getsizeof(session.topics) < 1_000


def test_sessions_that_are_gone() -> None:
    """Closed, begun again, unknown to the broker (FETCH_SESSION_ID_NOT_FOUND and the like), or never given."""
    for epoch in (-1, 0):
        found = opened({ORDERS: [0]})
        assert held(found, 2, fetch(7, epoch)) is None
        assert held(found, 3, fetch(7, 1)) is None
        assert len(found) == 0
    for error in (70, 71, 110):
        found = opened({ORDERS: [0]})
        assert held(found, 2, fetch(7, 1)) == 1
        respond(found, BROKER, 2, {"error_code": error, "session_id": 0})
        assert held(found, 3, fetch(7, 2)) is None
    for answer in ({"error_code": 0, "session_id": 0}, {"error_code": 3, "session_id": 7}, {}):
        found = FetchSessions()
        request(found, BROKER, 1, fetch(0, 0, {ORDERS: [0]}))
        respond(found, BROKER, 1, answer)
        assert held(found, 2, fetch(7, 1)) is None


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    monkeypatch.setattr(sessions, "MAX_PARTITIONS", 5)
    monkeypatch.setattr(sessions, "MAX_PENDING", 1)
    found = FetchSessions()

    def begin(number: int, partitions: int) -> None:
        request(found, BROKER, number, fetch(0, 0, {ORDERS: range(partitions)}))
        respond(found, BROKER, number, {"error_code": 0, "session_id": number})

    for number in (1, 2, 3):
        begin(number, 1)
    assert [held(found, 9, fetch(number, 1)) for number in (1, 2, 3)] == [None, 1, 1]
    begin(4, 5)
    assert [held(found, 9, fetch(number, 1)) for number in (2, 3, 4)] == [None, None, 5], "too many partitions"
    begin(5, 6)
    assert held(found, 9, fetch(5, 1)) is None, "more than all sessions together may have"
    assert held(found, 9, fetch(4, 2, {PAYMENTS: [0]})) == 6, "reported once more …"
    assert held(found, 9, fetch(4, 3)) is None, "… and then it is too much"
    request(found, BROKER, 20, fetch(0, 0, {ORDERS: [0]}))
    request(found, BROKER, 21, fetch(0, 0, {ORDERS: [0]}))
    respond(found, BROKER, 20, {"error_code": 0, "session_id": 20})
    assert held(found, 22, fetch(20, 1)) is None, "its request was forgotten for the next one"
    monkeypatch.setattr(sessions, "MAX_PENDING", 9)
    request(found, BROKER, 30, fetch(0, 0, {ORDERS: range(3)}))
    request(found, BROKER, 31, fetch(0, 0, {ORDERS: range(3)}))
    for exchange in (30, 31):
        respond(found, BROKER, exchange, {"error_code": 0, "session_id": exchange})
    assert [held(found, 32, fetch(session, 1)) for session in (30, 31)] == [None, 3], "too many partitions wait"


Values = st.recursive(
    st.none() | st.integers(-2, 3) | st.sampled_from([ORDERS, "orders", b"\xff"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["topic_id", "topic", "partitions", "partition"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(1, 3),
            st.fixed_dictionaries(
                {},
                optional={
                    "session_id": st.integers(0, 2) | st.none(),
                    "session_epoch": st.integers(-1, 2) | st.none(),
                    "error_code": st.integers(0, 1) | st.none(),
                    "topics": Values,
                    "forgotten_topics_data": Values,
                },
            ),
        ),
        max_size=12,
    )
)
def test_whatever_bodies_hold(messages: list[tuple[bool, int, dict[str, Any]]]) -> None:
    """Broken-off and hostile bodies; the sums always agree."""
    found = FetchSessions()
    for is_request, exchange, body in messages:
        if is_request:
            session = request(found, BROKER, exchange, body)
            if session is not None:
                assert session.partitions == sum(map(len, session.topics.values()))
        else:
            respond(found, BROKER, exchange, body)
        assert found._partitions == sum(one.partitions for one in found._sessions.values())
        assert found._waiting == sum(one.partitions for _, one in found._pending.values() if one is not None)


def test_a_smaller_memory_budget_holds_fewer() -> None:
    """And reports the dropped ones once."""
    opening = {"session_id": 0, "session_epoch": 0, "topics": [{"topic": "orders", "partitions": [{"partition": 0}]}]}
    found = FetchSessions()
    found.limit_memory(1 << 20)  # a thousandth: 64 sessions
    for number in range(1, 101):
        request(found, BROKER, number, opening)
        respond(found, BROKER, number, {"session_id": number, "error_code": 0})
    assert (len(found), found.let_go) == (64, 36)
    assert found.memory == 64 * (sessions.SESSION_BYTES + sessions.PARTITION_BYTES)
    enricher = Enricher()
    enricher.limit_memory(1 << 14)  # one session
    assert enricher.take_loss() is None
    held = enricher._sessions
    assert held is not None
    for number in (1, 2, 3):
        request(held, BROKER, number, opening)
        respond(held, BROKER, number, {"session_id": number, "error_code": 0})
    loss = enricher.take_loss()
    assert loss is not None
    assert "fetch sessions" in loss
    assert enricher.take_loss() is None


def test_names_do_not_depend_on_when_they_were_asked_for() -> None:
    """A session opened by name whose later request uses ids, which a broker refuses (KIP-516)."""
    known = Catalog()
    known.learn_topic(ORDERS, "orders")
    seen = []
    for is_asked in (False, True):
        found = FetchSessions()
        body = fetch(0, 0)
        body["topics"] = [{"topic": "payments", "partitions": [{"partition": 0}]}]
        request(found, BROKER, 1, body)
        respond(found, BROKER, 1, {"error_code": 0, "session_id": 7})
        session = request(found, BROKER, 2, fetch(7, 1, {ORDERS: [], "A" * 22: [3]}))
        assert session is not None
        assert not session.by_id, "topics without partitions, and without an id, count for nothing"
        if is_asked:
            assert session.content.names(known) == ("payments",)
        assert request(found, BROKER, 3, fetch(7, 2, {}, {PAYMENTS: [5]})) is session
        request(found, BROKER, 4, fetch(7, 3, {ORDERS: [1]}))
        seen.append((session.by_id, session.partitions, session.content.names(known)))
    assert seen == [(True, 2, ("orders",))] * 2


def test_requests_of_each_version_have_their_session_at_a_fixed_place() -> None:
    found = api(FETCH)
    assert found is not None
    for version in range(sessions.FIRST_VERSION, found.max_version + 1):
        layout = found.request(version).root
        place = place_of_identity(layout)
        assert place is not None
        assert IDENTITY.unpack_from(encoded(layout, {"session_id": 7, "session_epoch": 9}), place) == (7, 9)
