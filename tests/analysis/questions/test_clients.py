"""Errors, versions, connections and metadata requests of clients, on rows with known answers."""

from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import answers, asked, exchange, pick


def test_a_topic_of_a_body_that_is_known_only_by_id() -> None:
    parts = [{"partition_index": 3, "error_code": 100}]
    body = {"responses": [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAg", "partitions": parts}]}
    found = answers("errors", [exchange("Fetch", error_count=1, response_body=body)])
    assert pick(found, "topic", "error", "errors") == [("AAAAAAAAAAAAAAAAAAAAAg", "UNKNOWN_TOPIC_ID", 1)]


@pytest.mark.parametrize("body", [None, "{}", '{"error_code":1}', "[]"])
def test_the_rest_is_unknown_without_a_matching_body(body: str | None) -> None:
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=3, response_body=body)])
    assert pick(found, "error_code", "error", "errors") == [(None, None, 2), (36, "TOPIC_ALREADY_EXISTS", 1)]


@pytest.mark.parametrize("target", ["5.9", "", "four"])
def test_an_unknown_release(target: str) -> None:
    with pytest.raises(UsageError, match="is unknown"):
        asked("versions", target=target)


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
