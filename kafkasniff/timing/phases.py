"""Splits the time of exchanges into parts. A pure function of the times of their bytes and of surrounding events.

    response before         request                     response
      … ▆│─── think ───│▆▆▆▆▆▆▆▆▆│─────────────── latency ────────────────│▆▆▆▆▆▆▆▆▆▆▆│
                        request    resent · behind · muted · held · network · wait · broker  response

The parts never overlap, and those from `request` to `response` add up to the exchange's duration. A part that cannot be
separated stays in `broker`, and `may_wait_ns` or `unknown` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self, get_args

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import version_of
from kafkasniff.kafka.apis.entities import mentions, text
from kafkasniff.kafka.connection.waits import Wait, WaitReason, answers_at_once, throttle_ns, wait_of, wait_plan
from kafkasniff.model import NO_TIME, Direction, Exchange, Message
from kafkasniff.native.columns import HAS_BATCHES, HAS_THROTTLE
from kafkasniff.native.feed import NONE, VERSIONS
from kafkasniff.native.streams import UNKNOWN
from kafkasniff.tables.rows.column_rows import asked_waits, by_code, exchange_rows
from kafkasniff.tables.rows.schemas import EXCHANGES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PARTS: Final = ("think", "request", "resent", "behind", "muted", "held", "network", "wait", "broker", "response")
"""In the order in which they occur."""


FULL: Final = 0.9
"""A fetch that took this fraction of its allowed wait was waiting: timers of brokers have a resolution of a
millisecond.
"""
UNLIMITED: Final = np.iinfo(np.int64).max
_REASONS: Final[tuple[WaitReason, ...]] = get_args(WaitReason)
_DATA: Final = _REASONS.index("data")


class Marks(NamedTuple):
    """Times of the bytes of exchanges and of surrounding events, in nanoseconds since the epoch; `NO_TIME`: none."""

    request_first: Ints
    request_done: Ints
    response_first: Ints
    response_done: Ints
    before_done: Ints
    """End of the previous response on its connection."""
    quiet_since: Ints
    """End of the previous message on its connection, in either direction."""
    resent_at: Ints
    """Bytes of or before the request were lost after the capture point, and last retransmitted at this time."""
    muted_until: Ints
    """An earlier response asked the client to wait until this time (KIP-219)."""

    @property
    def duration(self) -> Ints:
        """From the first byte of the request to the last one of the response."""
        return self.response_done - self.request_first

    @property
    def latency(self) -> Ints:
        """From the last byte of the request to the first one of the response."""
        return self.response_first - self.request_done


class Waits(NamedTuple):
    """The waits that requests ask for (`waits.Wait`)."""

    reason: NDArray[np.int8]
    """Its index among the reasons, or `UNKNOWN`: none."""
    limit_ns: Ints
    """`UNLIMITED`: the request sets no limit."""
    sure: Bools

    @classmethod
    def none(cls, count: int) -> Self:
        """No waits."""
        return cls(np.full(count, UNKNOWN, np.int8), np.zeros(count, np.int64), np.zeros(count, bool))

    @classmethod
    def of(cls, waits: Sequence[Wait | None]) -> Self:
        """Those of exchanges one by one."""
        made = cls.none(len(waits))
        for index, wait in enumerate(waits):
            if wait is not None:
                made.put(index, wait.reason, UNLIMITED if wait.limit_ns is None else wait.limit_ns, wait.sure)
        return made

    def put(self, rows: Ints | int, reason: WaitReason, limit_ns: Ints | int, sure: Bools | bool) -> None:
        """Set the waits of some exchanges."""
        self.reason[rows], self.limit_ns[rows], self.sure[rows] = _REASONS.index(reason), limit_ns, sure

    def one(self, row: int) -> Wait | None:
        """The wait of one exchange."""
        if self.reason[row] == UNKNOWN:
            return None
        limit = int(self.limit_ns[row])
        return Wait(_REASONS[self.reason[row]], None if limit == UNLIMITED else limit, bool(self.sure[row]))


class TimeParts(msgspec.Struct, frozen=True, gc=False):
    """The parts of one exchange's time, in nanoseconds; None: unknown."""

    think: int | None = None
    """Nothing was in flight on the connection: the client's own time, with the path to the client and back."""
    request: int | None = None
    """From the packet with the request's first byte to the one that completed it."""
    resent: int | None = None
    """The broker did not have all of it: bytes were lost, until they were retransmitted."""
    behind: int | None = None
    """The broker was still answering earlier requests of the connection, which it processes one by one."""
    muted: int | None = None
    """The broker did not read from the connection, since an earlier response was throttled (KIP-219)."""
    held: int | None = None
    """The broker delayed the response by its throttle time, as brokers before Kafka 2.0 did."""
    network: int | None = None
    """The path from the capture point to the broker and back: the lowest value so far. 0: unknown."""
    wait: int | None = None
    """The broker waited because the request asked it to."""
    broker: int | None = None
    """The rest of the latency: the broker's queues, work, disk and replicas."""
    response: int | None = None
    """From the packet with the response's first byte to the one that completed it."""
    throttled: int = 0
    """Part of `think`: an earlier response had asked the client to wait."""
    may_wait: int = 0
    """Part of `broker`: at most this much may have been a wait that the request asked for."""
    reason: WaitReason | None = None
    """The reason of `wait` or `may_wait`."""


class PartColumns(NamedTuple):
    """`TimeParts` of exchanges; `UNKNOWN`: unknown."""

    think: Ints
    request: Ints
    resent: Ints
    behind: Ints
    muted: Ints
    held: Ints
    network: Ints
    wait: Ints
    broker: Ints
    response: Ints
    throttled: Ints
    may_wait: Ints

    def one(self, row: int, wait: Wait | None) -> TimeParts:
        """The parts of one exchange, which asked for `wait`."""
        values = {name: int(column[row]) for name, column in self._asdict().items()}
        parts: dict[str, Any] = {name: None if value == UNKNOWN else value for name, value in values.items()}
        return TimeParts(**parts, reason=wait.reason if parts["broker"] is not None and wait is not None else None)


def split(
    marks: Marks, *, network: Ints, waits: Waits, throttle_ns: Ints, at_once: Bools, timed: Bools | None = None
) -> PartColumns:
    """Split the time into parts.

    `network`: round trip from the capture point to the broker, or `UNKNOWN`; `throttle_ns`: of this response;
    `at_once`: a broker of this version responds immediately when it throttles; `timed`: exchanges whose four times are
    known, by default all. Times that go backwards, as with clocks of several captures, leave everything between request
    and response unsplit.
    """
    first, done, response_first, response_done, before_done, quiet, resent_at, muted_until = marks
    known = (quiet != NO_TIME) & (quiet <= first)
    throttled = np.where(known & (muted_until != NO_TIME), np.maximum(np.minimum(muted_until, first) - quiet, 0), 0)
    think = np.where(known, first - quiet, UNKNOWN)
    sent, received, latency = done - first, response_done - response_first, marks.latency
    whole = (sent >= 0) & (received >= 0) & (latency >= 0)
    if timed is not None:
        whole &= timed
        think, throttled = np.where(timed, think, UNKNOWN), np.where(timed, throttled, 0)
    left = np.where(whole, latency, 0)
    end = done + left

    def until(time: Ints) -> Ints:
        """How long it takes from where the parts have come to a time, within the latency."""
        return np.where(time == NO_TIME, 0, np.maximum(np.minimum(time, end) - (end - left), 0))

    resent = until(resent_at)
    left = left - resent
    behind = until(before_done)
    left = left - behind
    muted = until(muted_until)
    left = left - muted
    # A response that came sooner than its throttle time was not delayed by it.
    held = np.where(~at_once & (left >= throttle_ns), throttle_ns, 0)
    left = left - held
    path = np.minimum(np.maximum(network, 0), left)
    left = left - path
    asked = np.where(waits.reason == UNKNOWN, 0, np.minimum(waits.limit_ns, left))
    # A fetch that returned early and without the expected data was ended by something else, or never waited.
    early = (waits.reason == _DATA) & (waits.limit_ns != UNLIMITED) & (asked < FULL * waits.limit_ns)
    waited = np.where(waits.sure & ~early, asked, 0)
    parts = (sent, resent, behind, muted, held, path, waited, left - waited, received)
    known_parts = (np.where(whole, part, UNKNOWN) for part in parts)
    return PartColumns._make((think, *known_parts, throttled, np.where(whole, asked - waited, 0)))


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


def of_emitted(emitted: Sequence[EmittedExchange], schema: pa.Schema) -> SeenExchanges:
    """Exchanges that were emitted one by one; `schema`: that of their subjects."""
    exchanges, times, waits, throttle, at_once, topics = zip(*emitted, strict=True)
    columns = zip(*map(_subjects, exchanges, topics), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SUBJECTS, strict=True)]
    return SeenExchanges(
        pa.RecordBatch.from_arrays(arrays, schema=SUBJECTS).select(schema.names),
        lambda row: exchanges[row],
        np.array([exchange.exchange for exchange in exchanges], np.int64),
        np.array([exchange.connection for exchange in exchanges], np.int64),
        np.array([exchange.exchange_id for exchange in exchanges], np.int64),
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
        fetched = sum(fact.bytes or 0 for fact in facts)
    return wait_of(request.api_key, request.body, response.body, fetched, len(response.errors))


# -- exchanges that are columns ---------------------------------------------------------------------------------------


def of_columns(pair_columns: PairColumns, schema: pa.Schema) -> SeenExchanges:
    """Exchanges that are columns; `schema`: that of their subjects."""
    asked, answered, owners = pair_columns.asked, pair_columns.answered, pair_columns.owners
    connections = np.array([0 if owner is None else owner.number for owner in owners], np.int64)
    done = asked["time"]
    return SeenExchanges(
        exchange_rows(pair_columns, schema=schema),
        lambda row: _exchange(pair_columns, row),
        asked["number"],
        connections[asked["connection"]],
        asked["ordinal"],
        (
            answered["time"] - answered["duration"],
            done,
            done + answered["latency"],
            answered["time"],
        ),
        _waits(pair_columns),
        _throttle_ns(pair_columns.facts.columns.rows),
        by_code(pair_columns, lambda code: answers_at_once(*divmod(code, VERSIONS)), bool),
    )


def _throttle_ns(rows: NDArray[np.void]) -> Ints:
    has = rows["has"] & HAS_THROTTLE > 0
    return np.maximum(np.where(has, rows["throttle"], 0).astype(np.int64), 0) * 1_000_000


def _waits(pair_columns: PairColumns) -> Waits:
    facts = pair_columns.facts.columns
    rows = facts.rows
    waits = Waits.none(len(rows))
    right, unthrottled = rows["codes"] == 0, (rows["has"] & HAS_THROTTLE == 0) | (rows["throttle"] == 0)
    for plan, own, values, limit, waiting in asked_waits(pair_columns, pair_columns.facts):
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


def _exchange(pair_columns: PairColumns, row: int) -> Exchange:
    """One of the columns as an exchange, without bodies."""
    asked, answered = pair_columns.asked[row], pair_columns.answered[row]
    owner, version = pair_columns.owners[asked["connection"]], version_of(int(asked["code"]))
    assert owner is not None
    number, client_id = int(asked["number"]), int(pair_columns.client_id[row])

    def message(kind: Direction, one: np.void) -> Message:
        return Message(
            kind,
            int(one["size"]),
            correlation_id=int(asked["correlation"]),
            api_key=version.key,
            api=version.api,
            api_version=version.version,
            client_id=None if client_id == NONE else pair_columns.names[client_id],
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
