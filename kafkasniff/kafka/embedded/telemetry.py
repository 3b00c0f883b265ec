"""Data of PushTelemetry (KIP-714): OpenTelemetry metrics, compressed with the codec that the request names."""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.records.compression import codec_name, decompress
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.model import Body

MAX_METRICS_BYTES: Final = 4 << 20
"""Maximum size of decompressed metrics: parsed, tiny elements take 40 times as much. By default brokers accept 1 MiB
compressed (telemetry.max.bytes), and clients send some kB."""

MAX_METRICS_RATIO: Final = 128
"""Maximum ratio of decompression, above SMALL: names and attributes of clients' metrics compress to a tenth or a
twentieth."""

SMALL: Final = 64 << 10
"""Decompressed size that is allowed whatever the ratio."""


def push_telemetry_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_metrics`, as in `otlp.OtlpMetrics`."""
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
    # Only imports protobuf if there are metrics, not when an interpreter is looked up for judging bytes.
    from kafkasniff.kafka.embedded.otlp import MAX_PARTS, read_metrics  # noqa: PLC0415

    metrics = read_metrics(result.data)
    if metrics is None:
        context.problem("metrics-malformed", f"metrics: {len(result.data)} bytes that are not a MetricsData of OTLP")
        return
    body["_metrics"] = metrics.metrics
    if metrics.left_out:
        detail = f"metrics: more than {MAX_PARTS} metrics, points and attributes, {metrics.left_out} were skipped"
        context.problem("metrics-bound", detail)
