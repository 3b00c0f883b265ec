"""Data of PushTelemetry (KIP-714): OpenTelemetry metrics (OTLP), compressed with the codec that the request names.

The schema is OpenTelemetry's own (package opentelemetry-proto), and so are the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkasniff.kafka.records.compression import codec_name, decompress
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.model import Body

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics

MAX_METRICS_BYTES: Final = 4 << 20
"""Maximum size of decompressed metrics: parsed, tiny elements take 40 times as much. By default brokers accept 1 MiB
compressed (telemetry.max.bytes), and clients send some kB."""

MAX_METRICS_RATIO: Final = 128
"""Maximum ratio of decompression, above SMALL: names and attributes of clients' metrics compress to a tenth or a
twentieth."""

SMALL: Final = 64 << 10
"""Decompressed size that is allowed whatever the ratio."""


def push_telemetry_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_metrics`, as in `OtlpMetrics`."""
    data = body.get("metrics")
    if not isinstance(data, bytes) or not data:
        return
    codec = body["compression_type"] & 0xFF
    if codec_name(codec) == f"unknown-{codec}":
        context.problem("compression-codec", f"metrics: unknown codec {codec}")
        return
    most = min(MAX_METRICS_BYTES, max(SMALL, MAX_METRICS_RATIO * len(data)))
    limit = min(most, context.options.max_decompressed - context.decompressed)
    result = decompress(codec, data, limit)
    context.decompressed += result.produced
    if result.failure is not None:
        context.problem(result.failure, f"metrics: {result.detail}")
        return
    if result.detail:
        context.problem("decompression-trailing", f"metrics: {result.detail}")
    metrics = read_metrics(result.data)
    if metrics is None:
        context.problem("metrics-malformed", f"metrics: {len(result.data)} bytes that are not a MetricsData of OTLP")
        return
    body["_metrics"] = metrics.metrics
    if metrics.left_out:
        detail = f"metrics: more than {MAX_PARTS} metrics, points and attributes, {metrics.left_out} were skipped"
        context.problem("metrics-bound", detail)


MAX_PARTS: Final = 100_000
"""Maximum number of resources, metrics, data points, attributes and their elements; the rest is only counted."""

_COLUMNS: Final = {
    "histogram": ("count", "sum", "min", "max", "bucket_counts", "explicit_bounds"),
    "exponential_histogram": ("count", "sum", "min", "max", "scale", "zero_count", "zero_threshold"),
    "summary": ("count", "sum"),
}
"""Fields of points that are not a single number, by the kind of the metric."""


class OtlpMetrics(NamedTuple):
    """Content of a MetricsData."""

    metrics: dict[str, Any]
    """`{"resources": [{"attributes", "metrics": [{"name", "type", "points", …}]}]}`; see docs/json.md."""
    left_out: int
    """Number of parts above `MAX_PARTS`."""


def read_metrics(data: bytes) -> OtlpMetrics | None:
    """Decode a serialized MetricsData; None if the bytes are not one. Unknown (newer) fields are skipped."""
    # Imported here because importing protobuf takes long, and few captures have metrics.
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData  # noqa: PLC0415

    try:
        found = MetricsData.FromString(data)
    except DecodeError:
        return None
    converter = _Converter()
    return OtlpMetrics(converter.convert(found), converter.left_out)


class _Converter:
    """Converts a MetricsData to plain values, up to a bound."""

    def __init__(self) -> None:
        self.left = MAX_PARTS
        self.left_out = 0

    def convert(self, data: MetricsData) -> dict[str, Any]:
        """Resources in order; equal neighbours are merged, since Java clients have one for each metric."""
        resources: list[dict[str, Any]] = []
        for found in self.some(data.resource_metrics):
            attributes = self.attributes(found.resource.attributes)
            if not resources or resources[-1]["attributes"] != attributes:
                resources.append({"attributes": attributes, "metrics": []})
            resources[-1]["metrics"] += self.metrics(found)
        return {"resources": resources}

    def some(self, items: Iterable[Any]) -> Iterator[Any]:
        """As many items as the bound allows; the rest is counted."""
        for item in items:
            if self.left > 0:
                self.left -= 1
                yield item
            else:
                self.left_out += 1

    def metrics(self, resource: ResourceMetrics) -> Iterator[dict[str, Any]]:
        for scope in self.some(resource.scope_metrics):
            for metric in self.some(scope.metrics):
                fields = self.metric(metric)
                if scope.scope.name:
                    fields["scope"] = scope.scope.name
                yield fields

    def metric(self, metric: Metric) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": metric.name}
        if metric.description:
            fields["description"] = metric.description
        if metric.unit:
            fields["unit"] = metric.unit
        kind = metric.WhichOneof("data")
        fields["type"] = kind
        if kind is None:
            return {**fields, "points": []}
        data = getattr(metric, kind)
        if kind not in {"gauge", "summary"}:
            fields["temporality"] = _temporality(data.aggregation_temporality)
        if kind == "sum":
            fields["monotonic"] = data.is_monotonic
        fields["points"] = [self.point(kind, point) for point in self.some(data.data_points)]
        return fields

    def point(self, kind: str, point: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        attributes = self.attributes(point.attributes)
        if attributes:
            fields["attributes"] = attributes
        if point.start_time_unix_nano:
            fields["start_time_unix_nano"] = point.start_time_unix_nano
        fields["time_unix_nano"] = point.time_unix_nano
        if kind not in _COLUMNS:
            which = point.WhichOneof("value")
            fields["value"] = None if which is None else getattr(point, which)
            return fields
        for name in _COLUMNS[kind]:
            if not point.DESCRIPTOR.fields_by_name[name].has_presence or point.HasField(name):
                value = getattr(point, name)
                fields[name] = value if isinstance(value, int | float) else list(value)
        if kind == "exponential_histogram":
            for side in ("positive", "negative"):
                buckets = getattr(point, side)
                fields[side] = {"offset": buckets.offset, "bucket_counts": list(buckets.bucket_counts)}
        elif kind == "summary":
            fields["quantile_values"] = [
                {"quantile": one.quantile, "value": one.value} for one in self.some(point.quantile_values)
            ]
        return fields

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
    """`delta` or `cumulative`; the number if it has no name: enums are open."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality  # noqa: PLC0415

    try:
        name: str = AggregationTemporality.Name(number)
    except ValueError:
        return number
    return name.removeprefix("AGGREGATION_TEMPORALITY_").lower()
