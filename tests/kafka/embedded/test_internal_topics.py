"""Records of the brokers' own topics, compared with what Kafka's own classes read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kafkasniff.kafka.embedded.internal_topics import interpret_topic
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.data_schemas import data_definitions
from kafkasniff.model import Problem
from tests.kafka.embedded.metadata_craft import framed, records_of
from tests.kafka.records_craft import Record, batch_of
from tests.vectors.matching import compare
from tests.vectors.reader import Vector, vectors

TOPICS = {
    "group_coordinator": "__consumer_offsets",
    "transaction_coordinator": "__transaction_state",
    "share_coordinator": "__share_group_state",
}
# The vectors' member bytes in group metadata are made up; their problems have tests of their own.
MEMBERS = {"GroupMetadataValue", "ConsumerGroupMemberMetadataValue"}


def of_kind(kind: str) -> Iterator[tuple[str, int, Vector]]:
    """(file of the definition, record type, vector)."""
    for vector in vectors():
        definition = data_definitions().get(vector.name) if vector.kind == "data" else None
        if definition is not None and definition.kind == kind:
            assert definition.id is not None
            yield definition.file, definition.id, vector


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def interpreted(
    topic: str, *pairs: tuple[bytes | None, bytes | None], attributes: int = 0, records: str = "full"
) -> tuple[list[dict[str, Any]], list[Problem]]:
    """The records with these keys and values after their interpretation, and the problems."""
    data = batch_of([Record(at, 0, *pair) for at, pair in enumerate(pairs)], attributes=attributes)
    decoded = decode_records(data, 0, len(data), DecodeContext(DecodeOptions(records=records)))
    problems: list[Problem] = []
    interpret_topic(topic, decoded, problems)
    return (list(records_of(decoded)) if records == "full" else decoded["batches"]), problems


@pytest.mark.parametrize("kind", ["coordinator-key", "coordinator-value", "remote-log"])
def test_records_that_kafkas_classes_wrote(kind: str) -> None:
    keys = {(file, number): int16(number) + vector.data for file, number, vector in of_kind("coordinator-key")}
    seen = set()
    for file, number, vector in of_kind(kind):
        name, version, part = vector.name, vector.version, "_value"
        if kind == "coordinator-key":
            pair, version, part = (int16(number) + vector.data, None), number, "_key"
        elif kind == "coordinator-value":
            pair = keys[file, number], int16(version) + vector.data
            name = name.replace("Legacy", "")
        else:
            pair = None, framed(number, version, vector.data)
        (record,), problems = interpreted(TOPICS.get(file, "__remote_log_metadata"), pair)
        assert name in MEMBERS or problems == []
        assert (record[part]["type"], record[part]["version"]) == (name, version)
        assert list(compare(vector.body, record[part]["value"], "")) == []
        seen.add(vector.name)
    assert seen == {name for name, found in data_definitions().items() if found.kind == kind}


def test_a_record_of_tiered_storage_without_a_value() -> None:
    (record,), problems = interpreted("__remote_log_metadata", (None, None))
    assert ("_value" in record, len(problems)) == (False, 1)


SUBSCRIPTION = int16(1) + struct.pack(">ih6sii", 1, 6, b"orders", -1, 0)
ASSIGNMENT = int16(0) + struct.pack(">ih6siii", 1, 6, b"orders", 1, 7, -1)


def group_metadata(protocol_type: bytes, subscription: bytes, assignment: bytes) -> tuple[bytes, bytes]:
    """A group with one member, version 0."""

    def string(text: bytes) -> bytes:
        return int16(len(text)) + text

    value = int16(0) + string(protocol_type) + struct.pack(">i", 3) + string(b"range") + string(b"m-1")
    value += struct.pack(">i", 1) + string(b"m-1") + string(b"app") + string(b"/10.0.0.5") + struct.pack(">i", 45_000)
    for data in (subscription, assignment):
        value += struct.pack(">i", len(data)) + data
    return int16(2) + string(b"g"), value


def test_embedded_messages_of_members() -> None:
    pair = group_metadata(b"consumer", SUBSCRIPTION, ASSIGNMENT)
    (record,), problems = interpreted("__consumer_offsets", pair)
    assert problems == []
    (member,) = record["_value"]["value"]["members"]
    assert member["subscription"] == SUBSCRIPTION
    assert member["_subscription"]["format"] == "consumer"
    assert member["_subscription"]["value"]["topics"] == ["orders"]
    assert member["_assignment"]["value"]["assigned_partitions"] == [{"topic": "orders", "partitions": [7]}]
    (record,), problems = interpreted("__consumer_offsets", group_metadata(b"consumer", SUBSCRIPTION[:-9], b""))
    assert [problem.kind for problem in problems] == ["internal-record"]
    assert "subscription" in problems[0].detail
    for kind in (b"", b"other"):
        (record,), problems = interpreted("__consumer_offsets", group_metadata(kind, b"junk", b"junk"))
        assert problems == []
        assert "_subscription" not in record["_value"]["value"]["members"][0]


def test_a_member_with_the_classic_protocol_in_a_newer_group() -> None:
    value = int16(0) + b"\x00\x00" + b"\x02a" + b"\x02h" + b"\x01" + b"\x00" + b"\x00\x00\x00\x00" + b"\x00"
    protocols = b"\x02" + b"\x06range" + bytes([len(SUBSCRIPTION) + 1]) + SUBSCRIPTION + b"\x00"
    tagged = b"\x01" + struct.pack(">i", 45_000) + protocols + b"\x00"
    value += b"\x01\x00" + bytes([len(tagged)]) + tagged
    key = int16(5) + int16(1) + b"g" + int16(1) + b"m"
    (record,), problems = interpreted("__consumer_offsets", (key, value))
    assert problems == []
    (offered,) = record["_value"]["value"]["classic_member_metadata"]["supported_protocols"]
    assert offered["_metadata"]["value"]["topics"] == ["orders"]


KEY = int16(0) + int16(2) + b"tx"


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        (None, b"\x00\x00", "it has no key"),
        (b"", None, "a key of 0 bytes"),
        (int16(77), None, "key type 77"),
        (int16(-1), None, "key type -1"),
        (KEY[:-1], None, "TransactionLogKey: transactional_id"),
        (KEY + b"x", None, "1 surplus bytes after a TransactionLogKey"),
        (KEY, b"\x00", "a value of 1 bytes"),
        (KEY, int16(9), "version 9 of TransactionLogValue"),
        (KEY, int16(0) + b"\x00", "TransactionLogValue: producer_id"),
    ],
)
def test_inconsistent_records(key: bytes | None, value: bytes | None, detail: str) -> None:
    (record,), problems = interpreted("__transaction_state", (key, value))
    assert (record["key"], record["value"]) == (key, value)
    assert [problem.kind for problem in problems] == ["internal-record"]
    assert problems[0].detail.startswith("record 0 of __transaction_state: ")
    assert detail in problems[0].detail
    assert ("_key" in record) == (key in (KEY, KEY + b"x"))
    assert not record.get("_value")


def test_problems_are_bounded() -> None:
    _, problems = interpreted("__transaction_state", *[(None, None)] * (MAX_PROBLEMS + 5))
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].kind == "more-problems"
    assert "5 more" in problems[-1].detail


def test_records_that_are_left_alone() -> None:
    (record,), problems = interpreted("orders", (KEY, b""))
    assert ("_key" in record, problems) == (False, [])
    # The marker of a transaction with committed offsets.
    commit = (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    (record,), problems = interpreted("__consumer_offsets", commit, attributes=0x30)
    assert ("_key" in record, record["_control"]["name"], problems) == (False, "COMMIT", [])
    (batch,), problems = interpreted("__consumer_offsets", (KEY, b""), records="batches")
    assert ("records" in batch, problems) == (False, [])
