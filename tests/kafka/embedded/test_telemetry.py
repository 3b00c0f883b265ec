"""Metrics that clients push: a real producer's, made-up ones of every kind, and garbage."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkasniff import read
from kafkasniff.kafka.embedded.otlp import MAX_PARTS
from kafkasniff.kafka.embedded.telemetry import MAX_METRICS_BYTES, push_telemetry_request
from kafkasniff.kafka.messages.message import Decoded, decode_request
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from tests.craft.kafka_bytes import NO_TAGS, int8, int16, int32
from tests.kafka.embedded.metadata_craft import compact_bytes
from tests.kafka.embedded.test_otlp import everything
from tests.kafka.records_craft import COMPRESSORS

CAPTURE = Path(__file__).parents[3] / "captures" / "java-telemetry.pcap"


def pushed(metrics: bytes, codec: int = 0, options: DecodeOptions | None = None) -> tuple[Decoded, dict[str, Any]]:
    body = bytes(16) + int32(7) + b"\x00" + int8(codec) + compact_bytes(metrics) + NO_TAGS
    data = int16(72) + int16(0) + int32(1) + int16(-1) + NO_TAGS + body
    decoded = decode_request(data, 0, len(data), options or DecodeOptions())
    assert decoded.body is not None
    return decoded, decoded.body


def reported(data: MetricsData) -> dict[str, Any]:
    decoded, body = pushed(data.SerializeToString())
    assert decoded.problems == ()
    metrics: dict[str, Any] = body["_metrics"]
    return metrics


def kinds(decoded: Decoded) -> list[str]:
    return [problem.kind for problem in decoded.problems]


def test_a_real_producer() -> None:
    pushes = [
        exchange.request.body
        for exchange in read([CAPTURE])
        if exchange.request is not None
        and exchange.request.api == "PushTelemetry"
        and exchange.request.body is not None
    ]
    assert len(pushes) == 2
    sent = 0
    for body in pushes:
        assert body["compression_type"] == 4
        (resource,) = body["_metrics"]["resources"]
        by_name = {metric["name"]: metric for metric in resource["metrics"]}
        # The subscription that the capture's admin client created asked for this prefix.
        assert all(name.startswith("org.apache.kafka.producer.record") for name in by_name)
        assert len(by_name) == 11
        total = by_name["org.apache.kafka.producer.record.send.total"]
        assert (total["type"], total["temporality"], total["monotonic"]) == ("sum", "delta", True)
        (point,) = total["points"]
        assert point["start_time_unix_nano"] < point["time_unix_nano"]
        sent += point["value"]
    # The producer wrote three records, one per second.
    assert sent == 3


def test_every_codec() -> None:
    data = everything().SerializeToString()
    for codec, compress in COMPRESSORS.items():
        decoded, body = pushed(compress(data), codec)
        assert decoded.problems == ()
        assert body["_metrics"] == reported(everything())


def test_odd_numbers() -> None:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="x").gauge.data_points.add(as_double=math.nan)
    metrics.add(name="y").sum.aggregation_temporality = 99
    x, y = reported(data)["resources"][0]["metrics"]
    assert math.isnan(x["points"][0]["value"])
    assert y["temporality"] == 99
    from kafkasniff.model import Message
    from kafkasniff.sinks.jsonl import message_object

    message = Message("request", 1, api_key=72, body={"_metrics": reported(data)})
    assert '"NaN"' in json.dumps(message_object(message))


def test_no_metrics() -> None:
    decoded, body = pushed(b"")
    assert ("_metrics" in body, decoded.problems) == (False, ())
    context = DecodeContext(DecodeOptions())
    cut: dict[str, Any] = {"client_instance_id": "A" * 22}
    push_telemetry_request(cut, 0, context)
    assert (list(cut), context.problems) == (["client_instance_id"], [])


@pytest.mark.parametrize(
    ("metrics", "codec", "kind"),
    [
        (b"\xff" * 20, 0, "metrics-malformed"),
        (b"\x0a\x05abc", 0, "metrics-malformed"),
        (b"junk", 1, "decompression-failed"),
        (b"junk", 4, "decompression-failed"),
        (b"junk", 9, "compression-codec"),
        (b"junk", -1, "compression-codec"),
        (COMPRESSORS[4](bytes(MAX_METRICS_BYTES + 1)), 4, "decompression-bound"),
        (COMPRESSORS[1](bytes(MAX_METRICS_BYTES + 1)), 1, "decompression-bound"),
        (bytes(MAX_METRICS_BYTES + 1), 0, "decompression-bound"),
        (COMPRESSORS[1](b"") + b"more", 1, "decompression-trailing"),
    ],
)
def test_unreadable_metrics(metrics: bytes, codec: int, kind: str) -> None:
    decoded, body = pushed(metrics, codec)
    assert kinds(decoded) == [kind]
    assert decoded.problems[0].detail.startswith("metrics: ")
    assert body["metrics"] == metrics
    assert ("_metrics" in body) == (kind == "decompression-trailing")


def test_skipped_parts_are_reported() -> None:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="many")
    for _ in range(MAX_PARTS):
        metric.gauge.data_points.add()
    decoded, body = pushed(data.SerializeToString())
    (shown,) = body["_metrics"]["resources"][0]["metrics"]
    # A resource, a scope and a metric count, too.
    assert len(shown["points"]) == MAX_PARTS - 3
    assert kinds(decoded) == ["metrics-bound"]
    assert "3 were skipped" in decoded.problems[0].detail


def test_the_bound_of_the_whole_message_holds_too() -> None:
    data = COMPRESSORS[4](everything().SerializeToString())
    decoded, _ = pushed(data, 4, DecodeOptions(max_decompressed=10))
    assert kinds(decoded) == ["decompression-bound"]


@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 3, 4]))
def test_garbage_never_raises(metrics: bytes, codec: int) -> None:
    decoded, body = pushed(metrics, codec)
    assert "_metrics" in body or decoded.problems or not metrics


@given(st.data())
def test_damaged_metrics_never_raise(data: st.DataObject) -> None:
    raw = bytearray(everything().SerializeToString())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    decoded, body = pushed(bytes(raw[: data.draw(st.integers(at, len(raw)))]))
    assert "_metrics" in body or decoded.problems or not body["metrics"]


def test_protobuf_is_imported_for_metrics_alone() -> None:
    code = """
import sys
import kafkasniff.cli.main, kafkasniff.engine.inspector
from kafkasniff.kafka.messages.message import decode_request
from kafkasniff.kafka.messages.message_header import request_header
header = bytes([0, 72, 0, 0, 0, 0, 0, 1, 255, 255, 0])
assert request_header(header, 0, len(header), strict=True) is not None
decode_request(header, 0, len(header))
assert not [name for name in sys.modules if name.startswith(("google", "opentelemetry"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
