"""Errors, versions, connections and metadata requests of clients, on rows with known answers."""

from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import SECOND, START_NS, answers, asked, exchange, moment, pick


@pytest.mark.parametrize("body", [None, "{}", '{"error_code":1}', "[]"])
def test_the_rest_is_unknown_without_a_matching_body(body: str | None) -> None:
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=3, response_body=body)])
    assert pick(found, "error_code", "error", "errors") == [(None, None, 2), (36, "TOPIC_ALREADY_EXISTS", 1)]


@pytest.mark.parametrize("target", ["5.9", "", "four"])
def test_an_unknown_release(target: str) -> None:
    with pytest.raises(UsageError, match="is unknown"):
        asked("versions", target=target)


ALL = {"topics": None, "allow_auto_topic_creation": True}


def test_only_storms_are_listed() -> None:
    begin = (10 - START_NS // SECOND % 10) % 10
    rows = [exchange("Metadata", begin + number / 2, client_id="loop", request_body=ALL) for number in range(12)]
    rows += [exchange("Metadata", begin + number * 3, client_id="calm") for number in range(4)]
    rows += [exchange("Fetch", begin, client_id="calm")] * 30
    found = answers("metadata-storms", rows)
    names = ("client_id", "requests", "all_topics", "response_bytes", "errors", "time")
    assert pick(found, *names) == [("loop", 12, 12, 2400, 0, moment(begin))]
    lower = answers("metadata-storms", rows, at_least=4, every="1m")
    assert sorted(pick(lower, "client_id", "requests")) == [("calm", 4), ("loop", 12)]


def test_all_topics_in_version_0_and_after() -> None:
    bodies = [
        ('{"topics":[]}', 0),
        ('{"topics":[]}', 1),
        ('{"topics":null}', 1),
        ('{"topics":[{"name":"a"}]}', 0),
        (None, 9),
    ]
    rows = [exchange("Metadata", request_body=body, api_version=version, error_count=1) for body, version in bodies]
    (found,) = answers("metadata-storms", rows, at_least=1, every="60m")
    assert (found["requests"], found["all_topics"], found["errors"]) == (5, 2, 5)


def test_the_topic_is_not_a_dimension() -> None:
    with pytest.raises(UsageError, match="topic"):
        asked("errors", by="topic")
