"""Rows of a snapshot, from counts and from events."""

from __future__ import annotations

from typing import Final

from kafkasniff.live.counts import Counts
from kafkasniff.live.snapshot import LiveRow, Recent, Waiting
from kafkasniff.model import Exchange, Message

__all__ = ["QUANTILES", "api_name", "live_row", "recent_row", "waiting_row"]

QUANTILES: Final = (0.5, 0.99)
"""Shares of the latencies that a row shows."""


def api_name(message: Message) -> str:
    """Name of the message's API; `key 999` for an unknown one, `?` for a response without its request."""
    if message.api is not None:
        return message.api
    return "?" if message.api_key is None else f"key {message.api_key}"


def live_row(
    name: str | bytes | None,
    now: Counts,
    total: Counts,
    seconds: float,
    quantiles: list[int] | None,
    *,
    client: str = "",
) -> LiveRow:
    """A row from counts of the window, which lasts `seconds`, and those since the start.

    `quantiles`: the latencies at `QUANTILES`, in microseconds; `client`: its address.
    """
    measured = now.measured
    return LiveRow(
        name,
        client,
        requests=now.requests / seconds,
        errors=now.errors / seconds,
        sent=now.sent / seconds,
        received=now.received / seconds,
        produced=now.produced / seconds,
        fetched=now.fetched / seconds,
        mean=round(now.latency_sum / measured) if measured else None,
        slowest=now.latency_max if measured else None,
        # Middles of buckets, which may exceed the greatest value.
        p50=min(quantiles[0], now.latency_max) if quantiles else None,
        p99=min(quantiles[1], now.latency_max) if quantiles else None,
        total=total.requests,
        total_errors=total.errors,
        total_sent=total.sent,
        total_received=total.received,
    )


def recent_row(exchange: Exchange) -> Recent:
    """The kept part of an exchange: no bodies, which may be large. Hot."""
    request, response = exchange.request, exchange.response
    known = request or response
    errors = response.errors if response is not None else ()
    return Recent(
        exchange.exchange,
        None if known is None else known.time_ns,
        "?" if known is None else api_name(known),
        None if known is None else known.api_version,
        None if known is None else known.correlation_id,
        exchange.status,
        exchange.latency_ns,
        0 if request is None else request.size + 4,
        0 if response is None else response.size + 4,
        (errors[0].name or f"error {errors[0].code}") if errors else "",
    )


def waiting_row(message: Message, now_ns: int) -> Waiting:
    """A request that has no response at this time."""
    return Waiting(
        message.exchange,
        now_ns - (message.time_ns or 0),
        api_name(message),
        message.api_version,
        message.correlation_id,
        message.client_id,
        str(message.client or ""),
        str(message.broker or ""),
        message.connection,
    )
