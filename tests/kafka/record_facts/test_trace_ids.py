"""Trace ids in headers of records. The examples are those of the specifications."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.record_facts.trace_ids import MAX_TRACE_IDS, add_trace_id, span_context, trace_id
from tests.kafka.records_craft import LZ4, Record, batch_of, decode, kinds

ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736

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


def test_values_without_a_trace_id() -> None:
    zero, amazon = b"0" * 32, b"1-5759e988-bd862e3fe1be46a994272793"
    for key, values in {
        "traceparent": [b"ff" + W3C[2:], W3C + b"-more", W3C.upper(), W3C[:3] + zero + W3C[35:], W3C[:-1], b"", None],
        "b3": [b"0", b"80f198ee56343ba8-1"],
        "X-B3-TraceId": [b"463ac35c9f6413a"],
        "uber-trace-id": [b"0:1:0:1"],
        "x-datadog-trace-id": [b"18446744073709551616", b"0", "١٢٣".encode()],
        "X-Amzn-Trace-Id": [b"Root=" + amazon[:-1], b";" * 100_000 + b"Root=" + amazon],
        "X-Cloud-Trace-Context": [zero],
    }.items():
        for value in values:
            assert trace_id(key, value) is None, (key, value)
    assert trace_id("traceparent", W3C[:36] + b"0" * 16 + b"-01") is None


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


def test_a_record_with_any_number_of_them() -> None:
    record: dict[str, object] = {}
    for number in range(1, 100):
        add_trace_id(record, {"key": "X-B3-TraceId", "value": b"%016x" % number})
    assert record == {"_trace_ids": [f"{number:016x}" for number in range(1, MAX_TRACE_IDS + 1)]}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", (ID, 0x00F067AA0BA902B7)),
        ("traceparent", b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", (ID, 0x00F067AA0BA902B7)),
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
        ("b3", b"4bf92f3577b34da6a3ce929d0e0e4736-e457b5a2e4d86bd1-1", (ID, 0xE457B5A2E4D86BD1)),
        ("b3", b"a3ce929d0e0e4736-e457b5a2e4d86bd1", (0xA3CE929D0E0E4736, 0xE457B5A2E4D86BD1)),
        ("b3", b"4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-1", None),
        ("uber-trace-id", b"4bf92f3577b34da6a3ce929d0e0e4736%3A2a%3A0%3A1", (ID, 0x2A)),
        ("uber-trace-id", b"4bf92f3577b34da6a3ce929d0e0e4736:0:0:1", None),
        ("x-datadog-trace-id", b"123", None),
        ("X-B3-TraceId", b"4bf92f3577b34da6a3ce929d0e0e4736", None),
        ("X-Amzn-Trace-Id", b"Root=1-67891233-abcdef012345678912345678", None),
        ("X-Cloud-Trace-Context", b"4bf92f3577b34da6a3ce929d0e0e4736/1;o=1", None),
        ("traceparent", None, None),
    ],
)
def test_span_contexts(key: str, value: bytes | None, expected: tuple[int, int] | None) -> None:
    assert span_context(key, value) == expected
