"""Prometheus's families as OpenTelemetry's metrics: the same numbers."""

from __future__ import annotations

from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.metrics import LATENCY_BUCKETS, Metrics
from kafkasniff.otlp.measurements import metrics_data
from kafkasniff.otlp.spans import observer
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.otlp.receiver import attributes

START, NOW = 1_000, 2_000


def counted() -> Metrics:
    metrics = Metrics()
    inspector = Inspector(exchanges=True)
    for event in (*inspector.feed(batch(mixed())), *inspector.close()):
        metrics.take(event)
    metrics.captured([("eth0", 100, 3)], inspector.summary)
    return metrics


def encoded(metrics: Metrics) -> dict[str, Any]:
    """By name, as they are sent."""
    request = encode_metrics(metrics_data(metrics, observer(), START, NOW))
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_counters_have_the_values_of_prometheus() -> None:
    metrics = counted()
    found = encoded(metrics)
    checked = 0
    for family in metrics.collect():
        if family.type != "counter":
            continue
        sent = found[family.name.replace("kafkasniff_", "kafkasniff.")].sum
        assert sent.is_monotonic
        assert [point.as_double or point.as_int for point in sent.data_points] == [one.value for one in family.samples]
        assert {(point.start_time_unix_nano, point.time_unix_nano) for point in sent.data_points} <= {(START, NOW)}
        checked += len(family.samples)
    assert checked > 20


def test_labels_have_the_names_of_the_conventions() -> None:
    found = encoded(counted())
    produce = [attributes(point) for point in found["kafkasniff.requests"].sum.data_points]
    assert {"messaging.operation.name": "Produce"} in produce
    errors = [attributes(point) for point in found["kafkasniff.errors"].sum.data_points]
    assert any(one["error.type"] == "NOT_LEADER_OR_FOLLOWER" and one["kafkasniff.code"] == "6" for one in errors)
    records = [attributes(point) for point in found["kafkasniff.records"].sum.data_points]
    assert {"messaging.destination.name", "messaging.client.id", "kafkasniff.direction"} in map(set, records)
    assert found["kafkasniff.message_bytes"].unit == "By"


def test_latencies() -> None:
    metrics = counted()
    sent = encoded(metrics)["messaging.client.operation.duration"]
    assert sent.unit == "s"
    family = next(one for one in metrics.collect() if one.type == "histogram")
    totals = {one.labels["api"]: one.value for one in family.samples if one.name.endswith("_count")}
    sums = {one.labels["api"]: one.value for one in family.samples if one.name.endswith("_sum")}
    assert totals
    for point in sent.histogram.data_points:
        api = attributes(point)["messaging.operation.name"]
        assert (point.count, sum(point.bucket_counts), point.sum) == (totals[api], totals[api], sums[api])
        assert tuple(point.explicit_bounds) == LATENCY_BUCKETS
        assert len(point.bucket_counts) == len(LATENCY_BUCKETS) + 1
        assert not point.HasField("min")
        # Each bucket alone, not with those below it.
        below = [one.value for one in family.samples if one.name.endswith("_bucket") and one.labels["api"] == api]
        assert [sum(point.bucket_counts[: end + 1]) for end in range(len(below))] == below


def test_gauges() -> None:
    found = encoded(counted())
    assert found["kafkasniff.outstanding_requests"].HasField("gauge")
    assert [point.as_int for point in found["kafkasniff.dropped_packets"].sum.data_points] == [3]
