"""Spans by the conventions of OpenTelemetry, links to the spans that record headers name, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.metrics import LATENCY_BUCKETS, Metrics
from kafkasniff.model import Endpoint, ErrorCode, Exchange, Message
from kafkasniff.otlp import spans
from kafkasniff.otlp.spans import metrics_data, observer, span_of
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.samples import mixed
from tests.kafka.records_craft import Record, batch_of
from tests.otlp.receiver import attributes

TRACE, OTHER = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x80F198EE56343BA864FE8B2A57D3EFF7
SPAN = 0x00F067AA0BA902B7
RESOURCE = observer()


def w3c(trace: int, span: int = SPAN) -> tuple[str, bytes]:
    return ("traceparent", b"00-%032x-%016x-01" % (trace, span))


def exchanges(*records: bytes) -> Iterator[Exchange]:
    """Exchanges that produce these batches to `orders`, and fetch the last one."""
    talk = Conversation()
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1), kafka.api_versions_response(1))
    for number, one in enumerate(records, 2):
        talk.exchange(kafka.produce_request(number, "orders", one), kafka.produce_response(number, "orders", 0))
    number = len(records) + 2
    talk.exchange(kafka.fetch_request(number, "orders", 0), kafka.fetch_response(number, "orders", records[-1], 5))
    inspector = Inspector(records="full", exchanges=True)
    for event in (*inspector.feed(batch(talk.packets)), *inspector.close()):
        if isinstance(event, Exchange):
            yield event


def spans_of(*records: bytes, payload: bool = True) -> list[ReadableSpan]:
    made = [span_of(one, RESOURCE, payload=payload) for one in exchanges(*records)]
    return [one for one in made if one is not None]


def known(**changes: object) -> Exchange:
    request = {
        "type": "request",
        "size": 100,
        "correlation_id": 7,
        "api_key": 3,
        "api": "Metadata",
        "api_version": 9,
        "client_id": "billing",
        "time_ns": 5_000_000,
        "client": Endpoint("10.0.0.1", 50000),
        "broker": Endpoint("10.0.0.9", 9092),
    }
    response = {"type": "response", "size": 200, "time_ns": 9_000_000, **changes.pop("response", {})}  # type: ignore[dict-item]
    given = {"exchange": 1, "connection": 1, "status": "answered", "connection_id": 42, "exchange_id": 3, **changes}
    fields = {"request": Message(**request), "response": Message(**response), **given}  # type: ignore[arg-type]
    return Exchange(**fields)  # type: ignore[arg-type]


def test_a_produce_and_a_fetch() -> None:
    plain = batch_of([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])
    versions, produce, fetch = spans_of(plain)
    assert versions.name == "ApiVersions"
    assert "messaging.operation.type" not in versions.attributes
    assert (produce.name, produce.kind) == ("Produce orders", SpanKind.CLIENT)
    expected = {
        "messaging.system": "kafka",
        "messaging.operation.name": "Produce",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "messaging.client.id": "crafted",
        "network.transport": "tcp",
        "kafkasniff.status": "answered",
    }
    found = dict(produce.attributes)
    assert {name: found.get(name) for name in expected} == expected
    assert produce.status.status_code is StatusCode.UNSET
    assert (fetch.name, fetch.attributes["messaging.operation.type"]) == ("Fetch orders", "receive")
    assert fetch.attributes["messaging.batch.message_count"] == 2
    assert produce.links == fetch.links == ()
    assert len({one.context.trace_id for one in (versions, produce, fetch)}) == 3


def made(exchange: Exchange) -> ReadableSpan:
    span = span_of(exchange, RESOURCE)
    assert span is not None
    return span


def test_the_same_exchange_has_the_same_ids_in_every_run() -> None:
    first, again, other = (made(known(exchange_id=number)).context for number in (3, 3, 4))
    assert first == again
    assert first.span_id != other.span_id


def test_errors() -> None:
    codes = (ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "topics[0].error_code"), ErrorCode(3, "UNKNOWN", "x"))
    span = made(known(response={"errors": codes}))
    assert span.attributes["error.type"] == "NOT_LEADER_OR_FOLLOWER"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "topics[0].error_code: NOT_LEADER_OR_FOLLOWER and 1 more"
    unknown = made(known(response={"errors": (ErrorCode(999, None, "x"),)}))
    assert unknown.attributes["error.type"] == "999"


@pytest.mark.parametrize(
    ("status", "error"), [("unanswered", "unanswered"), ("no_response", None), ("open", None), ("lost", None)]
)
def test_exchanges_without_a_response(status: str, error: str | None) -> None:
    span = made(msgspec.structs.replace(known(), status=status, response=None))
    assert span.start_time == span.end_time == 5_000_000
    assert span.attributes.get("error.type") == error
    assert span.attributes["kafkasniff.status"] == status


def test_what_has_no_span() -> None:
    whole = known()
    assert whole.request is not None
    timeless = msgspec.structs.replace(whole.request, time_ns=None)
    for request, response in ((None, whole.response), (timeless, None)):
        one = msgspec.structs.replace(whole, status="open", request=request, response=response)
        assert span_of(one, RESOURCE) is None


def test_several_traces_are_links() -> None:
    b3 = ("b3", b"%032x-e457b5a2e4d86bd1-1" % OTHER)
    jaeger = ("uber-trace-id", b"%x:2a:0:1" % TRACE)
    records = [
        *(Record(0, 0, None, b"a", (w3c(TRACE), ("h", b"x"))), Record(1, 0, None, b"b", (b3,))),
        Record(2, 0, None, b"c", (jaeger,)),
    ]
    _, produce, _ = spans_of(batch_of(records))
    assert [(link.context.trace_id, link.context.span_id) for link in produce.links] == [
        (TRACE, SPAN),
        (OTHER, 0xE457B5A2E4D86BD1),
        (TRACE, 42),
    ]
    assert produce.parent is None
    assert produce.context.trace_id not in (TRACE, OTHER)


def test_headers_without_a_span_are_no_links() -> None:
    for header in (("x-datadog-trace-id", b"123"), ("traceparent", b"no"), ("X-B3-TraceId", b"%032x" % TRACE)):
        _, produce, _ = spans_of(batch_of([Record(0, 0, None, b"a", (header,))]))
        assert produce.links == ()


def test_names_from_the_wire_are_safe_and_bounded() -> None:
    found = known()
    assert found.request is not None
    for client_id, shown in ((b"\xff\x1b[2J", "\\xff\\x1b[2J"), ("x" * 1000, "x" * spans.MAX_TEXT)):
        request = msgspec.structs.replace(found.request, client_id=client_id)
        assert made(msgspec.structs.replace(found, request=request)).attributes["messaging.client.id"] == shown


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
    assert found["kafkasniff.outstanding_requests"].HasField("gauge")


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
