"""The entities of exchanges, from bodies as the dissectors give them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import PartitionFacts, mentions, only, plan_of, record_count
from kafkasniff.model import Direction, Message

ID = "dGhpc2lzYXRvcGljaWQxNg"


def message(direction: Direction, key: int, version: int, body: dict[str, Any]) -> Message:
    return Message(direction, 100, api_key=key, api_version=version, body=body)


def batch(**fields: Any) -> dict[str, Any]:
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}
    return {
        "base_offset": 0,
        "batch_length": 88,
        "magic": 2,
        "compression": "none",
        "record_count": 3,
        **producer,
    } | fields


def produced(topic: str, *batches: dict[str, Any], **more: Any) -> Message:
    records = {"batches": [*batches], "truncated_bytes": 0} if batches else None
    return message(
        "request", 0, 9, {"topic_data": [{"name": topic, "partition_data": [{"index": 4, "records": records}]}], **more}
    )


def test_produce() -> None:
    request = produced("orders", batch(), batch(record_count=2, base_sequence=8), transactional_id="tx", acks=-1)
    partition = {"index": 4, "error_code": 6, "base_offset": 1042}
    response = message("response", 0, 9, {"responses": [{"name": "orders", "partition_responses": [partition]}]})
    named = mentions(request, response)
    assert list(named.topics) == ["orders"]
    assert (only(named.transactions), only(named.groups), record_count(named)) == ("tx", None, 5)
    facts = PartitionFacts(topic="orders", topic_id=None, partition=4, error_code=6, error="NOT_LEADER_OR_FOLLOWER",
                           offset=1042, record_count=5, batch_count=2, bytes=200, uncompressed_bytes=200,
                           compression="none", producer_id=7, producer_epoch=1, base_sequence=5)  # fmt: skip
    assert list(named.partitions.values()) == [facts]


def test_fetch_by_topic_id() -> None:
    """With and without the topic's name from other messages, in the response or in the request."""
    records = {"batches": [batch(compression="lz4"), batch(compression="zstd")], "truncated_bytes": 13}
    asked = {"topic_id": ID, "partitions": [{"partition": 0, "fetch_offset": 17}]}
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 90, "records": records}
    answered = {"topic_id": ID, "partitions": [partition]}
    name = {"_topic_name": "orders"}
    for ours, theirs, topic in (
        (asked, answered, None),
        (asked, answered | name, "orders"),
        (asked | name, answered, "orders"),
    ):
        request, response = (
            message("request", 1, 13, {"topics": [ours]}),
            message("response", 1, 13, {"responses": [theirs]}),
        )
        (facts,) = mentions(request, response).partitions.values()
        assert (facts.topic, facts.topic_id, facts.partition) == (topic, ID, 0)
        assert (facts.offset, facts.high_watermark, facts.error_code, facts.error) == (17, 90, 0, None)
        assert (facts.bytes, facts.uncompressed_bytes, facts.compression) == (213, None, "mixed")
    # A name in the message itself takes precedence.
    named = mentions(None, message("response", 3, 12, {"topics": [{"name": "a", "topic_id": ID, "_topic_name": "b"}]}))
    assert list(named.topics) == ["a"]


def test_a_legacy_message_set_has_no_producer() -> None:
    legacy = {"base_offset": 9, "batch_length": 30, "magic": 1, "compression": "gzip", "record_count": None}
    named = mentions(produced("t", legacy), None)
    (facts,) = named.partitions.values()
    assert (facts.batch_count, facts.record_count, facts.bytes, facts.producer_id) == (1, None, 42, None)
    assert record_count(named) is None, "one count that is not known makes the sum unknown"
    # Null and skipped records are not zero records.
    named = mentions(produced("t"), None)
    assert (record_count(named), next(iter(named.partitions.values())).batch_count) == (None, None)


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
