"""The contents of the view at one moment: plain values, so another thread can draw them during the run.

Names are as on the wire; the screen makes them safe to print. Rates are per second of the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.live.traffic import TREND_SLOTS, Counts, Load, TopicTraffic
from kafkasniff.model import Exchange, Message


class Breadcrumb(msgspec.Struct, frozen=True):
    """A step from the whole to a part of it: what a row of the view stands for."""

    kind: str
    """API, error, client, broker, topic, group, connection, finding or problem."""
    value: Any
    """Identifies it; hashable. For findings and problems: the connections that show it."""
    label: str
    """Its name; not safe to print."""
    about: tuple[str, ...] = ()
    """Paragraphs that explain it; safe to print."""


class Trend(NamedTuple):
    """What happened in each of the last `TREND_SLOTS` seconds, the current one last."""

    requests: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    latency: tuple[int, ...] = ()
    """Mean in microseconds; 0 if unknown."""


NO_TREND: Final = Trend()


class LiveRow(msgspec.Struct, frozen=True):
    """An API, a client, a topic or a connection; rates over the window, sums since the start."""

    name: str | bytes | None
    """None: all entries that exceed the size of the table. For a connection its client id."""
    client: str = ""
    """Address of a client; `address:port` of a connection's client."""
    broker: str = ""
    """`address:port`, for a connection."""
    connection: int | None = None
    software: str | bytes | None = None
    open: bool = True
    requests: float = 0.0
    """For a topic: messages that carry its records."""
    errors: float = 0.0
    sent: float = 0.0
    """Bytes by clients. For a topic: bytes of batches."""
    received: float = 0.0
    produced: float = 0.0
    """Records."""
    fetched: float = 0.0
    mean: int | None = None
    """Latency in microseconds."""
    slowest: int | None = None
    p50: int | None = None
    """Only for APIs and the total."""
    p99: int | None = None
    wait: int | None = None
    """Mean time of long polls in microseconds."""
    total: int = 0
    """Requests since the start."""
    total_errors: int = 0
    total_sent: int = 0
    total_received: int = 0
    trend: Trend = NO_TREND


class ErrorRow(msgspec.Struct, frozen=True):
    """An error of an API, since the start."""

    api: str
    error: str
    """Its name."""
    responses: int
    """Responses with this error, each counted once."""
    share: float
    """As a share of the API's responses."""


class LagRow(msgspec.Struct, frozen=True):
    """A partition of a group."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    """Its last known end."""
    lag: int
    """Records from the one to the other."""
    trend: tuple[int, ...] = ()
    """The lag in earlier seconds, the latest last."""


class Waiting(msgspec.Struct, frozen=True):
    """A request without a response so far."""

    exchange: int | None
    age_ns: int
    api: str
    api_version: int | None
    correlation_id: int | None
    client_id: str | bytes | None
    client: str
    broker: str
    connection: int | None


class Recent(msgspec.Struct, frozen=True):
    """A completed exchange, without bodies, which may be large."""

    exchange: int
    time_ns: int | None
    api: str
    api_version: int | None
    correlation_id: int | None
    status: str
    latency_ns: int | None
    sent: int
    received: int
    errors: tuple[str, ...]
    """Names of its errors."""
    connection: int
    client_id: str | bytes | None
    client: str
    """`address:port`"""
    broker: str
    topics: tuple[TopicTraffic, ...]
    """Topics of its records."""
    group: str
    """The group that it names, or else that of its client; empty if unknown."""


class ConnectionDetail(msgspec.Struct, frozen=True):
    """One connection."""

    row: LiveRow
    begun_ns: int | None
    """Time of its first captured message."""
    last_ns: int | None
    apis: tuple[LiveRow, ...]
    recent: tuple[Recent, ...]
    """Latest first."""
    waiting: tuple[Waiting, ...]
    processes: tuple[str, str] = ("", "")
    """Name and process id at client and broker, if they are on this machine and known."""


class FindingRow(msgspec.Struct, frozen=True):
    """A finding of a detector. Its sentences are safe to print."""

    severity: str
    title: str
    meaning: str
    advice: str
    detector: str
    about: str
    """Distinguishes it from others of the detector; not shown."""
    count: int
    """Number of exchanges or connections that showed it."""
    connections: tuple[int, ...] = ()
    """Some that show it."""

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """What it means and what to do; for a problem, further details."""
        rest = self.advice if self.severity == PROBLEM else f"Try: {self.advice}"
        return tuple(filter(None, (self.meaning, rest)))


class Findings(msgspec.Struct, frozen=True):
    """The findings of detectors so far."""

    counts: dict[str, int] = {}
    """By severity, the worst first."""
    rows: tuple[FindingRow, ...] = ()
    """Worst first; if there are too many, the worst."""
    remarks: tuple[str, ...] = ()
    """Caveats: what is unknown, and what memory bounds have dropped; safe to print."""
    paused: str = ""
    """Why nothing is examined now; empty if it is."""
    restarts: int = 0
    """How often detectors started over."""


class Snapshot(msgspec.Struct, frozen=True):
    """The whole snapshot."""

    source: str = ""
    """The name of the captured interface or input."""
    seconds: float = 0.0
    """Since the start, on the packet clock."""
    now_ns: int | None = None
    all: LiveRow = LiveRow("all")
    packets: int = 0
    """Captured since the start, of any kind."""
    exchanges: tuple[Recent, ...] = ()
    """The latest ones, the last at the end."""
    drops: int = 0
    """Packets that the kernel dropped since the start."""
    drops_now: float = 0.0
    """The same per second of the window."""
    problems: int = 0
    problem_rows: tuple[FindingRow, ...] = ()
    """By kind; their severity is "problem"."""
    connections_open: int = 0
    """Kafka connections."""
    connections: int = 0
    """Kafka connections since the start."""
    without_response: int = 0
    """Exchanges that ended without a response that should be there."""
    outstanding: int = 0
    overdue: int = 0
    """Requests that have waited longer than the threshold."""
    threshold_ns: int = 0
    apis: tuple[LiveRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    clients: tuple[LiveRow, ...] = ()
    topics: tuple[LiveRow, ...] = ()
    connections_seen: tuple[LiveRow, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The longest overdue requests, longest first."""
    detail: ConnectionDetail | None = None
    findings: Findings | None = None
    """None: detectors are not active."""
    brokers: tuple[LiveRow, ...] = ()
    lags: tuple[LagRow, ...] = ()


PROBLEM: Final = "problem"
"""Severity of the rows of problems."""
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
    trend: Trend = NO_TREND,
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
        wait=round(now.poll_sum / now.polls) if now.polls else None,
        trend=trend,
    )


def trend_of(loads: Iterable[tuple[int, Load]]) -> Trend:
    """The trend of what happened in each slot, by its place (`Entry.loads`)."""
    requests, errors, measured, time = ([0] * TREND_SLOTS for _ in range(4))
    for at, (more, failed, known, spent) in loads:
        requests[at] += more
        errors[at] += failed
        measured[at] += known
        time[at] += spent
    latency = (spent // known if known else 0 for spent, known in zip(time, measured, strict=True))
    return Trend(tuple(requests), tuple(errors), tuple(latency))


def recent_row(
    exchange: Exchange, api: str, ends: tuple[str, str], topics: tuple[TopicTraffic, ...], group: str
) -> Recent:
    """The kept part of an exchange, with the name of its API, its client and broker, and what it names. Hot."""
    request, response = exchange.request, exchange.response
    known = request or response
    errors = response.errors if response is not None else ()
    return Recent(
        exchange.exchange,
        None if known is None else known.time_ns,
        api,
        None if known is None else known.api_version,
        None if known is None else known.correlation_id,
        exchange.status,
        exchange.latency_ns,
        0 if request is None else request.size + 4,
        0 if response is None else response.size + 4,
        tuple(dict.fromkeys(error.name or f"error {error.code}" for error in errors)) if errors else (),
        exchange.connection,
        None if known is None else known.client_id,
        *ends,
        topics,
        group,
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
