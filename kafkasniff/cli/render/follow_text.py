"""The way of a record as a timeline: producer, broker, consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkasniff.text.printable import COLOUR, PLAIN, Paint, cut, display_width, printable, word, wrapped
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    from kafkasniff.analysis.follow import Consumer, RecordWay, WaysFound, WayStep
    from kafkasniff.enrich.hosts import Hosts
    from kafkasniff.redact.payload import Payload

MAX_WIDTH: Final = 120
"""Longer lines are hard to read."""
MAX_REPEATED: Final = 3
"""Redeliveries to a consumer that are shown, the first; JSON has all."""
MAX_CONSUMERS: Final = 20
"""Notes on consumers; JSON has all."""
KEY_WIDTH: Final = 40
NAME_WIDTH: Final = 32
_TIME: Final = 9
"""Width of a time: `+55.1 ms`."""
_NOTHING: Final = "│     │     │"
_HEAD: Final = "P     B     C  producer, broker, consumers"
FULL_HEAD: Final = 66
"""Columns from which the heading explains its letters."""
MIN_ROOM: Final = 20
"""Columns of text beside the lanes."""
_LANES: Final = {
    "produced": "●────▶│     │",
    "acknowledged": "│◀────●     │",
    "refused": "│◀────✗     │",
    "replicated": "│     ◆     │",
    "delivered": "│     ●────▶│",
    "redelivered": "│     ●────▶│",
    "transaction-committed": "●────▶│     │",
    "transaction-aborted": "●────▶│     │",
}
_SETTLED_LANE: Final = "│     │◀────●"
_ACKS: Final = {1: "acks leader", -1: "acks all"}
_NO_RESPONSE: Final = {
    "no_response": "acks 0: not acknowledged",
    "unanswered": "no response: the connection ended",
    "open": "no response by the end",
    "lost": "the response was not captured",
}
_UNKNOWN: Final = {
    "producer": "the Produce request is not in the capture",
    "offset": "offset unknown: no acknowledgement and no delivery show it",
    "delivery": "not delivered by the end of the capture",
    "outcome": "the end of its transaction is not in the capture; read_committed consumers wait for it",
    "bodies": "the export has no bodies: ends of transactions and acknowledgements of share groups are missing",
    "content": "payload is hidden: attempts without an acknowledgement are recognized only by their sequence",
}


def follow_text(
    followed: WaysFound,
    heading: str,
    *,
    width: int,
    coloured: bool,
    payload: Payload,
    hosts: Hosts | None = None,
    count: int,
) -> str:
    """The ways, one below the other; `heading`: what was asked, escaped; `count`: the option --count."""
    paint = COLOUR if coloured else PLAIN
    width = min(width, MAX_WIDTH)
    total = len(followed.ways) + followed.more
    lines = list(wrapped(f"{heading}: {_number(total, 'record')}", width, 2))
    for way in followed.ways:
        lines += ["", *_way(way, width, paint, payload)]
    if followed.more:
        lines += ["", f"{paint.dim}and {_number(followed.more, 'later record')} (--count N, now {count}){paint.reset}"]
    text = "".join(f"{line}\n" for line in lines)
    return text if hosts is None else hosts.shown(text)


def _way(way: RecordWay, width: int, paint: Paint, payload: Payload) -> Iterator[str]:
    place = f"{word(way.topic)}-{way.partition}{'' if way.offset is None else f'@{way.offset}'}"
    about = [_key(way, payload)]
    if way.value_bytes is not None:
        about.append(f"value {way.value_bytes:,} B")
    if way.control is not None:
        about = [f"control record {way.control}"]
    if way.transactional:
        end = "" if way.marker_offset is None else f" (marker at offset {way.marker_offset})"
        about.append("in a transaction" if way.outcome is None else f"transaction {way.outcome}{end}")
    yield from wrapped(f"{paint.api}{place}{paint.reset}  {', '.join(one for one in about if one)}", width, 2)
    times = [step.time for step in way.steps if step.time is not None]
    began = min(times, default=None)
    if way.steps:
        if began is not None:
            yield f"{paint.dim}  {date_of(began * 1000)} {clock_time(began * 1000)} UTC{paint.reset}"
        head = _HEAD if width >= FULL_HEAD else _HEAD[: len(_NOTHING)]
        yield f"{paint.dim}  {'time':>{_TIME}}{'delay':>{_TIME}}  {head}{paint.reset}"
    repeated: dict[tuple[str | None, ...], int] = {}
    for step in way.steps:
        if step.kind == "redelivered":
            who = _consumer_key(step)
            repeated[who] = repeated.get(who, 0) + 1
            if repeated[who] > MAX_REPEATED:
                continue
        yield from _step(step, way, began, width, paint)
    for line in _notes(way, repeated):
        yield from (f"  {part}" for part in wrapped(line, width - 2, 2))


def _step(step: WayStep, way: RecordWay, began: int | None, width: int, paint: Paint) -> Iterator[str]:
    since = "" if step.time is None or began is None else f"+{_length(step.time - began)}"
    delay = "" if step.delay_us is None else _length(step.delay_us)
    lane = _LANES.get(step.kind, _SETTLED_LANE)
    colour = {"refused": paint.error, "acknowledged": paint.response, "produced": paint.request}.get(step.kind, "")
    room = max(width - 2 * _TIME - len(_NOTHING) - 6, MIN_ROOM)
    parts, place = list(wrapped(_said(step, way), room, 2)), _place(step)
    if display_width(parts[-1]) + 2 + len(place) <= room:
        parts[-1] += f"  {paint.dim}{place}{paint.reset}"
    else:
        parts.append(f"  {paint.dim}{place}{paint.reset}")
    yield f"  {since:>{_TIME}}{delay:>{_TIME}}  {colour}{lane}{paint.reset if colour else ''}  {parts[0]}"
    for part in parts[1:]:
        yield f"  {'':{2 * _TIME}}  {paint.dim}{_NOTHING}{paint.reset}  {part}"


def _length(microseconds: int) -> str:
    return duration(microseconds * 1000) if microseconds else "0"


def _said(step: WayStep, way: RecordWay) -> str:
    match step.kind:
        case "produced":
            again = f" (attempt {step.attempt})" if step.attempt != 1 else ""
            parts = [f"produced by {_client(step)}{again}"]
            lost = _NO_RESPONSE.get(step.status or "")
            if step.acks:
                parts.append(_ACKS.get(step.acks, f"acks {step.acks}"))
            if lost is not None:
                parts.append(lost)
            if way.offset is not None and step.matched != "offset" and step.status != "answered":
                parts.append(f"recognized by its {step.matched}")
            return ", ".join(parts)
        case "acknowledged":
            at = "without an offset" if step.offset is None else f"offset {step.offset}"
            return f"acknowledged by {_broker(step)}: {at}"
        case "refused":
            return f"refused by {_broker(step)}: {word(step.error)}"
        case "replicated":
            return f"replicated by {_client(step)}"
        case "delivered" | "redelivered":
            again = " again" if step.kind == "redelivered" else ""
            count = f", delivery {step.deliveries}" if step.deliveries is not None and step.deliveries > 1 else ""
            return f"delivered{again} to {_consumer(step)}{count}"
        case "committed":
            lost = "" if step.after is not None else ", its delivery is not in the capture"
            return f"committed by group {word(step.group_id, NAME_WIDTH)}: {step.offset}{lost}"
        case "transaction-committed" | "transaction-aborted":
            return f"transaction {step.kind.removeprefix('transaction-')} by {_client(step)}"
        case _:
            return f"{step.kind} by {_consumer(step)}"


def _client(step: WayStep) -> str:
    endpoint = _endpoint(step.client_ip, step.client_port)
    return endpoint if step.client_id is None else f"{word(step.client_id, NAME_WIDTH)} at {endpoint}"


def _broker(step: WayStep) -> str:
    return _endpoint(step.broker_ip, step.broker_port) if step.broker_id is None else f"broker {step.broker_id}"


def _consumer(step: WayStep) -> str:
    return _client(step) if step.group_id is None else f"group {word(step.group_id, NAME_WIDTH)}: {_client(step)}"


def _consumer_key(step: WayStep) -> tuple[str | None, ...]:
    return (step.group_id,) if step.group_id is not None else (None, step.client_id, step.client_ip)


def _endpoint(address: str | None, port: int | None) -> str:
    shown = printable(address or "?")
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def _place(step: WayStep) -> str:
    if step.exchange is not None:
        return f"#{step.exchange} conn {step.connection}"
    return f"{step.connection_id}/{step.exchange_id}"


def _key(way: RecordWay, payload: Payload) -> str:
    if way.key is None:
        return "" if "content" in way.unknown else "no key"
    if payload.hides:
        hidden = payload.stand_in(way.key)
        return f"key {hidden.get('hash', '')} ({hidden['length']:,} B)".replace("  ", " ")
    key = way.key if way.key_decoded is None else way.key_decoded.removeprefix('"').removesuffix('"')
    return f"key {cut(word(key, KEY_WIDTH), KEY_WIDTH * 2)}"


def _notes(way: RecordWay, repeated: dict[tuple[str | None, ...], int]) -> Iterator[str]:
    for who, count in repeated.items():
        if count > MAX_REPEATED:
            yield f"{_name(*who)}: {_number(count - MAX_REPEATED, 'more delivery', 'more deliveries')}"
    if way.outcome == "aborted":
        yield "aborted: read_committed consumers skip it"
    yield from (_UNKNOWN[one] for one in way.unknown if one in _UNKNOWN)
    notes = [note for consumer in way.consumers if (note := _note(consumer))]
    yield from notes[:MAX_CONSUMERS]
    if len(notes) > MAX_CONSUMERS:
        yield f"and {len(notes) - MAX_CONSUMERS:,} more consumers (--format json)"


def _name(group_id: str | None, client_id: str | None = None, client_ip: str | None = None) -> str:
    if group_id is not None:
        return f"group {word(group_id, NAME_WIDTH)}"
    return f"{'a client' if client_id is None else word(client_id, NAME_WIDTH)} ({printable(client_ip or '?')})"


def _note(consumer: Consumer) -> str:
    name = _name(consumer.group_id, consumer.client_id, consumer.client_ip)
    match consumer.state:
        case "delivered" if consumer.group_id is not None:
            return f"{name}: no commit beyond it in the capture"
        case "not-delivered":
            return f"{name}: not delivered by the end, it fetches from offset {consumer.position}"
        case "began-after":
            return f"{name}: fetches only later offsets, at the end {consumer.position}"
        case "passed-over":
            return f"{name}: fetches on both sides of it, but no response has it: compacted, deleted, or not captured"
        case _:
            return ""


def _number(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"
