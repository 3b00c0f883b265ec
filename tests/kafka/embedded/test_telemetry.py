"""Metrics that clients push, as plain values: every kind and codec, and what is malformed or too much."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkasniff.kafka.embedded import telemetry
from kafkasniff.kafka.embedded.telemetry import MAX_METRICS_BYTES, read_metrics
from kafkasniff.kafka.messages.message import Decoded, decode_request
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.craft.kafka_bytes import NO_TAGS, int8, int16, int32, unsigned_varint
from tests.kafka.embedded.metadata_craft import compact_bytes
from tests.kafka.records_craft import COMPRESSORS


def pushed(metrics: bytes, codec: int = 0, options: DecodeOptions | None = None) -> tuple[Decoded, dict[str, Any]]:
    body = bytes(16) + int32(7) + b"\x00" + int8(codec) + compact_bytes(metrics) + NO_TAGS
    data = int16(72) + int16(0) + int32(1) + int16(-1) + NO_TAGS + body
    decoded = decode_request(data, 0, len(data), options or DecodeOptions())
    assert decoded.body is not None
    return decoded, decoded.body


def kinds(decoded: Decoded) -> list[str]:
    return [problem.kind for problem in decoded.problems]


def test_every_codec() -> None:
    data = everything().SerializeToString()
    found = read_metrics(data)
    assert found is not None
    for codec, compress in COMPRESSORS.items():
        decoded, body = pushed(compress(data), codec)
        assert (decoded.problems, body["_metrics"]) == ((), found.metrics)


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


def test_the_bound_of_the_whole_message_holds_too() -> None:
    data = COMPRESSORS[4](everything().SerializeToString())
    decoded, _ = pushed(data, 4, DecodeOptions(max_decompressed=10))
    assert kinds(decoded) == ["decompression-bound"]


def metrics_of(data: MetricsData) -> dict[str, Any]:
    found = read_metrics(data.SerializeToString())
    assert found is not None
    assert found.left_out == 0
    return found.metrics


def everything() -> MetricsData:
    data = MetricsData()
    resource = data.resource_metrics.add()
    attribute = resource.resource.attributes.add(key="client_rack")
    attribute.value.string_value = "rack-1"
    scope = resource.scope_metrics.add()
    scope.scope.name = "librdkafka"
    gauge = scope.metrics.add(name="a.gauge", unit="1", description="one")
    point = gauge.gauge.data_points.add(time_unix_nano=2**64 - 1, as_int=-5)
    values = point.attributes.add(key="list").value.array_value.values
    values.add(bool_value=True)
    values.add(double_value=0.5)
    values.add(bytes_value=b"\xff")
    values.add()
    values.add().kvlist_value.values.add(key="inner").value.int_value = 7
    histogram = scope.metrics.add(name="a.histogram").histogram
    histogram.aggregation_temporality = 2
    histogram.data_points.add(count=3, sum=6.0, bucket_counts=[1, 2], explicit_bounds=[5.0], max=4.0)
    exponential = scope.metrics.add(name="an.exponential").exponential_histogram
    steps = exponential.data_points.add(count=1, scale=-2, zero_count=1)
    steps.positive.offset = 3
    steps.positive.bucket_counts.extend([1, 0])
    summary = scope.metrics.add(name="a.summary").summary.data_points.add(count=2, sum=3.0)
    summary.quantile_values.add(quantile=0.5, value=1.0)
    scope.metrics.add(name="nothing")
    scope.metrics.add(name="no.value").gauge.data_points.add(time_unix_nano=1)
    return data


def test_every_kind_of_metric() -> None:
    (resource,) = metrics_of(everything())["resources"]
    assert resource["attributes"] == {"client_rack": "rack-1"}
    gauge, histogram, exponential, summary, nothing, no_value = resource["metrics"]
    assert {metric["scope"] for metric in resource["metrics"]} == {"librdkafka"}
    assert (gauge["unit"], gauge["description"], gauge["type"]) == ("1", "one", "gauge")
    attributes = {"list": [True, 0.5, b"\xff", None, {"inner": 7}]}
    assert gauge["points"] == [{"attributes": attributes, "time_unix_nano": 2**64 - 1, "value": -5}]
    assert histogram["temporality"] == "cumulative"
    buckets = {"count": 3, "sum": 6.0, "max": 4.0, "bucket_counts": [1, 2], "explicit_bounds": [5.0]}
    assert histogram["points"] == [{"time_unix_nano": 0, **buckets}]
    (steps,) = exponential["points"]
    assert (exponential["temporality"], steps["scale"], steps["zero_count"]) == ("unspecified", -2, 1)
    assert steps["positive"] == {"offset": 3, "bucket_counts": [1, 0]}
    assert "sum" not in steps
    quantiles = [{"quantile": 0.5, "value": 1.0}]
    assert summary["points"] == [{"time_unix_nano": 0, "count": 2, "sum": 3.0, "quantile_values": quantiles}]
    assert (nothing["type"], nothing["points"]) == (None, [])
    assert no_value["points"] == [{"time_unix_nano": 1, "value": None}]
    # Unknown fields are skipped, and a temporality without a name is its number.
    newer = MetricsData().SerializeToString() + b"\xfa\x01\x03abc"
    assert read_metrics(newer) == telemetry.OtlpMetrics({"resources": []}, 0)
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name="y").sum.aggregation_temporality = 99
    assert metrics_of(data)["resources"][0]["metrics"][0]["temporality"] == 99


def test_values_that_nest_too_deep() -> None:
    data = MetricsData()
    value = data.resource_metrics.add().resource.attributes.add(key="x").value
    for _ in range(40):
        value = value.array_value.values.add()
    assert metrics_of(data)["resources"][0]["attributes"]["x"] is not None
    raw = b""
    for _ in range(300):
        inner = b"\x0a" + bytes_of(raw)
        raw = b"\x2a" + bytes_of(inner)
    attribute = b"\x12" + bytes_of(raw)
    deep = b"\x0a" + bytes_of(b"\x0a" + bytes_of(b"\x0a" + bytes_of(attribute)))
    assert read_metrics(deep) is None


def bytes_of(data: bytes) -> bytes:
    """A field's bytes prefixed with their length, as in protobuf."""
    return unsigned_varint(len(data)) + data


@pytest.mark.parametrize("some", [2, 3, 5])
def test_parts_are_bounded(some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource, a scope and a metric count, too; skipped ones are counted with nothing inside them."""
    monkeypatch.setattr(telemetry, "MAX_PARTS", some)
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="many")
    for number in range(4):
        metric.gauge.data_points.add(as_int=number)
    decoded, body = pushed(data.SerializeToString())
    shown = [point["value"] for metric in body["_metrics"]["resources"][0]["metrics"] for point in metric["points"]]
    assert shown == list(range(max(some - 3, 0)))
    assert kinds(decoded) == ["metrics-bound"]
    assert f" {1 if some < 3 else 4 - (some - 3)} were skipped" in decoded.problems[0].detail
