"""Problems that events of a connection report, with their place: connection, capture, packet and time."""

from __future__ import annotations

from typing import Any

from kafkasniff.engine.connection_stats import MessageOwner, OpenExchange, endpoint
from kafkasniff.kafka.connection.events import ExchangeEvent, ProblemEvent, VerdictEvent
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Problem

__all__ = ["exchange_problem", "stream_problem", "verdict_problem"]


def stream_problem(connection: MessageOwner, event: ProblemEvent, capture: str | None) -> Problem:
    """A problem of a stream."""
    is_request = event.is_request
    direction = None if is_request is None else "request" if is_request else "response"
    return _problem(connection, event.kind, event.detail, event, capture, direction=direction, bytes=event.bytes)


def exchange_problem(
    connection: MessageOwner, exchange: OpenExchange, event: ExchangeEvent, problem: Problem, capture: str | None
) -> Problem:
    """A problem of an exchange that is over."""
    what = f"{exchange.api or 'request'} v{exchange.api_version} corr {exchange.correlation_id}"
    detail = f"#{exchange.number} {what}: {problem.detail}"
    number = exchange.number
    return _problem(connection, problem.kind, detail, event, capture, direction="request", exchange=number)


def verdict_problem(connection: MessageOwner, event: VerdictEvent, capture: str | None) -> Problem:
    """A connection that is expected to be Kafka is not."""
    ends = " and ".join(str(endpoint(end)) for end in connection.endpoints)
    what = " is not Kafka" if event.kind == "not-kafka" else ""
    return _problem(connection, event.kind, f"the connection between {ends}{what}: {event.detail}", event, capture)


def _problem(
    connection: MessageOwner,
    kind: Any,
    detail: str,
    event: ProblemEvent | ExchangeEvent | VerdictEvent,
    capture: str | None,
    **more: Any,
) -> Problem:
    """A problem at the packet of an event."""
    return Problem(
        kind,
        detail,
        connection=connection.number,
        time_ns=None if event.time_ns == NO_TIME else event.time_ns,
        capture=capture,
        packet=event.packet & PACKET_NUMBER,
        connection_id=connection.identify(),
        client=connection.client,
        broker=connection.broker,
        **more,
    )
