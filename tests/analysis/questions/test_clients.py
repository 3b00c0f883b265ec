"""Errors, versions, connections and metadata requests of clients, on rows with known answers."""

from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import SECOND, START_NS, answers, asked, exchange, moment, partition, pick

COUNTED = ("error_code", "error", "api", "client_id", "topic", "errors", "exchanges")
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
    assert pick(found, *COUNTED) == [
        (6, "NOT_LEADER_OR_FOLLOWER", "Produce", "app", "a", 2, 2),
        (6, "NOT_LEADER_OR_FOLLOWER", "Produce", "app", "b", 1, 1),
    ]
    assert pick(found, "first", "last") == [(moment(1), moment(5)), (moment(1), moment(1))]


@pytest.mark.parametrize("body", [None, "{}", '{"error_code":1}', "[]"])
def test_the_rest_is_unknown_without_a_matching_body(body: str | None) -> None:
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=3, response_body=body)])
    assert pick(found, "error_code", "error", "errors") == [(None, None, 2), (36, "TOPIC_ALREADY_EXISTS", 1)]


def test_versions_that_4_0_removed() -> None:
    """KIP-896:

    Kafka 4.0 removed the versions that only clients older than 2.1 use, and the ZooKeeper APIs between brokers.
    """
    rows = [
        exchange("Produce", 1, api_version=2, client_id="old"),
        exchange("Produce", 2, api_version=2, client_id="old"),
        exchange("Produce", 3, api_version=9, client_id="new"),
        exchange("Produce", 3, api_version=13, client_id="newest"),
        exchange("ApiVersions", 3, api_version=9, client_id="newest"),
        exchange("LeaderAndIsr", 4, api_version=5, client_id="broker"),
        exchange(None, 4, client_id="orphan", api_version=None),
    ]
    found = answers("versions", rows, target="4.0")
    names = ("client_id", "api", "api_version", "verdict", "target_min", "target_max", "requests")
    assert pick(found, *names) == [
        ("broker", "LeaderAndIsr", 5, "removed", None, None, 1),
        ("newest", "Produce", 13, "too-new", 3, 12, 1),
        ("old", "Produce", 2, "too-old", 3, 12, 2),
    ]
    assert pick(found, "first", "last")[2] == (moment(1), moment(2))
    assert answers("versions", rows[2:3], target="3.9") == []
    assert pick(answers("versions", rows[2:3], target="3.9", all=True), "verdict") == [("supported",)]


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
