"""Schema ids before keys and values, and in record headers: reported if present, and not if the bytes are numbers."""

from __future__ import annotations

import functools
import struct
import uuid
from typing import Any

import pytest

from kafkasniff.kafka.embedded.any_records import read_records
from kafkasniff.kafka.record_facts.schema_registry import MAX_ID, MAX_SCHEMAS, add_schema_ids
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Body
from tests.kafka.records_craft import Record, batch_of

produce_request = functools.partial(read_records, 0, "request")
fetch_response = functools.partial(read_records, 1, "response")

Pair = tuple[bytes | None, bytes | None]


def framed(number: int, payload: bytes = b"payload") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def records(*batches: list[Pair], **fields: Any) -> Body:
    """A `records` value of batches of keys and values."""
    return {
        "batches": [
            {"records": [{"key": key, "value": value, "headers": []} for key, value in batch], **fields}
            for batch in batches
        ],
        "truncated_bytes": 0,
    }


def reported(found: Body) -> list[tuple[int | None, int | None]]:
    """Schema ids of keys and values."""
    return [
        (record.get("_key", {}).get("schema_id"), record.get("_value", {}).get("schema_id"))
        for batch in found["batches"]
        for record in batch["records"]
    ]


def judged(values: list[bytes | None], **fields: Any) -> list[int | None]:
    found = records([(None, value) for value in values], **fields)
    add_schema_ids(found)
    return [value for _, value in reported(found)]


def test_keys_and_values_are_judged_separately_and_all_batches_together() -> None:
    for batches, ids in (
        ([[(b"k1", framed(7)), (b"k2", framed(7, b"more"))], [(b"k3", None)]], [(None, 7), (None, 7), (None, None)]),
        ([[(framed(1), framed(2)), (framed(1, b"other"), None)]], [(1, 2), (1, None)]),
        ([[(None, framed(7))], [(None, b"\0\0\0\0\7"), (None, framed(7))]], [(None, None)] * 3),
    ):
        found = records(*batches)
        add_schema_ids(found)
        assert reported(found) == ids


def test_numbers_and_other_bytes_have_no_ids() -> None:
    times = [struct.pack(">q", number) for number in (1, 1_700_000_000_000, 1 << 40)]
    for values in (
        *(times, times[1:2], [struct.pack(">qq", 1_700_000_000_000, 5), times[1]], [struct.pack(">i", 5)]),
        *([framed(5, b"")], [framed(0)], [framed(MAX_ID + 1)], [framed(0xFFFFFFFF)], [framed(5), b"\1" + framed(5)]),
        *([framed(5), b""], [b"text", framed(5)], [framed(number) for number in range(1, MAX_SCHEMAS + 2)]),
        [struct.pack(">i", size) + b"x" * size for size in (1000, 2000, 3000, 4000, 5000)],
        *([None, framed(5), None], [None, None], []),
    ):
        assert set(judged(values)) <= {None}, values


def test_other_batches() -> None:
    """Control records, batches without records, messages of old formats, which have no headers, and redacted data."""
    assert judged([framed(5)], control=True) == [None]
    found: Body = {"batches": [{"record_count": 1}, {"records": []}], "truncated_bytes": 0}
    add_schema_ids(found)
    assert found == {"batches": [{"record_count": 1}, {"records": []}], "truncated_bytes": 0}
    found = {"batches": [{"magic": 1, "records": [{"key": None, "value": framed(3)}]}]}
    add_schema_ids(found)
    assert reported(found) == [(None, 3)]
    found = records([(None, framed(3)), (None, None)])
    found["batches"][0]["records"][1]["value"] = {"redacted": 60}
    add_schema_ids(found)
    assert reported(found) == [(None, None)] * 2


def test_bounds() -> None:
    assert judged([framed(1)]) == [1]
    assert judged([framed(MAX_ID, b"x")]) == [MAX_ID]
    assert judged([framed(number) for number in range(1, MAX_SCHEMAS + 1)]) == list(range(1, MAX_SCHEMAS + 1))
    # As long as an int64, but not all of them.
    assert judged([framed(9, b"abc"), framed(9, b"abcd")]) == [9, 9]
    assert judged([framed(9, b"abc")]) == [None]


GUID = uuid.UUID("73ba8a4f-0996-4284-a064-3376ad6fed32")


def in_headers(*headers: tuple[str, bytes | None], key: bytes = b"\1k") -> dict[str, Any]:
    context = DecodeContext(DecodeOptions())
    data = batch_of([Record(0, 0, key, b"\1v", headers), Record(1, 1, None, None)])
    body = {"topic_data": [{"partition_data": [{"records": decode_records(data, 0, len(data), context)}]}]}
    produce_request(body, 9, context)
    assert context.problems == []
    first, second = body["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"]
    assert not any(name.startswith("_") for name in second)
    return {name: value for name, value in first.items() if name.startswith("_")}


def test_headers() -> None:
    guid = b"\1" + GUID.bytes
    by_guid = {"format": "schema-registry", "schema_guid": str(GUID)}
    by_id = {"format": "schema-registry", "schema_id": 5}
    assert in_headers(("__value_schema_id", guid)) == {"_value": by_guid}
    assert in_headers(("__key_schema_id", framed(5, b"")), ("x", guid)) == {"_key": by_id}
    # The last header counts. It takes precedence over the bytes before the value.
    assert in_headers(("__key_schema_id", guid), ("__key_schema_id", framed(5, b""))) == {"_key": by_id}
    assert in_headers(("__key_schema_id", guid), key=framed(9)) == {"_key": by_guid}
    # The index of a Protobuf message may follow, and nothing else.
    assert in_headers(("__value_schema_id", guid + b"\0")) == {"_value": by_guid}
    for odd in (None, b"", b"\1", guid[:-1], guid + b"x", guid + b"\0x", b"\2" + GUID.bytes, b"\0\0\0\0"):
        assert in_headers(("__value_schema_id", odd), ("other", b"x")) == {}


@pytest.mark.parametrize(("topic", "read"), [("orders", 4), (None, 4), ("__consumer_offsets", None), ("_x", 4)])
def test_topics_of_kafka_itself_are_left_alone(topic: str | None, read: int | None) -> None:
    for interpret, version, topics, partitions in (
        (produce_request, 9, "topic_data", "partition_data"),
        (fetch_response, 12, "responses", "partitions"),
    ):
        found = records([(None, framed(4))])
        body = {topics: [{"name": topic, "topic": topic, partitions: [{"records": found}, {"records": None}, {}]}]}
        interpret(body, version, DecodeContext(DecodeOptions()))
        assert reported(found) == [(None, read)]
