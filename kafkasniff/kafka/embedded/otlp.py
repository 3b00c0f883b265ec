"""Metrics of OpenTelemetry (OTLP) as plain values.

The schema is OpenTelemetry's own (package opentelemetry-proto), and so are the names. Only who has metrics to read
imports this module, since protobuf takes its time to be imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, ResourceMetrics

__all__ = ["MAX_PARTS", "Metrics", "read_metrics"]

MAX_PARTS: Final = 100_000
"""Resources, metrics, data points, attributes and their elements that are told; of the others the number."""

_COLUMNS: Final = {
    "histogram": ("count", "sum", "min", "max", "bucket_counts", "explicit_bounds"),
    "exponential_histogram": ("count", "sum", "min", "max", "scale", "zero_count", "zero_threshold"),
    "summary": ("count", "sum"),
}
"""Fields of points that are no single number, by the kind of the metric."""


class Metrics(NamedTuple):
    """What a MetricsData says."""

    told: dict[str, Any]
    """`{"resources": [{"attributes", "metrics": [{"name", "type", "points", …}]}]}`; see docs/json.md."""
    left_out: int
    """Parts above `MAX_PARTS`."""


def read_metrics(data: bytes) -> Metrics | None:
    """Read a serialized MetricsData; None where the bytes are none. Fields that OTLP adds later are passed over."""
    try:
        found = MetricsData.FromString(data)
    except DecodeError:
        return None
    teller = _Teller()
    return Metrics(teller.tell(found), teller.left_out)


class _Teller:
    """Makes plain values of a MetricsData, up to a bound."""

    def __init__(self) -> None:
        self.left = MAX_PARTS
        self.left_out = 0

    def tell(self, data: MetricsData) -> dict[str, Any]:
        """Resources in their order; neighbours that are alike are one, since Java clients have one for each metric."""
        resources: list[dict[str, Any]] = []
        for found in self.some(data.resource_metrics):
            attributes = self.attributes(found.resource.attributes)
            if not resources or resources[-1]["attributes"] != attributes:
                resources.append({"attributes": attributes, "metrics": []})
            resources[-1]["metrics"] += self.metrics(found)
        return {"resources": resources}

    def some(self, items: Iterable[Any]) -> Iterator[Any]:
        """As many as the bound allows; the others are counted."""
        for item in items:
            if self.left > 0:
                self.left -= 1
                yield item
            else:
                self.left_out += 1

    def metrics(self, resource: ResourceMetrics) -> Iterator[dict[str, Any]]:
        for scope in self.some(resource.scope_metrics):
            for metric in self.some(scope.metrics):
                told = self.metric(metric)
                if scope.scope.name:
                    told["scope"] = scope.scope.name
                yield told

    def metric(self, metric: Metric) -> dict[str, Any]:
        told: dict[str, Any] = {"name": metric.name}
        if metric.description:
            told["description"] = metric.description
        if metric.unit:
            told["unit"] = metric.unit
        kind = metric.WhichOneof("data")
        told["type"] = kind
        if kind is None:
            return {**told, "points": []}
        data = getattr(metric, kind)
        if kind not in {"gauge", "summary"}:
            told["temporality"] = _temporality(data.aggregation_temporality)
        if kind == "sum":
            told["monotonic"] = data.is_monotonic
        told["points"] = [self.point(kind, point) for point in self.some(data.data_points)]
        return told

    def point(self, kind: str, point: Any) -> dict[str, Any]:
        told: dict[str, Any] = {}
        attributes = self.attributes(point.attributes)
        if attributes:
            told["attributes"] = attributes
        if point.start_time_unix_nano:
            told["start_time_unix_nano"] = point.start_time_unix_nano
        told["time_unix_nano"] = point.time_unix_nano
        if kind not in _COLUMNS:
            which = point.WhichOneof("value")
            told["value"] = None if which is None else getattr(point, which)
            return told
        for name in _COLUMNS[kind]:
            if not point.DESCRIPTOR.fields_by_name[name].has_presence or point.HasField(name):
                value = getattr(point, name)
                told[name] = value if isinstance(value, int | float) else list(value)
        if kind == "exponential_histogram":
            for side in ("positive", "negative"):
                buckets = getattr(point, side)
                told[side] = {"offset": buckets.offset, "bucket_counts": list(buckets.bucket_counts)}
        elif kind == "summary":
            told["quantile_values"] = [
                {"quantile": one.quantile, "value": one.value} for one in self.some(point.quantile_values)
            ]
        return told

    def attributes(self, pairs: Iterable[KeyValue]) -> dict[str, Any]:
        return {pair.key: self.value(pair.value) for pair in self.some(pairs)}

    def value(self, value: AnyValue) -> Any:
        """A plain value; protobuf itself bounds how deep they nest (100 levels)."""
        match value.WhichOneof("value"):
            case None:
                return None
            case "array_value":
                return [self.value(item) for item in self.some(value.array_value.values)]
            case "kvlist_value":
                return self.attributes(value.kvlist_value.values)
            case which:
                return getattr(value, which)


def _temporality(number: int) -> str | int:
    """`delta` or `cumulative`; the number where it has no name: enums are open, any can come."""
    try:
        name: str = AggregationTemporality.Name(number)
    except ValueError:
        return number
    return name.removeprefix("AGGREGATION_TEMPORALITY_").lower()
