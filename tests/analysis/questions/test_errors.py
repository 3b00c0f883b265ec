from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import answers, asked, exchange, moment, partition, pick

TOLD = ("error_code", "error", "api", "client_id", "topic", "errors", "exchanges")
NOT_LEADER = {"error_code": 6, "error": "NOT_LEADER_OR_FOLLOWER"}


def test_codes_of_partitions_with_their_topics() -> None:
    rows = [
        exchange(
            "Produce",
            1,
            error_code=6,
            error_count=2,
            partitions=[partition("a", **NOT_LEADER), partition("b", **NOT_LEADER)],
        ),
        exchange(
            "Produce", 5, error_code=6, error_count=1, partitions=[partition("a", 0), partition("a", 1, **NOT_LEADER)]
        ),
        exchange("Produce", 9, partitions=[partition("a")]),
    ]
    found = answers("errors", rows)
    assert pick(found, *TOLD) == [
        (6, "NOT_LEADER_OR_FOLLOWER", "Produce", "app", "a", 2, 2),
        (6, "NOT_LEADER_OR_FOLLOWER", "Produce", "app", "b", 1, 1),
    ]
    assert pick(found, "first", "last") == [(moment(1), moment(5)), (moment(1), moment(1))]


def test_several_codes_of_one_topic_in_one_exchange() -> None:
    two = [partition("a", 0, **NOT_LEADER), partition("a", 1, **NOT_LEADER)]
    (found,) = answers("errors", [exchange("Produce", error_code=6, error_count=2, partitions=two)])
    assert (found["errors"], found["exchanges"]) == (2, 1)


def test_other_codes_are_read_from_the_body() -> None:
    body = {
        "topics": [{"name": "x", "error_code": 36}, {"name": "y", "error_code": 17}, {"name": "z", "error_code": 0}]
    }
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=2, response_body=body)])
    assert pick(found, *TOLD[:2], "topic") == [(17, "INVALID_TOPIC_EXCEPTION", "y"), (36, "TOPIC_ALREADY_EXISTS", "x")]


def test_fields_that_are_not_on_the_wire_are_not_counted() -> None:
    body = {"error_code": 3, "_value": {"error_code": 7}}
    found = answers("errors", [exchange("Metadata", error_code=3, error_count=1, response_body=body)])
    assert pick(found, "error_code", "errors") == [(3, 1)]


@pytest.mark.parametrize("body", [None, "{}", '{"error_code":1}', "[]"])
def test_the_rest_is_unknown_without_a_matching_body(body: str | None) -> None:
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=3, response_body=body)])
    assert pick(found, "error_code", "error", "errors") == [(None, None, 2), (36, "TOPIC_ALREADY_EXISTS", 1)]


def test_an_unknown_code_has_no_name() -> None:
    (found,) = answers("errors", [exchange("Heartbeat", error_code=30_000, error_count=1)])
    assert (found["error_code"], found["error"]) == (30_000, None)


def test_the_topic_is_not_a_dimension() -> None:
    with pytest.raises(UsageError, match="topic"):
        asked("errors", by="topic")
