"""The counts of `live --metrics` as OpenTelemetry's metrics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from kafkasniff.live.metrics import LATENCY_BUCKETS, Metrics
from kafkasniff.otlp.spans import SCOPE

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

__all__ = ["metrics_data"]

ATTRIBUTES: Final = {
    "api": "messaging.operation.name",
    "topic": "messaging.destination.name",
    "client_id": "messaging.client.id",
    "error": "error.type",
}
"""Labels that the semantic conventions have names for; others become `kafkasniff.LABEL`."""
LATENCY: Final = "kafkasniff_latency_seconds"
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def metrics_data(metrics: Metrics, resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """All metrics since `start_ns`, as of `now_ns`."""
    made = []
    for family in metrics.collect():
        if family.type == "histogram":
            made.append(
                Metric(
                    "messaging.client.operation.duration",
                    family.documentation,
                    "s",
                    _histogram(family, start_ns, now_ns),
                )
            )
        elif family.type in ("counter", "gauge"):
            points = [
                NumberDataPoint(_named(sample.labels), start_ns, now_ns, sample.value) for sample in family.samples
            ]
            counts = family.type == "counter"
            data = Sum(points, _CUMULATIVE, is_monotonic=True) if counts else Gauge(points)
            unit = "By" if family.name.endswith("bytes") else "1"
            made.append(Metric(family.name.replace("kafkasniff_", "kafkasniff.", 1), family.documentation, unit, data))
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, made, "")], "")])


def _histogram(family: Any, start_ns: int, now_ns: int) -> Histogram:
    """Prometheus's buckets are cumulative, OpenTelemetry's are not."""
    counts: dict[str, list[int]] = defaultdict(list)
    sums: dict[str, float] = {}
    for sample in family.samples:
        if sample.name == f"{LATENCY}_bucket":
            counts[sample.labels["api"]].append(int(sample.value))
        elif sample.name == f"{LATENCY}_sum":
            sums[sample.labels["api"]] = sample.value
    points = [
        HistogramDataPoint(
            attributes={"messaging.system": "kafka", ATTRIBUTES["api"]: api},
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=reached[-1],
            sum=sums[api],
            bucket_counts=[at - before for before, at in zip((0, *reached), reached, strict=False)],
            explicit_bounds=LATENCY_BUCKETS,
            # Unknown: OTLP's fields are optional, although the SDK's types say otherwise.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )
        for api, reached in counts.items()
    ]
    return Histogram(points, _CUMULATIVE)


def _named(labels: dict[str, str]) -> dict[str, str]:
    return {ATTRIBUTES.get(name, f"kafkasniff.{name}"): value for name, value in labels.items() if value}
