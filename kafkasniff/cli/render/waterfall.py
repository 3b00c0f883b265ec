"""The time of one exchange as a waterfall, and as an object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kafkasniff.text.printable import COLOUR, PLAIN, Paint, printable, word, wrapped
from kafkasniff.text.times import clock_time, duration, rfc3339
from kafkasniff.timing import PARTS, ExchangeNetwork, Timed, Trouble
from kafkasniff.timing.exchanges import Unknown, unknown_of

MIN_BAR: Final = 12
MAX_BAR: Final = 48
"""Width of the bars."""
TEXT: Final = 62
"""Width of the text beside the bars."""

_SAID: Final = {
    "think": "client: no request was outstanding on the connection",
    "request": "request, first to last byte",
    "resent": "lost: until it was retransmitted",
    "behind": "queued: the broker answered earlier requests",
    "muted": "muted: the broker does not read (throttled before)",
    "held": "held back for the throttle time",
    "network": "network: to the broker and back, at least",
    "wait": "requested wait",
    "broker": "broker",
    "response": "response, first to last byte",
}
_SHORT: Final = {
    "request": "the request's bytes",
    "resent": "loss until retransmission",
    "behind": "queued after earlier requests",
    "muted": "muted by a throttle",
    "held": "held back by a throttle",
    "network": "the network",
    "wait": "a requested wait",
    "broker": "the broker",
    "response": "the response's bytes",
}
_REASONS: Final = {
    "data": "for data",
    "members": "for the group's other members",
    "leader": "for the group's leader",
    "replicas": "for the in-sync replicas",
    "operation": "for the cluster to finish",
}
_UNKNOWN: Final[dict[Unknown, str]] = {
    "response": "there is no response, or a time is missing: no breakdown",
    "round-trip": "the round trip to the broker, which is included in the broker's time",
    "delayed-acks": "the round trip to the broker is known only from acknowledgements, which may be delayed",
    "beyond-least": "if this round trip took longer than the minimum, the difference is in the broker's time",
    "vantage": "where this was captured: the handshake is missing",
    "client-side": "the time between client and capture point: the client waited that much longer",
    "wait": "how much of the broker's time was a requested wait",
}
_NEAR: Final = {
    "client": "near the client",
    "broker": "near the broker",
    "between": "between client and broker",
    "anywhere": "with both ends nearby",
}


def who(timed: Timed) -> str:
    """`Produce v9 of rdkafka`."""
    exchange = timed.exchange
    seen = exchange.request or exchange.response
    if seen is None or seen.api is None:
        return "a response without its request" if exchange.request is None else "a request of an unknown API"
    client = "" if seen.client_id is None else f" of {word(seen.client_id)}"
    return f"{seen.api} v{seen.api_version}{client}"


def _between(timed: Timed) -> dict[str, int]:
    """The non-zero parts from the request's first byte to the response's last, in order."""
    found = {name: getattr(timed.parts, name) for name in PARTS if name != "think"}
    return {name: value for name, value in found.items() if value}


def largest(timed: Timed) -> str:
    """The longest part, except for a requested wait."""
    parts = {name: value for name, value in _between(timed).items() if name != "wait"}
    if not parts:
        return ""
    name = max(parts, key=lambda one: parts[one])
    maybe = ""
    if name == "broker" and timed.parts.may_wait and timed.parts.reason is not None:
        maybe = f", perhaps waiting {_REASONS[timed.parts.reason]}"
    return f"{_SHORT[name]} {duration(parts[name])}{maybe}"


def waterfall(timed: Timed, width: int, *, coloured: bool) -> str:
    """Lines: the exchange, its parts in chronological order, its network, and what is unknown."""
    paint = COLOUR if coloured else PLAIN
    return "".join(f"{part}\n" for line in _lines(timed, width, paint) for part in wrapped(line, width, 4))


def _lines(timed: Timed, width: int, paint: Paint) -> Iterator[str]:
    exchange, marks, parts = timed.exchange, timed.marks, timed.parts
    seen = exchange.request or exchange.response
    number = f"#{exchange.exchange}"
    yield f"{paint.api}{number}{paint.reset}  {who(timed)}, conn {exchange.connection}"
    if seen is not None:
        broker = "" if exchange.broker_id is None else f" (broker {exchange.broker_id})"
        ends = f"{printable(str(seen.client))} to {printable(str(seen.broker))}{broker}"
        yield f"{ends}, corr {seen.correlation_id}"
    if marks is None:
        at = "" if seen is None or seen.time_ns is None else f"{clock_time(seen.time_ns)}  "
        yield f"{at}{exchange.status}"
    else:
        whole = marks.response_done - marks.request_first
        began = clock_time(marks.request_first)
        yield f"{began}  {duration(whole)} from first byte of request to last byte of response"
        yield ""
        if parts.think is not None:
            throttled = f", {duration(parts.throttled)} of it throttled" if parts.throttled else ""
            yield f"  {duration(parts.think):>8}  before   {_SAID['think']}{throttled}"
        columns = min(max(width - TEXT, MIN_BAR), MAX_BAR)
        passed = 0
        for name, value in _between(timed).items():
            bar = _bar(passed, value, whole, columns)
            yield f"  {duration(value):>8}  {paint.dim}{bar}{paint.reset}  {_meaning(name, timed)}"
            passed += value
        if not _between(timed):
            yield "  no breakdown: times go backwards here"
    yield ""
    yield from _network(timed)
    unknown = unknown_of(timed)
    if unknown:
        yield "unknown:"
        yield from (f"  {_UNKNOWN[one]}" for one in unknown)


def _bar(at: int, value: int, whole: int, columns: int) -> str:
    first = min(columns * at // whole, columns - 1)
    last = max(columns * (at + value) // whole, first + 1)
    return "·" * first + "█" * (last - first) + "·" * (columns - last)


def _meaning(name: str, timed: Timed) -> str:
    parts, exchange = timed.parts, timed.exchange
    said = _SAID[name]
    if name == "request" and exchange.request is not None:
        return f"{said}, {exchange.request.size + 4:,} bytes"
    if name == "response" and exchange.response is not None:
        return f"{said}, {exchange.response.size + 4:,} bytes"
    if name == "wait" and parts.reason is not None:
        limit = None if timed.wait is None else timed.wait.limit_ns
        most = "" if limit is None else f" (at most {duration(limit)})"
        return f"{said}, {_REASONS[parts.reason]}{most}"
    if name == "broker" and parts.may_wait and parts.reason is not None:
        return f"{said}; up to {duration(parts.may_wait)} of it perhaps waiting {_REASONS[parts.reason]}"
    return said


def _network(timed: Timed) -> Iterator[str]:
    network = timed.network
    if timed.throttle_ms:
        yield f"throttle time in the response: {timed.throttle_ms:,} ms"
    if network is None or timed.marks is None:
        return
    round_trips = [
        f"{name} {duration(value)}"
        for name, value in (("broker", network.to_broker), ("client", network.to_client))
        if value is not None
    ]
    vantage = network.vantage
    place = "" if vantage is None else f"captured {_NEAR[vantage]}"
    trips = f"minimum round trips to {', '.join(round_trips)}" if round_trips else ""
    if place or trips:
        yield "; ".join(one for one in (place, trips) if one)
    for whose, trouble in (("client", timed.client_trouble), ("broker", timed.broker_trouble)):
        yield from (f"{whose}: {one}" for one in _trouble(trouble))


def _trouble(trouble: Trouble) -> Iterator[str]:
    if trouble.again:
        yield f"{_number(trouble.again, 'segment')} retransmitted (lost after the capture point, or acknowledged late)"
    if trouble.late:
        gap = f"missing for {duration(trouble.late_ns)} in total"
        yield f"{_number(trouble.late, 'segment')} late, {gap} (lost or reordered before the capture point)"
    if trouble.closed:
        times = _number(trouble.closed, "time")
        yield f"zero window {times}, for {duration(trouble.closed_ns)}: it accepted no more data"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def exchange_object(timed: Timed) -> dict[str, Any]:
    """The exchange for JSON (docs/timing.md); durations in microseconds, null if unknown."""
    exchange, marks, parts = timed.exchange, timed.marks, timed.parts
    seen = exchange.request or exchange.response
    durations = {f"{name}_us": _microseconds(getattr(parts, name)) for name in (*PARTS, "throttled", "may_wait")}
    wire: dict[str, Any] = (
        {}
        if seen is None
        else {
            "client": str(seen.client),
            "broker": str(seen.broker),
            "client_id": seen.client_id if not isinstance(seen.client_id, bytes) else printable(seen.client_id),
            "api_key": seen.api_key,
            "api": seen.api,
            "api_version": seen.api_version,
            "correlation_id": seen.correlation_id,
        }
    )
    first = marks.request_first if marks is not None else None if seen is None else seen.time_ns
    return {
        "exchange": exchange.exchange,
        "connection": exchange.connection,
        "time": rfc3339(first),
        **wire,
        "broker_id": exchange.broker_id,
        "status": exchange.status,
        "duration_us": None if marks is None else _microseconds(marks.duration),
        "latency_us": None if marks is None else _microseconds(marks.latency),
        "parts": durations,
        "waits_for": parts.reason,
        "throttle_time_ms": timed.throttle_ms,
        "captured": None if marks is None else _captured(timed.network),
        "client_trouble": _trouble_object(timed.client_trouble),
        "broker_trouble": _trouble_object(timed.broker_trouble),
        "unknown": list(unknown_of(timed)),
    }


def _captured(network: ExchangeNetwork | None) -> dict[str, Any] | None:
    if network is None:
        return None
    return {
        "near": network.vantage,
        "broker_round_trip_us": _microseconds(network.to_broker),
        "client_round_trip_us": _microseconds(network.to_client),
    }


def _trouble_object(trouble: Trouble) -> dict[str, int]:
    return {
        "again": trouble.again,
        "late": trouble.late,
        "late_us": trouble.late_ns // 1000,
        "closed": trouble.closed,
        "closed_us": trouble.closed_ns // 1000,
    }


def _microseconds(nanoseconds: int | None) -> int | None:
    return None if nanoseconds is None else nanoseconds // 1000
