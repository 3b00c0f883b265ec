"""Exchanges as columns, as far as their timing needs them: those that were emitted one by one, and those as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkasniff.engine.pair_columns import PairColumns
from kafkasniff.engine.versions import version_of
from kafkasniff.kafka.apis.entities import mentions, text
from kafkasniff.kafka.connection.waits import Wait, answers_at_once, throttle_ns, wait_of, wait_plan
from kafkasniff.model import NO_TIME, Direction, Exchange, Message
from kafkasniff.native.exchanges import HAS_BATCHES, HAS_THROTTLE
from kafkasniff.native.feed import NONE, VERSIONS
from kafkasniff.tables.rows.column_rows import asked_waits, by_code, exchange_rows
from kafkasniff.tables.rows.schemas import EXCHANGES
from kafkasniff.timing.phases import UNLIMITED, Bools, Ints, Waits

__all__ = ["SUBJECTS", "EmittedExchange", "SeenExchanges", "of_columns", "of_emitted", "seen_exchange"]

SUBJECTS: Final = pa.schema(
    [
        EXCHANGES.field(name)
        for name in (
            *("api", "api_key", "api_version", "broker_ip", "broker_port", "client_id", "client_ip", "topics"),
            *("connection_id", "retransmits"),
        )
    ]
)
"""What exchanges are grouped by, and their retransmissions; columns of the table `exchanges`."""


class SeenExchanges(NamedTuple):
    """Exchanges of one kind, in columns."""

    subjects: pa.RecordBatch
    exchange: Callable[[int], Exchange]
    """Makes one of them, without bodies."""
    numbers: Ints
    connections: Ints
    """Numbers of the connections."""
    ordinals: Ints
    times: tuple[Ints, Ints, Ints, Ints]
    """Those of `exchanges.Times`; `NO_TIME`: a message or a time is missing."""
    waits: Waits
    throttle_ns: Ints
    at_once: Bools


class EmittedExchange(NamedTuple):
    """An exchange that was emitted one by one."""

    exchange: Exchange
    times: tuple[int, int, int, int]
    wait: Wait | None
    throttle_ns: int
    at_once: bool
    topics: tuple[str, ...]


_NO_TIMES: Final = (NO_TIME, NO_TIME, NO_TIME, NO_TIME)


def seen_exchange(exchange: Exchange, *, topics: bool) -> EmittedExchange:
    """What is kept of an exchange until the end of its batch."""
    request, response = exchange.request, exchange.response
    named = tuple(mentions(request, response).topics) if topics else ()
    times = _NO_TIMES
    if request is not None and response is not None:
        latency, duration = exchange.latency_ns, exchange.duration_ns
        asked, answered = request.time_ns, response.time_ns
        if asked is not None and answered is not None and latency is not None and duration is not None:
            times = answered - duration, asked, asked + latency, answered
    kept = msgspec.structs.replace(exchange, request=_without_body(request), response=_without_body(response))
    if times is _NO_TIMES or request is None or response is None:
        return EmittedExchange(kept, _NO_TIMES, None, 0, False, named)
    at_once = answers_at_once(request.api_key, request.api_version)
    return EmittedExchange(kept, times, _wait(request, response), throttle_ns(response), at_once, named)


def _without_body(message: Message | None) -> Message | None:
    """Bodies may be large, and messages wait for the end of their batch."""
    if message is None:
        return None
    return msgspec.structs.replace(message, body=None, raw=None, session_topics=())


def of_emitted(emitted: Sequence[EmittedExchange]) -> SeenExchanges:
    """Exchanges that were emitted one by one."""
    exchanges, times, waits, throttle, at_once, topics = zip(*emitted, strict=True)
    columns = zip(*map(_subjects, exchanges, topics), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SUBJECTS, strict=True)]
    return SeenExchanges(
        pa.RecordBatch.from_arrays(arrays, schema=SUBJECTS),
        lambda row: exchanges[row],
        np.array([one.exchange for one in exchanges], np.int64),
        np.array([one.connection for one in exchanges], np.int64),
        np.array([one.exchange_id for one in exchanges], np.int64),
        tuple(np.array(times, np.int64).T),
        Waits.of(waits),
        np.array(throttle, np.int64),
        np.array(at_once, bool),
    )


def _subjects(exchange: Exchange, topics: tuple[str, ...]) -> tuple[Any, ...]:
    """A row of `SUBJECTS`."""
    seen = exchange.request or exchange.response
    if seen is None:
        return (*(None,) * 7, topics, exchange.connection_id, exchange.retransmits)
    broker, client = seen.broker, seen.client
    return (
        *(seen.api, seen.api_key, seen.api_version),
        *((None, None) if broker is None else (broker.address, broker.port)),
        text(seen.client_id),
        None if client is None else client.address,
        topics,
        exchange.connection_id,
        exchange.retransmits,
    )


def _wait(request: Message, response: Message) -> Wait | None:
    fetched = 0
    plan = wait_plan(request.api_key)
    # Beside an error they show nothing.
    if plan is not None and plan.reason == "data" and not response.errors:
        facts = mentions(request, response).partitions.values()
        fetched = sum(one.bytes or 0 for one in facts)
    return wait_of(request.api_key, request.body, response.body, fetched, len(response.errors))


# -- exchanges that are columns ---------------------------------------------------------------------------------------


def of_columns(found: PairColumns, *, topics: bool) -> SeenExchanges:
    """Exchanges that are columns; `topics`: with their names."""
    asked, answered, owners = found.asked, found.answered, found.owners
    subjects = exchange_rows(found, schema=SUBJECTS if topics else SUBJECTS.remove(SUBJECTS.get_field_index("topics")))
    if not topics:
        none = pa.nulls(len(asked), SUBJECTS.field("topics").type)
        subjects = pa.RecordBatch.from_arrays(
            [none if field.name == "topics" else subjects.column(field.name) for field in SUBJECTS], schema=SUBJECTS
        )
    connections = np.array([0 if owner is None else owner.number for owner in owners], np.int64)
    done = asked["time"]
    return SeenExchanges(
        subjects,
        lambda row: _exchange(found, row),
        asked["number"],
        connections[asked["connection"]],
        asked["ordinal"],
        (
            answered["time"] - answered["duration"],
            done,
            done + answered["latency"],
            answered["time"],
        ),
        _waits(found),
        _throttle_ns(found.facts.columns.rows),
        by_code(found, lambda code: answers_at_once(*divmod(code, VERSIONS)), bool),
    )


def _throttle_ns(rows: NDArray[np.void]) -> Ints:
    has = rows["has"] & HAS_THROTTLE > 0
    return np.maximum(np.where(has, rows["throttle"], 0).astype(np.int64), 0) * 1_000_000


def _waits(found: PairColumns) -> Waits:
    facts = found.facts.columns
    rows = facts.rows
    waits = Waits.none(len(rows))
    right, unthrottled = rows["codes"] == 0, (rows["has"] & HAS_THROTTLE == 0) | (rows["throttle"] == 0)
    for plan, own, values, limit, waiting in asked_waits(found, found.facts):
        if plan.reason is None:
            continue
        sure = np.zeros(len(own), bool)
        if plan.reason == "data":
            partitions = facts.partitions
            sizes = np.where(partitions["has"] & HAS_BATCHES, partitions["bytes"], 0)
            fetched = np.append(0, np.cumsum(sizes))
            ends = np.cumsum(rows["partitions"], dtype=np.int64)
            size = (fetched[ends] - fetched[ends - rows["partitions"]])[own]
            sure = right[own] & unthrottled[own] & (size < values.get("min_bytes", 0))
        elif plan.reason == "members":
            sure = right[own]
        limit_ns = np.where(limit > 0, limit * 1_000_000, UNLIMITED)
        waits.put(own[waiting], plan.reason, limit_ns[waiting], sure[waiting])
    return waits


def _exchange(found: PairColumns, row: int) -> Exchange:
    """One of the columns as an exchange, without bodies."""
    asked, answered = found.asked[row], found.answered[row]
    owner, version = found.owners[asked["connection"]], version_of(int(asked["code"]))
    assert owner is not None
    number, client_id = int(asked["number"]), int(found.client_id[row])

    def message(kind: Direction, one: np.void) -> Message:
        return Message(
            kind,
            int(one["size"]),
            correlation_id=int(asked["correlation"]),
            api_key=version.key,
            api=version.api,
            api_version=version.version,
            client_id=None if client_id == NONE else found.names[client_id],
            exchange=number,
            connection=owner.number,
            time_ns=int(one["time"]),
            client=owner.client,
            broker=owner.broker,
        )

    return Exchange(
        number,
        owner.number,
        "answered",
        message("request", asked),
        message("response", answered),
        int(answered["latency"]),
        int(answered["duration"]),
        connection_id=owner.identify(),
        exchange_id=int(asked["ordinal"]),
    )
