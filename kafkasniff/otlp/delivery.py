"""Sends spans and metrics in a thread of its own, from a bounded queue: a slow receiver never holds up a live capture.

Nothing is lost silently: every span is counted as sent, dropped (the queue was full) or failed (the receiver did not
take it, with the exporter's reason).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.util.re import parse_env_headers

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.text.printable import printable

MAX_QUEUE: Final = 16_384
"""Spans that wait, some 2 kB each: a second of 16,000 exchanges."""
MAX_BATCH: Final = 512
"""Spans of a request, OpenTelemetry's default: some 400 kB."""
SEND_SECONDS: Final = 1.0
"""How long a span waits for others."""
METRICS_SECONDS: Final = 10.0
"""Time between two reports of metrics."""
CLOSE_SECONDS: Final = 10.0
"""How long the end of a run waits for the receiver."""

_LOGGERS: Final = "opentelemetry"
_PORTS: Final = {"http": 80, "https": 443, "grpc": 4317, "grpcs": 4317}
"""Usual ports by the scheme of an address."""
_RETRIES: Final = """{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.5s",
  "maxBackoff": "4s", "backoffMultiplier": 2, "retryableStatusCodes": ["CANCELLED", "DEADLINE_EXCEEDED",
  "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]}}]}"""
"""Codes that OTLP declares retryable, for gRPC."""


def port_of(url: str) -> int:
    """The port of an endpoint. Raises UsageError if it is not one, or contains a password.

    Raises ModuleNotFoundError if it needs gRPC, which is not installed.
    """
    try:
        parts = urlsplit(url)
        usual = _PORTS.get(parts.scheme, 0)
        port = usual and (parts.port or usual)
        if parts.scheme.startswith("grpc") and parts.path not in ("", "/"):
            port = 0
    except ValueError:
        port = 0
    if not port or not parts.hostname or parts.query or parts.fragment:
        raise UsageError("OTLP is sent to an address such as http://localhost:4318 or grpc://localhost:4317")
    if parts.username is not None or parts.password is not None:
        # It would be visible in the list of processes.
        raise UsageError("OTLP: no password in the address; set OTEL_EXPORTER_OTLP_HEADERS")
    if parts.scheme.startswith("grpc"):
        # Before `live` is confined.
        import grpc  # noqa: F401
    return port


def exporter_to(url: str) -> Exporter:
    """The exporter for an address. Raises what `port_of` does, and OSError if the certificate cannot be read."""
    return (GrpcExporter if url.startswith("grpc") else HttpExporter)(url)


class Exporter(Protocol):
    """Sends to a receiver; each call takes as long as the receiver does."""

    def spans(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send spans; whether the receiver took them."""

    def metrics(self, data: MetricsData) -> bool:
        """Send metrics; whether the receiver took them."""

    def shutdown(self) -> None:
        """Stop waiting for the receiver. Callable from another thread."""


class HttpExporter:
    """OpenTelemetry's exporters for OTLP over HTTP; OTEL_EXPORTER_OTLP_* variables configure the rest."""

    def __init__(self, url: str) -> None:
        port_of(url)
        base = url.rstrip("/")
        self._spans = OTLPSpanExporter(f"{base}/v1/traces", session=_session())
        self._metrics = OTLPMetricExporter(f"{base}/v1/metrics", session=_session())

    def spans(self, spans: Sequence[ReadableSpan]) -> bool:
        """See `Exporter`."""
        return self._spans.export(spans) is SpanExportResult.SUCCESS

    def metrics(self, data: MetricsData) -> bool:
        """See `Exporter`."""
        return self._metrics.export(data) is MetricExportResult.SUCCESS

    def shutdown(self) -> None:
        """See `Exporter`."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]  # OpenTelemetry's
        self._metrics.shutdown()


class GrpcExporter:
    """OTLP over gRPC. `grpcs://` has TLS; OTEL_EXPORTER_OTLP_* variables configure the rest, as for HTTP."""

    def __init__(self, url: str) -> None:
        port = port_of(url)
        import grpc

        self._refused = grpc.RpcError
        self._seconds = float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT", CLOSE_SECONDS))
        self._headers = tuple(parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), liberal=True).items())
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        compresses = os.environ.get("OTEL_EXPORTER_OTLP_COMPRESSION") == "gzip"
        channel: dict[str, Any] = {
            # As for HTTP: `live` may not connect to proxies once it is confined.
            "options": (("grpc.enable_http_proxy", 0), ("grpc.service_config", _RETRIES)),
            "compression": grpc.Compression.Gzip if compresses else None,
        }
        if parts.scheme == "grpcs":
            certificate = os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE")
            credentials = grpc.ssl_channel_credentials(Path(certificate).read_bytes() if certificate else None)
            self._channel = grpc.secure_channel(f"{host}:{port}", credentials, **channel)
        else:
            self._channel = grpc.insecure_channel(f"{host}:{port}", **channel)
        calls = (
            self._channel.unary_unary(
                f"/opentelemetry.proto.collector.{signal.lower()}.v1.{signal}Service/Export",
                request_serializer=lambda message: message.SerializeToString(),
            )
            for signal in ("Trace", "Metrics")
        )
        self._traces, self._metrics = calls

    def spans(self, spans: Sequence[ReadableSpan]) -> bool:
        """See `Exporter`. Raises ConnectionError with gRPC's reason."""
        return self._send(self._traces, encode_spans(spans))

    def metrics(self, data: MetricsData) -> bool:
        """See `Exporter`. Raises ConnectionError with gRPC's reason."""
        return self._send(self._metrics, encode_metrics(data))

    def shutdown(self) -> None:
        """See `Exporter`."""
        self._channel.close()

    def _send(self, call: Callable[..., bytes], message: object) -> bool:
        try:
            call(message, timeout=self._seconds, metadata=self._headers)
        except self._refused as error:
            raise ConnectionError(f"{error.code().name}: {printable(error.details() or '')}") from None
        return True


def _session() -> requests.Session:
    session = requests.Session()
    # Neither proxies, which `live` may not connect to once it is confined, nor passwords of .netrc.
    session.trust_env = False
    session.hooks["response"].append(_refuse_redirect)
    return session


def _refuse_redirect(response: requests.Response, **_: object) -> None:
    """Raise TooManyRedirects: `requests` follows 301 and 302 with a GET without the spans."""
    if 300 <= response.status_code < 400:
        target = printable(response.headers.get("location", "nowhere"))
        raise requests.TooManyRedirects(f"the receiver redirects to {target} (HTTP {response.status_code})")


class _Reasons(logging.Handler):
    """Keeps the exporters' last message instead of printing it in the middle of the output."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._cause = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message. Before another attempt it names the error, after the last one it does not."""
        message = " ".join(record.getMessage().split())
        given = record.args if isinstance(record.args, tuple) else ()
        if record.levelno < logging.ERROR:
            self._cause = _innermost(given[0]) if given and isinstance(given[0], str | BaseException) else ""
        elif self._cause and len(given) < 2:
            message = f"{message.removesuffix('.')}: {self._cause}"
        self.last = message


def _innermost(error: str | BaseException) -> str:
    """The first error of a chain; those after it only add the address and the number of attempts."""
    while isinstance(error, BaseException) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return " ".join(str(error).split())


class Delivery:
    """A context manager around a run. `collect`: the metrics.

    `waits`: for captures, which can wait: `offer` waits for room, and raises OutputError once the receiver has failed.
    """

    def __init__(
        self,
        exporter: Exporter,
        say: Callable[[str], None],
        *,
        waits: bool = False,
        collect: Callable[[], MetricsData] | None = None,
    ) -> None:
        self.sent = 0
        """Spans that the receiver took."""
        self.dropped = 0
        """Spans for which there was no room."""
        self.failed = 0
        """Spans that the receiver did not take."""
        self.unsent_metrics = 0
        """Reports of metrics that the receiver did not take; later ones contain their counts."""
        self._exporter = exporter
        self._say = say
        self._waits = waits
        self._collect = collect
        self._queue: deque[ReadableSpan] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._given_up = False
        self._sending = 0
        """Spans of the request under way."""
        self._reasons = _Reasons()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def __enter__(self) -> Delivery:
        logger = logging.getLogger(_LOGGERS)
        logger.addHandler(self._reasons)
        logger.propagate = False
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        logger = logging.getLogger(_LOGGERS)
        logger.removeHandler(self._reasons)
        logger.propagate = True

    def offer(self, span: ReadableSpan) -> None:
        """Queue a span. Hot."""
        with self._changed:
            while self._waits and len(self._queue) >= MAX_QUEUE and not self.failed:
                self._changed.wait(SEND_SECONDS)
            if self._waits and self.failed:
                raise OutputError(f"{self.line()}: {self._reasons.last or 'the receiver did not accept them'}")
            if len(self._queue) >= MAX_QUEUE:
                if not self.dropped:
                    self._say("warning: spans are dropped: the OTLP receiver is slower than the capture")
                self.dropped += 1
                return
            self._queue.append(span)
            if len(self._queue) >= MAX_BATCH:
                self._changed.notify()

    def close(self) -> None:
        """Send the rest, for CLOSE_SECONDS at most; what is left then counts as dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(None if self._waits else CLOSE_SECONDS)
        self._given_up = True
        # This ends the wait between two attempts.
        self._exporter.shutdown()
        self._thread.join(SEND_SECONDS)
        with self._changed:
            self.dropped += len(self._queue) + self._sending
            self._queue.clear()

    def line(self) -> str:
        """Spans by what became of them."""
        parts = [f"{self.sent:,} span{'' if self.sent == 1 else 's'} sent"]
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped")
        if self.failed:
            parts.append(f"{self.failed:,} not delivered")
        if self.unsent_metrics:
            parts.append(f"metrics not delivered {self.unsent_metrics:,}×")
        return ", ".join(parts)

    def _run(self) -> None:
        metrics_due = time.monotonic() + METRICS_SECONDS
        done, collect = False, self._collect
        while not done:
            with self._changed:
                if not self._closing and len(self._queue) < MAX_BATCH:
                    self._changed.wait(SEND_SECONDS)
                stopped = self._given_up or (self._waits and self.failed)
                batch = [] if stopped else [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
                self._sending = len(batch)
                done = self._closing and (bool(stopped) or not self._queue)
            if batch:
                self._send(batch)
            # The last numbers follow the last spans.
            if collect is not None and not self._given_up and (done or time.monotonic() >= metrics_due):
                metrics_due = time.monotonic() + METRICS_SECONDS
                if not self._taken(lambda: self._exporter.metrics(collect())):
                    self._failed_first("metrics")
                    self.unsent_metrics += 1

    def _send(self, batch: list[ReadableSpan]) -> None:
        taken = self._taken(lambda: self._exporter.spans(batch))
        if not taken:
            self._failed_first("spans")
        with self._changed:
            self._sending = 0
            if taken:
                self.sent += len(batch)
            else:
                self.failed += len(batch)
            # There is room for captures that wait.
            self._changed.notify_all()

    def _taken(self, send: Callable[[], bool]) -> bool:
        """Whether the receiver took something. An exporter's own error counts as a failure, too."""
        try:
            return send()
        except Exception as error:  # counted and reported like a refusal: this thread has to go through the queue
            self._reasons.last = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return False

    def _failed_first(self, what: str) -> None:
        """Report the first failure; the line at the end has their number."""
        if not self.failed and not self.unsent_metrics and not self._given_up:
            reason = f": {self._reasons.last}" if self._reasons.last else ""
            self._say(f"warning: the OTLP receiver did not accept {what}{reason}")
