"""OpenTelemetry metrics as plain values: every kind, and what is malformed or too much."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkasniff.kafka.embedded import otlp
from kafkasniff.kafka.embedded.otlp import read_metrics


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


def test_neighbours_with_the_same_attributes_are_one_resource() -> None:
    data = MetricsData()
    for rack in ("a", "a", "b", "a"):
        resource = data.resource_metrics.add()
        resource.resource.attributes.add(key="rack").value.string_value = rack
        resource.scope_metrics.add().metrics.add(name=f"of-{rack}")
    found = [(one["attributes"]["rack"], len(one["metrics"])) for one in metrics_of(data)["resources"]]
    assert found == [("a", 2), ("b", 1), ("a", 1)]


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
    size, out = len(data), b""
    while size > 0x7F:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    return out + bytes([size]) + data


@pytest.mark.parametrize("some", [2, 3, 5])
def test_parts_are_bounded(some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource, a scope and a metric count, too; skipped ones are counted with nothing inside them."""
    monkeypatch.setattr(otlp, "MAX_PARTS", some)
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="many")
    for number in range(4):
        metric.gauge.data_points.add(as_int=number)
    found = read_metrics(data.SerializeToString())
    assert found is not None
    shown = [point["value"] for metric in found.metrics["resources"][0]["metrics"] for point in metric["points"]]
    assert shown == list(range(some - 3)) if some > 3 else shown == []
    assert found.left_out == (1 if some < 3 else 4 - (some - 3))


def test_unknown_fields_are_skipped() -> None:
    newer = MetricsData().SerializeToString() + b"\xfa\x01\x03abc"
    assert read_metrics(newer) == otlp.OtlpMetrics({"resources": []}, 0)


def test_a_temporality_without_a_name_is_its_number() -> None:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name="y").sum.aggregation_temporality = 99
    assert metrics_of(data)["resources"][0]["metrics"][0]["temporality"] == 99


@given(st.binary(max_size=200))
def test_garbage_is_none_or_metrics(data: bytes) -> None:
    """As protobuf itself decides."""
    found = read_metrics(data)
    try:
        MetricsData.FromString(data)
    except DecodeError:
        assert found is None
    else:
        assert found is not None
        assert list(found.metrics) == ["resources"]
