"""Schema ids before keys and values, and in record headers: reported if present, and not if the bytes are numbers."""

from __future__ import annotations

import functools
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.embedded.any_records import read_records
from kafkasniff.kafka.record_facts.schema_registry import MAX_ID, MAX_SCHEMAS, add_schema_ids
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Body
from tests.kafka.embedded.reading import account, messages
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


def test_keys_and_values_are_judged_separately() -> None:
    found = records([(b"k1", framed(7)), (b"k2", framed(7, b"more"))], [(b"k3", None)])
    add_schema_ids(found)
    assert reported(found) == [(None, 7), (None, 7), (None, None)]
    assert found["batches"][0]["records"][0]["_value"] == {"format": "schema-registry", "schema_id": 7}
    assert found["batches"][0]["records"][0]["value"] == framed(7)
    found = records([(framed(1), framed(2)), (framed(1, b"other"), None)])
    add_schema_ids(found)
    assert reported(found) == [(1, 2), (1, None)]


def test_all_batches_of_a_partition_are_judged_together() -> None:
    found = records([(None, framed(7))], [(None, b"\0\0\0\0\7"), (None, framed(7))])
    add_schema_ids(found)
    assert reported(found) == [(None, None)] * 3


@pytest.mark.parametrize(
    "values",
    [
        [struct.pack(">q", number) for number in (1, 1_700_000_000_000, 1 << 40)],
        [struct.pack(">q", 1_700_000_000_000)],
        [struct.pack(">qq", 1_700_000_000_000, 5), struct.pack(">q", 1_700_000_000_000)],
        [struct.pack(">i", 5)],
        [framed(5, b"")],
        [framed(0)],
        [framed(MAX_ID + 1)],
        [framed(0xFFFFFFFF)],
        [framed(5), b"\1" + framed(5)],
        [framed(5), b""],
        [b"text", framed(5)],
        [struct.pack(">i", size) + b"x" * size for size in (1000, 2000, 3000, 4000, 5000)],
        [framed(number) for number in range(1, MAX_SCHEMAS + 2)],
        [None, framed(5), None],
        [None, None],
        [],
    ],
)
def test_numbers_and_other_bytes_have_no_ids(values: list[bytes | None]) -> None:
    assert set(judged(values)) <= {None}


def test_bounds() -> None:
    assert judged([framed(1)]) == [1]
    assert judged([framed(MAX_ID, b"x")]) == [MAX_ID]
    assert judged([framed(number) for number in range(1, MAX_SCHEMAS + 1)]) == list(range(1, MAX_SCHEMAS + 1))
    # As long as an int64, but not all of them.
    assert judged([framed(9, b"abc"), framed(9, b"abcd")]) == [9, 9]
    assert judged([framed(9, b"abc")]) == [None]


def test_control_records_and_batches_without_records() -> None:
    assert judged([framed(5)], control=True) == [None]
    found = {"batches": [{"record_count": 1}, {"records": []}], "truncated_bytes": 0}
    add_schema_ids(found)
    assert found == {"batches": [{"record_count": 1}, {"records": []}], "truncated_bytes": 0}


def test_messages_of_old_formats_have_no_headers() -> None:
    found: Body = {"batches": [{"magic": 1, "records": [{"key": None, "value": framed(3)}]}]}
    add_schema_ids(found)
    assert reported(found) == [(None, 3)]


def test_redacted_data_is_left_alone() -> None:
    found = records([(None, framed(3)), (None, None)])
    found["batches"][0]["records"][1]["value"] = {"redacted": 60}
    add_schema_ids(found)
    assert reported(found) == [(None, None)] * 2


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
    assert in_headers(("__value_schema_id", guid)) == {
        "_value": {"format": "schema-registry", "schema_guid": str(GUID)}
    }
    assert in_headers(("__key_schema_id", b"\0\0\0\0\x05"), ("x", guid)) == {
        "_key": {"format": "schema-registry", "schema_id": 5}
    }
    # The last header counts.
    both = in_headers(("__key_schema_id", guid), ("__key_schema_id", b"\0\0\0\0\x05"))
    assert both["_key"] == {"format": "schema-registry", "schema_id": 5}
    for odd in (None, b"", b"\1", guid[:-1], guid + b"x", b"\2" + GUID.bytes, b"\0\0\0\0"):
        assert in_headers(("__value_schema_id", odd), ("other", b"x")) == {}
    # A header takes precedence over the bytes before the value.
    assert in_headers(("__key_schema_id", guid), key=framed(9))["_key"] == {
        "format": "schema-registry",
        "schema_guid": str(GUID),
    }


def bodies(topic: str | None, label: str, topics: str, partitions: str) -> Body:
    named = {} if topic is None else {label: topic}
    return {topics: [{**named, partitions: [{"records": records([(None, framed(4))])}, {"records": None}, {}]}]}


@pytest.mark.parametrize(("topic", "read"), [("orders", 4), (None, 4), ("__consumer_offsets", None), ("_x", 4)])
def test_topics_of_kafka_itself_are_left_alone(topic: str | None, read: int | None) -> None:
    context = DecodeContext(DecodeOptions())
    request = bodies(topic, "name", "topic_data", "partition_data")
    produce_request(request, 9, context)
    assert reported(request["topic_data"][0]["partition_data"][0]["records"]) == [(None, read)]
    response = bodies(topic, "topic", "responses", "partitions")
    fetch_response(response, 12, context)
    assert reported(response["responses"][0]["partitions"][0]["records"]) == [(None, read)]


@pytest.mark.parametrize(
    "body", [{}, {"topic_data": None}, {"topic_data": [{}]}, {"topic_data": [{"partition_data": None}]}]
)
def test_truncated_bodies(body: Body) -> None:
    before = repr(body)
    produce_request(body, 9, DecodeContext(DecodeOptions()))
    fetch_response(body, 9, DecodeContext(DecodeOptions()))
    assert repr(body) == before


@given(st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)), max_size=6))
def test_any_keys_and_values(pairs: list[Pair]) -> None:
    found = records(pairs)
    add_schema_ids(found)
    for record, (key, value) in zip(found["batches"][0]["records"], pairs, strict=True):
        for field, data in (("_key", key), ("_value", value)):
            if field in record:
                assert data is not None
                assert framed(record[field]["schema_id"], data[5:]) == data


@pytest.mark.parametrize(
    ("api", "kind", "topics", "partitions"),
    [
        ("Produce", "request", "topic_data", "partition_data"),
        ("Fetch", "response", "responses", "partitions"),
    ],
)
def test_ids_are_those_of_the_serializers(api: str, kind: str, topics: str, partitions: str) -> None:
    """librdkafka's Avro, JSON and Protobuf serializers, ids before the data and in headers, including int64 data."""
    name = "librdkafka-schemas.pcap"
    ids = {entry["schema_id"]: entry["guid"] for entry in account(name, "registered")}
    expected = {}
    for entry in account(name, "produced"):
        wanted: list[Any] = [entry.get("key_schema_id"), entry.get("value_schema_id")]
        if entry["topic"] == "header-orders":
            wanted = [ids[number] for number in wanted]
        expected[entry["timestamp"]] = wanted
    found = {}
    for one in messages(name, api, kind):
        assert one.body
        for topic in one.body[topics]:
            for partition in topic[partitions]:
                for batch in (partition["records"] or {"batches": []})["batches"]:
                    for record in batch["records"]:
                        read = [record.get("_key", {}), record.get("_value", {})]
                        found[record["timestamp"]] = [
                            one_of.get("schema_id", one_of.get("schema_guid")) for one_of in read
                        ]
    assert found.items() <= expected.items()
    assert sum(any(ids_of) for ids_of in found.values()) >= 8


@pytest.mark.parametrize("name", ["java-codecs.pcap", "librdkafka-codecs.pcap", "java-streams-classic.pcap"])
def test_no_ids_without_a_registry(name: str) -> None:
    for one in (*messages(name, "Produce", "request"), *messages(name, "Fetch", "response")):
        assert "schema-registry" not in repr(one.body)
