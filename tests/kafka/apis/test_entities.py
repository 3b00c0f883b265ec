"""The entities of exchanges, from bodies as the dissectors give them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import PartitionFacts, mentions, only, plan_of, record_count, text
from kafkasniff.model import Direction, Message

ID = "dGhpc2lzYXRvcGljaWQxNg"


def message(direction: Direction, key: int, version: int, body: dict[str, Any]) -> Message:
    return Message(direction, 100, api_key=key, api_version=version, body=body)


def batch(**fields: Any) -> dict[str, Any]:
    defaults = {
        "base_offset": 0,
        "batch_length": 88,
        "magic": 2,
        "compression": "none",
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 5,
        "record_count": 3,
    }
    return {**defaults, **fields}


def test_produce() -> None:
    records = {"batches": [batch(), batch(record_count=2, base_sequence=8)], "truncated_bytes": 0}
    request = message(
        "request",
        0,
        9,
        {
            "transactional_id": "tx",
            "acks": -1,
            "topic_data": [{"name": "orders", "partition_data": [{"index": 4, "records": records}]}],
        },
    )
    response = message(
        "response",
        0,
        9,
        {
            "responses": [
                {"name": "orders", "partition_responses": [{"index": 4, "error_code": 6, "base_offset": 1042}]},
            ]
        },
    )
    named = mentions(request, response)
    assert list(named.topics) == ["orders"]
    assert only(named.transactions) == "tx"
    assert only(named.groups) is None
    assert list(named.partitions.values()) == [
        PartitionFacts(
            topic="orders",
            topic_id=None,
            partition=4,
            error_code=6,
            error="NOT_LEADER_OR_FOLLOWER",
            offset=1042,
            record_count=5,
            batch_count=2,
            bytes=200,
            uncompressed_bytes=200,
            compression="none",
            producer_id=7,
            producer_epoch=1,
            base_sequence=5,
        )
    ]
    assert record_count(named) == 5


def test_fetch_by_topic_id() -> None:
    records = {"batches": [batch(compression="lz4"), batch(compression="zstd")], "truncated_bytes": 13}
    request = message(
        "request",
        1,
        13,
        {
            "topics": [{"topic_id": ID, "partitions": [{"partition": 0, "fetch_offset": 17}]}],
            "forgotten_topics_data": [],
        },
    )
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 90, "records": records}
    response = message("response", 1, 13, {"responses": [{"topic_id": ID, "partitions": [partition]}]})
    (facts,) = mentions(request, response).partitions.values()
    assert (facts.topic, facts.topic_id, facts.partition) == (None, ID, 0)
    assert (facts.offset, facts.high_watermark, facts.error_code, facts.error) == (17, 90, 0, None)
    assert (facts.bytes, facts.uncompressed_bytes, facts.compression) == (213, None, "mixed")


def test_names_from_other_messages() -> None:
    asked = [{"topic_id": ID, "partitions": [{"partition": 0, "fetch_offset": 17}]}]
    reported = [{"topic_id": ID, "_topic_name": "orders", "partitions": [{"partition_index": 0, "error_code": 0}]}]
    request, response = (
        message("request", 1, 13, {"topics": asked}),
        message("response", 1, 13, {"responses": reported}),
    )
    for pair in ((request, response), (response, request)):
        named = mentions(*pair)
        assert list(named.topics) == ["orders"]
        (facts,) = named.partitions.values()
        assert (facts.topic, facts.topic_id, facts.partition) == ("orders", ID, 0)
    # A name in the message itself takes precedence.
    named = mentions(None, message("response", 3, 12, {"topics": [{"name": "a", "topic_id": ID, "_topic_name": "b"}]}))
    assert list(named.topics) == ["a"]


def test_topics_of_a_session() -> None:
    request = Message("request", 9, api_key=1, api_version=13, body={"topics": []}, session_topics=("orders", "b"))
    response = message("response", 1, 13, {"responses": [{"topic_id": ID, "_topic_name": "b", "partitions": []}]})
    named = mentions(request, response)
    assert list(named.topics) == ["orders", "b"]
    assert named.partitions == {}


def test_a_legacy_message_set_has_no_producer() -> None:
    legacy = {"base_offset": 9, "batch_length": 30, "magic": 1, "compression": "gzip", "record_count": None}
    body = {
        "topic_data": [
            {"name": "t", "partition_data": [{"index": 0, "records": {"batches": [legacy], "truncated_bytes": 0}}]},
        ]
    }
    named = mentions(message("request", 0, 2, body), None)
    (facts,) = named.partitions.values()
    assert (facts.batch_count, facts.record_count, facts.bytes, facts.producer_id) == (1, None, 42, None)
    assert record_count(named) is None, "one count that is not known makes the sum unknown"


def test_null_and_skipped_records_are_not_zero_records() -> None:
    body = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": None}]}]}
    named = mentions(message("request", 0, 9, body), None)
    assert record_count(named) is None
    assert next(iter(named.partitions.values())).batch_count is None


@pytest.mark.parametrize(
    ("key", "request_body", "response_body", "offset"),
    [
        (
            2,
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": -1}]}]},
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "error_code": 0, "offset": 55}]}]},
            55,
        ),
        (
            8,
            {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 9}]}]},
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "error_code": 0}]}]},
            9,
        ),
        (
            9,
            {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]},
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 8, "error_code": 0}]}]},
            8,
        ),
        (
            23,
            {"topics": [{"topic": "t", "partitions": [{"partition": 1, "leader_epoch": 2}]}]},
            {"topics": [{"topic": "t", "partitions": [{"error_code": 0, "partition": 1, "end_offset": 31}]}]},
            31,
        ),
    ],
    ids=["ListOffsets", "OffsetCommit", "OffsetFetch", "OffsetForLeaderEpoch"],
)
def test_the_offset_of_each_api(key: int, request_body: Any, response_body: Any, offset: int) -> None:
    named = mentions(message("request", key, 1, request_body), message("response", key, 1, response_body))
    (facts,) = named.partitions.values()
    assert (facts.topic, facts.partition, facts.offset, facts.error_code) == ("t", 1, offset, 0)


def test_groups_of_a_request_with_several() -> None:
    body = {"groups": [{"group_id": "a", "topics": None}, {"group_id": "b", "topics": None}]}
    named = mentions(message("request", 9, 8, body), None)
    assert list(named.groups) == ["a", "b"]
    assert only(named.groups) is None


def test_groups_of_a_response_are_not_the_request_s() -> None:
    named = mentions(message("request", 16, 0, {}), message("response", 16, 0, {"groups": [{"group_id": "a"}]}))
    assert named.groups == {}


@pytest.mark.parametrize(
    ("body", "groups", "transactions"),
    [
        ({"key": "g"}, ["g"], []),
        ({"key": "g", "key_type": 0}, ["g"], []),
        ({"key": "tx", "key_type": 1}, [], ["tx"]),
        ({"key_type": 1, "coordinator_keys": ["t1", "t2"]}, [], ["t1", "t2"]),
        ({"key_type": 2, "coordinator_keys": ["share:id:0"]}, [], []),
    ],
)
def test_find_coordinator(body: dict[str, Any], groups: list[str], transactions: list[str]) -> None:
    named = mentions(message("request", 10, 4, body), None)
    assert (list(named.groups), list(named.transactions)) == (groups, transactions)


def test_lists_of_names_and_of_partitions() -> None:
    assert list(mentions(message("request", 20, 1, {"topic_names": ["a", "b"]}), None).topics) == ["a", "b"]
    body = {
        "v3_and_below_transactional_id": "tx",
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 2]}],
    }
    named = mentions(message("request", 24, 3, body), None)
    assert [(facts.topic, facts.partition) for facts in named.partitions.values()] == [("t", 0), ("t", 2)]
    assert only(named.transactions) == "tx"


def test_a_message_without_a_body_names_nothing() -> None:
    assert mentions(None, None).topics == {}
    assert mentions(Message("request", 9, api_key=0, api_version=9), None).partitions == {}
    assert mentions(message("request", 999, 0, {"topic_names": ["a"]}), None).topics == {}


def test_an_incomplete_body_names_its_entities() -> None:
    body = {"topic_data": [{"name": "a", "partition_data": [{"index": 1}]}, {"name": "b"}]}
    named = mentions(message("request", 0, 9, body), None)
    assert list(named.topics) == ["a", "b"]
    assert [facts.partition for facts in named.partitions.values()] == [1]


def test_names_that_are_not_utf8() -> None:
    assert text(b"caf\xe9") == "caf\\xe9"
    assert text(5) is None
    named = mentions(message("request", 20, 1, {"topic_names": [b"\xff", None]}), None)
    assert list(named.topics) == ["\\xff"]


def test_every_topic_field_of_every_api_is_found() -> None:
    """Each field that a definition marks as a topic's name is in its API's plan, at any depth."""

    def fill(fields: tuple[Any, ...], place: str, expected: set[str]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for field in fields:
            here = f"{place}.{field.name}"
            if field.fields:
                inside = fill(field.fields, here, expected)
                body[field.name] = [inside] if field.array else inside
            elif field.entity == "topic_name":
                expected.add(here)
                body[field.name] = [here] if field.array else here
        return body

    seen = 0
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        for direction in ("request", "response"):
            expected: set[str] = set()
            definition = getattr(api.definition, direction)
            body = fill(definition.fields, api.name, expected)
            assert set(mentions(None, message(direction, key, 0, body)).topics) == expected  # type: ignore[arg-type]
            seen += len(expected)
    assert seen > 90
    assert plan_of(999, "request") is None
