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
    # Null and skipped records are not zero records.
    body = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": None}]}]}
    named = mentions(message("request", 0, 9, body), None)
    assert record_count(named) is None
    assert next(iter(named.partitions.values())).batch_count is None


@pytest.mark.parametrize(
    ("key", "asked", "reported", "offset"),
    [
        (2, {"partition_index": 1, "timestamp": -1}, {"partition_index": 1, "error_code": 0, "offset": 55}, 55),
        (8, {"partition_index": 1, "committed_offset": 9}, {"partition_index": 1, "error_code": 0}, 9),
        (9, None, {"partition_index": 1, "committed_offset": 8, "error_code": 0}, 8),
        (23, {"partition": 1, "leader_epoch": 2}, {"error_code": 0, "partition": 1, "end_offset": 31}, 31),
    ],
    ids=["ListOffsets", "OffsetCommit", "OffsetFetch", "OffsetForLeaderEpoch"],
)
def test_the_offset_of_each_api(key: int, asked: dict[str, int] | None, reported: dict[str, int], offset: int) -> None:
    name = "topic" if key == 23 else "name"
    topic = {name: "t", "partition_indexes": [1]} if asked is None else {name: "t", "partitions": [asked]}
    request = message("request", key, 1, {"topics": [topic]})
    response = message("response", key, 1, {"topics": [{name: "t", "partitions": [reported]}]})
    (facts,) = mentions(request, response).partitions.values()
    assert (facts.topic, facts.partition, facts.offset, facts.error_code) == ("t", 1, offset, 0)


def test_other_messages() -> None:
    """Several groups, groups of a response, topics of a session, incomplete bodies, and none at all."""
    named = mentions(message("request", 9, 8, {"groups": [{"group_id": "a"}, {"group_id": "b"}]}), None)
    assert (list(named.groups), only(named.groups)) == (["a", "b"], None)
    named = mentions(message("request", 16, 0, {}), message("response", 16, 0, {"groups": [{"group_id": "a"}]}))
    assert named.groups == {}
    request = Message("request", 9, api_key=1, api_version=13, body={"topics": []}, session_topics=("orders", "b"))
    response = message("response", 1, 13, {"responses": [{"topic_id": ID, "_topic_name": "b", "partitions": []}]})
    named = mentions(request, response)
    assert (list(named.topics), named.partitions) == (["orders", "b"], {})
    body = {"topic_data": [{"name": "a", "partition_data": [{"index": 1}]}, {"name": "b"}]}
    named = mentions(message("request", 0, 9, body), None)
    assert list(named.topics) == ["a", "b"]
    assert [facts.partition for facts in named.partitions.values()] == [1]
    assert mentions(None, None).topics == {}
    assert mentions(Message("request", 9, api_key=0, api_version=9), None).partitions == {}
    assert mentions(message("request", 999, 0, {"topic_names": ["a"]}), None).topics == {}


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
