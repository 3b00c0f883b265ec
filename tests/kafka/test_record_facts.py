"""Schema ids before keys and values, and in record headers: reported if present, and not if the bytes are numbers."""

from __future__ import annotations

import functools
import uuid
from typing import Any

import pytest

from kafkasniff.kafka.embedded.internal_topics import read_records
from kafkasniff.kafka.record_facts import MAX_ID, MAX_SCHEMAS, add_schema_ids, trace_id
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Body
from tests.kafka.records_craft import LZ4, Record, batch_of, decode, kinds

produce_request = functools.partial(read_records, 0, "request")
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


W3C = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
"""https://www.w3.org/TR/trace-context/#traceparent-header"""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("traceparent", W3C, "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("traceparent", b"01" + W3C[2:] + b"-what-the-future-will-be-like", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("elastic-apm-traceparent", W3C, "4bf92f3577b34da6a3ce929d0e0e4736"),
        (
            "b3",
            b"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90",
            "80f198ee56343ba864fe8b2a57d3eff7",
        ),
        ("b3", b"64fe8b2a57d3eff7-e457b5a2e4d86bd1", "64fe8b2a57d3eff7"),
        ("X-B3-TraceId", b"463AC35C9F6413AD48485A3953BB6124", "463ac35c9f6413ad48485a3953bb6124"),
        ("x-b3-traceid", b"463ac35c9f6413ad", "463ac35c9f6413ad"),
        ("uber-trace-id", b"abcd1234:1:0:1", "00000000abcd1234"),
        ("uber-trace-id", b"1463ac35c9f6413ad%3A48485a3953bb6124%3A0%3A1", "0000000000000001463ac35c9f6413ad"),
        ("x-datadog-trace-id", b"18446744073709551615", "18446744073709551615"),
        (
            "X-Amzn-Trace-Id",
            b"Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
            "1-5759e988-bd862e3fe1be46a994272793",
        ),
        (
            "X-Amzn-Trace-Id",
            b"Self=1-67891234-12456789abcdef012345678;Root=1-67891233-abcdef012345678912345678",
            "1-67891233-abcdef012345678912345678",
        ),
        ("X-Cloud-Trace-Context", b"105445aa7843bc8bf206b12000100000/1;o=1", "105445aa7843bc8bf206b12000100000"),
    ],
)
def test_forms(key: str, value: bytes, expected: str) -> None:
    assert trace_id(key, value) == trace_id(key.lower(), value) == expected
    # Only the whole value counts.
    if key not in {"X-Amzn-Trace-Id", "traceparent"}:
        assert trace_id(key, b" " + value) is trace_id(key, value + b"\n") is None
        assert trace_id(key, b"\xff" + value[1:]) is None
    assert trace_id(key, value.replace(b"-", b"_").replace(b":", b"_") + b"_") is None


def test_records() -> None:
    headers = (("k", b"v"), ("traceparent", W3C), ("b3", b"64fe8b2a57d3eff7-e457b5a2e4d86bd1"), ("traceparent", W3C))
    records = [
        Record(0, 0, b"k", b"v", headers),
        Record(1, 0, b"k", b"v", (("traceparent", b"none"),)),
        Record(2, 0, b"k", b"v"),
    ]
    for codec in (0, LZ4):
        reported, context = decode(batch_of(records, codec))
        first, second, third = reported["batches"][0]["records"]
        assert first["_trace_ids"] == ["4bf92f3577b34da6a3ce929d0e0e4736", "64fe8b2a57d3eff7"]
        assert "_trace_ids" not in second
        assert "_trace_ids" not in third
        assert len(first["headers"]) == 4
        assert kinds(context) == []
