"""Facts known about an exchange, and the answers of predicates where some are unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.filters import And, Compare, Not, Or
from kafkasniff.filters.fields import LATE
from tests.filters.asking import ask
from tests.sinks.messages import PRODUCE, PRODUCED, TIME_NS, message

OPEN = LATE

TRUE, FALSE = Compare("connection", "==", 3), Compare("connection", "==", 4)

UNKNOWN = Compare("latency_ms", ">", 0)


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (And((TRUE, TRUE)), True),
        (And((TRUE, UNKNOWN)), None),
        (And((UNKNOWN, FALSE)), False),
        (And(()), True),
        (Or((FALSE, FALSE)), False),
        (Or((FALSE, UNKNOWN)), None),
        (Or((UNKNOWN, TRUE)), True),
        (Or(()), False),
        (Not(TRUE), False),
        (Not(FALSE), True),
        (Not(UNKNOWN), None),
        (And((Not(Or((FALSE, UNKNOWN))), TRUE)), None),
    ],
)
def test_three_valued_logic(predicate: Any, answer: bool | None) -> None:
    assert ask(predicate, message(), unknown=OPEN) is answer


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (Compare("api", "==", 0), True),
        (Compare("api", "==", 1), False),
        (Compare("api_version", ">=", 9), True),
        (Compare("client_id", "==", "rdkafka"), True),
        (Compare("client_id", "glob", "rd*"), True),
        (Compare("host", "==", "10.0.0.9"), True),
        (Compare("host", "==", "10.0.0.90"), False),
        (Compare("host", "==", "10.0.0.5:51334"), True),
        (Compare("host", "==", "10.0.0.5:9092"), False),
        (Compare("correlation_id", "==", 5), True),
        (Compare("exchange", "==", 17), True),
        (Compare("time", ">=", TIME_NS), True),
        (Compare("time", "<", TIME_NS), False),
        (Compare("latency_ms", ">", 1_233_999), True),
        (Compare("latency_ms", ">", 1_234_000), False),
        (Compare("latency_ms", "<=", 1_234_000), True),
        (Compare("error", "!=", 0), False),
        (Compare("topic", "==", "orders"), True),
        (Compare("topic", "glob", "ord*"), True),
        (Compare("topic", "glob", "Ord*"), False),
        (Compare("topic", "==", "order"), False),
        (Compare("topic", "<", "z"), False),
    ],
)
def test_fields(predicate: Compare, answer: bool) -> None:
    assert ask(predicate) is answer


def test_messages_missing_at_the_end_stay_missing() -> None:
    assert ask(Compare("latency_ms", ">", 0), message()) is False
    assert ask(Compare("error", "!=", 0), message()) is False
    orphan = message("response", api_key=None, api=None, client_id=None, body=None, latency_ns=None)
    assert ask(Compare("api", "==", 0), response=orphan) is False
    assert ask(Compare("correlation_id", "==", 5), response=orphan) is True


def test_topics_of_either_message_count() -> None:
    everything = message(api_key=3, api="Metadata", api_version=1, body={"topics": None})
    body = {"brokers": [], "topics": [{"error_code": 0, "name": "orders", "partitions": []}]}
    answer = message("response", api_key=3, api="Metadata", api_version=1, body=body)
    wanted = Compare("topic", "==", "orders")
    assert ask(wanted, everything, unknown=OPEN) is None
    assert ask(wanted, everything, answer) is True
    # A request that names it suffices; one that names another topic may still be answered with it.
    assert ask(wanted, message(), unknown=OPEN) is True


def test_a_client_id_that_is_not_utf8_can_be_named() -> None:
    assert ask(Compare("client_id", "==", "\\xffx"), message(client_id=b"\xffx")) is True


def test_topics_named_by_their_ids() -> None:
    topic = {"topic_id": "3hvnHBaqQU2Y6pOqkwEIng", "_topic_name": "orders", "partitions": []}
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": [topic]})
    assert ask(Compare("topic", "glob", "ord*"), request) is True
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": []}, session_topics=("orders",))
    assert ask(Compare("topic", "==", "orders"), request) is True
    assert ask(Compare("topic", "==", "payments"), request, unknown=OPEN) is None, "the response may name it"


def test_bodies_of_unknown_versions_name_no_topic() -> None:
    assert ask(Compare("topic", "==", "orders"), message(body=None), message("response", body=PRODUCED)) is True
    assert ask(Compare("topic", "==", "orders"), message(body=None)) is False
    assert PRODUCE["topic_data"][0]["name"] == "orders"
