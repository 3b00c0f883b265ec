"""Exchanges as client spans, and the counts of `live --metrics` as metrics, for a receiver of OTLP.

Names follow OpenTelemetry's semantic conventions for messaging and Kafka. Ids of spans follow from the connection and
the exchange, so every run that sees an exchange makes the same span of it.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

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
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import kafkasniff
from kafkasniff.kafka.apis.dissectors import (
    FETCH,
    OFFSET_COMMIT,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    TXN_OFFSET_COMMIT,
)
from kafkasniff.kafka.apis.entities import each_records, record_fields
from kafkasniff.kafka.record_facts import TRACE_HEADERS, span_context
from kafkasniff.live.metrics import LATENCY_BUCKETS, Metrics
from kafkasniff.live.snapshot import api_name
from kafkasniff.live.traffic import ClientGroups, topic_traffic
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.otlp.delivery import Delivery, Exporter
from kafkasniff.text.printable import printable

MAX_LINKS: Final = 128
"""Links of a span; OpenTelemetry's own limit. A batch may have thousands of records."""
MAX_TEXT: Final = 256
"""Characters of a name from the wire: a topic's has at most 249, client ids and groups are unlimited."""

OPERATION_TYPES: Final = {
    PRODUCE: "send",
    FETCH: "receive",
    SHARE_FETCH: "receive",
    OFFSET_COMMIT: "settle",
    TXN_OFFSET_COMMIT: "settle",
    SHARE_ACKNOWLEDGE: "settle",
}
"""`messaging.operation.type` of the APIs that have one."""

SCOPE: Final = InstrumentationScope("kafkasniff", kafkasniff.__version__, "https://opentelemetry.io/schemas/1.37.0")


def observer() -> Resource:
    """What reports the spans: kafkasniff, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES name another."""
    given = Resource.create()
    if str(given.attributes["service.name"]).startswith("unknown_service"):
        given = given.merge(Resource({"service.name": "kafkasniff"}))
    return given.merge(Resource({"service.version": kafkasniff.__version__}))


def span_of(exchange: Exchange, resource: Resource, *, group: str = "", payload: bool = True) -> ReadableSpan | None:
    """The span of an exchange; None without a request or without times.

    `group`: what the request belongs to; `payload`: record headers may be used.

    It links to each span that a record's header names. If there is just one, it is also its parent.
    """
    request, response = exchange.request, exchange.response
    if request is None or request.time_ns is None:
        return None
    end = request.time_ns if response is None or response.time_ns is None else response.time_ns
    start = request.time_ns if exchange.duration_ns is None else end - exchange.duration_ns
    linked = list(_linked(request, response)) if payload else []
    parent = linked[0] if len(linked) == 1 else None
    seed = b"%d %d" % (exchange.connection_id, exchange.exchange_id)
    digest = blake2b(seed, digest_size=24, person=b"kafkasniff").digest()
    context = SpanContext(
        trace_id=int.from_bytes(digest[:16]) if parent is None else parent.trace_id,
        span_id=int.from_bytes(digest[16:]),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    attributes, topics = _attributes(exchange, request, group)
    error = _error(exchange)
    if error is not None:
        attributes["error.type"] = error[0]
    return ReadableSpan(
        f"{attributes['messaging.operation.name']} {topics[0]}"
        if len(topics) == 1
        else str(attributes["messaging.operation.name"]),
        context,
        parent=parent,
        resource=resource,
        attributes=attributes,
        links=[Link(one) for one in linked],
        kind=SpanKind.CLIENT,
        status=Status() if error is None else Status(StatusCode.ERROR, error[1]),
        # Clocks of two captures may disagree.
        start_time=min(start, end),
        end_time=end,
        instrumentation_scope=SCOPE,
    )


def _attributes(exchange: Exchange, request: Message, group: str) -> tuple[dict[str, str | int], list[str]]:
    """The attributes, and the topics."""
    api = api_name(request)
    found: dict[str, str | int] = {"messaging.system": "kafka", "messaging.operation.name": api}
    if request.api_key in OPERATION_TYPES:
        found["messaging.operation.type"] = OPERATION_TYPES[request.api_key]
    messages = [message for message in (request, exchange.response) if message is not None]
    traffic = [topic for message in messages for topic in topic_traffic(message)]
    topics = list(dict.fromkeys(_text(name) for name in (*(one.topic for one in traffic), *request.session_topics)))
    # The convention: nothing if there are several.
    if len(topics) == 1:
        found["messaging.destination.name"] = topics[0]
    if records := sum(one.records for one in traffic):
        found["messaging.batch.message_count"] = records
    if request.client_id:
        found["messaging.client.id"] = _text(request.client_id)
    if group:
        found["messaging.consumer.group.name"] = _text(group)
    if request.broker is not None:
        found |= {"server.address": request.broker.address, "server.port": request.broker.port}
    if request.client is not None:
        found |= {"client.address": request.client.address, "client.port": request.client.port}
    found["network.transport"] = "tcp"
    own = {
        "status": exchange.status,
        "api_version": request.api_version,
        "correlation_id": request.correlation_id,
        "request_size": request.size,
        "response_size": None if exchange.response is None else exchange.response.size,
        "latency_ns": exchange.latency_ns,
        "broker_id": exchange.broker_id,
        "client_software": " ".join(filter(None, (exchange.software_name, exchange.software_version))) or None,
    }
    found |= {
        f"kafkasniff.{name}": _text(value) if isinstance(value, str) else value
        for name, value in own.items()
        if value is not None
    }
    return found, topics


def _error(exchange: Exchange) -> tuple[str, str] | None:
    """`error.type` and its description: the first error code of the response, or why there is none."""
    errors = () if exchange.response is None else exchange.response.errors
    if errors:
        first = errors[0]
        more = f" and {len(errors) - 1} more" if errors[1:] else ""
        return first.name or str(first.code), f"{first.path}: {first.name or first.code}{more}"
    if exchange.status == "unanswered":
        return "unanswered", "the connection ended before the response"
    return None


def _linked(*messages: Message | None) -> Iterator[SpanContext]:
    """The spans that headers of records name, each once, at most MAX_LINKS."""
    seen: set[tuple[int, int]] = set()
    for message in messages:
        if message is None or message.body is None or message.api_key is None or message.api_version is None:
            continue
        fields = record_fields(message.api_key, message.api_version, message.type)
        for records, _ in () if fields is None else each_records(fields, message.body):
            for batch in records["batches"] if isinstance(records, dict) else ():
                for record in batch.get("records") or ():
                    # Most records have no id: `_trace_ids` is a cheap sign of one.
                    for header in record.get("headers", ()) if "_trace_ids" in record else ():
                        key = header["key"]
                        found = span_context(key, header["value"]) if key in TRACE_HEADERS else None
                        if found is not None and found not in seen:
                            seen.add(found)
                            yield SpanContext(*found, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
                            if len(seen) == MAX_LINKS:
                                return


def _text(value: str | bytes) -> str:
    return printable(value[:MAX_TEXT])[:MAX_TEXT]


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


class SpanObserver:
    """Makes a span of each exchange."""

    def __init__(self, metrics: Metrics, *, payload: bool, live: bool) -> None:
        """`payload`: record headers may be used; `live`: times of metrics are those of this machine's clock."""
        self.delivery: Delivery
        self.without = 0
        """Exchanges without a span: their request or its time is unknown."""
        self._metrics = metrics
        self._payload = payload
        self._live = live
        self._resource = observer()
        self._groups = ClientGroups()
        self._start_ns = self._latest_ns = time.time_ns() if live else 0

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Observe one event. Hot."""
        if type(event) is not Exchange:
            return
        span = span_of(event, self._resource, group=self._groups.of(event.request), payload=self._payload)
        if span is None or span.start_time is None or span.end_time is None:
            self.without += 1
            return
        if not self._live:
            self._start_ns = min(self._start_ns or span.start_time, span.start_time)
            self._latest_ns = max(self._latest_ns, span.end_time)
        self.delivery.offer(span)

    def collect(self) -> MetricsData:
        """The metrics so far. Called by the thread that sends."""
        now_ns = time.time_ns() if self._live else self._latest_ns
        return metrics_data(self._metrics, self._resource, self._start_ns, now_ns)

    def line(self) -> str:
        """What became of the exchanges."""
        without = (
            f", {self.without:,} exchange{'' if self.without == 1 else 's'} without a span" if self.without else ""
        )
        return self.delivery.line() + without


@contextlib.contextmanager
def sending(
    exporter: Exporter, say: Callable[[str], None], metrics: Metrics, *, payload: bool, live: bool
) -> Iterator[SpanObserver]:
    """Send spans, and `metrics` now and then, within the block."""
    made = SpanObserver(metrics, payload=payload, live=live)
    with Delivery(exporter, say, waits=not live, collect=made.collect) as made.delivery:
        yield made
