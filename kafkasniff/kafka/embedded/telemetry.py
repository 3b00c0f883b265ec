"""What clients push with PushTelemetry (KIP-714): OpenTelemetry's metrics, compressed as the request says."""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.compression import codec_name, decompress
from kafkasniff.kafka.context import DecodeContext
from kafkasniff.model import Body

__all__ = ["MAX_METRICS_BYTES", "MAX_METRICS_RATIO", "push_telemetry_request"]

MAX_METRICS_BYTES: Final = 4 << 20
"""Bytes that the metrics may decompress to: parsed, tiny elements take 40 times as much. Brokers take 1 MiB compressed
(telemetry.max.bytes), clients send some kB."""

MAX_METRICS_RATIO: Final = 128
"""How many times their size metrics may decompress to, where that is more than SMALL: names and attributes of clients'
metrics compress to a tenth or a twentieth."""

SMALL: Final = 64 << 10
"""Bytes that metrics may decompress to, however small they are."""


def push_telemetry_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_metrics`, as `otlp.Metrics` tells them."""
    data = body.get("metrics")
    if not isinstance(data, bytes) or not data:
        return
    codec = body["compression_type"] & 0xFF
    if codec_name(codec) == f"unknown-{codec}":
        context.problem("compression-codec", f"metrics: codec {codec} is not known")
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
    # protobuf is imported when there are metrics, not when an interpreter is looked up for bytes that are judged.
    from kafkasniff.kafka.embedded.otlp import MAX_PARTS, read_metrics  # noqa: PLC0415

    metrics = read_metrics(result.data)
    if metrics is None:
        context.problem("metrics-malformed", f"metrics: {len(result.data)} bytes that are no MetricsData of OTLP")
        return
    body["_metrics"] = metrics.told
    if metrics.left_out:
        detail = f"metrics: more than {MAX_PARTS} metrics, points and attributes, {metrics.left_out} are left out"
        context.problem("metrics-bound", detail)
