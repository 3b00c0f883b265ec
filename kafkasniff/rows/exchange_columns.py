"""Rows of `exchanges` and `records` that the native kernel reads, a column at a time.

They are those that `exchange_row` makes of one exchange and `RecordRows` of its messages. `ExchangeFinder` says
which exchanges these are. The others, of which there is more to report or to add, are Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection
from kafkasniff.in_step import Messages
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.errors import error_name
from kafkasniff.kafka.waits import answers_at_once
from kafkasniff.native.caller import Program
from kafkasniff.native.exchanges import (
    CODECS,
    HAS_BATCHES,
    HAS_CODE,
    HAS_CODEC,
    HAS_OFFSET,
    HAS_PRODUCER,
    HAS_RECORDS,
    HAS_THROTTLE,
    HAS_UNCOMPRESSED,
    HAS_WATERMARK,
    PAIR,
    ExchangeColumns,
    ExchangeReader,
    Strings,
)
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.library import Kernel, kernel
from kafkasniff.paired import PairColumns
from kafkasniff.rows.exchanges import capture_name
from kafkasniff.rows.native_records import Batches, NativeRecords
from kafkasniff.rows.roles import ExchangeKind, exchange_kind
from kafkasniff.rows.schemas import PARTITION
from kafkasniff.rows.staged import STAGED
from kafkasniff.streams import PACKET_SHIFT
from kafkasniff.versions import distinct, version_of

__all__ = ["ExchangeFinder", "exchange_finder", "exchange_rows", "record_rows"]

MAX_READ: Final = 16 << 10
"""Bytes of a message that is read here, at most. Most larger ones hold compressed batches, which are Python's, so that
looking at them here first costs more than it saves."""
MAX_LEARNT: Final = 4096
MAX_LEARNT_BYTES: Final = 8 << 20
"""Bodies that names were learnt from, which need not be read again."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Facts(NamedTuple):
    """What bodies say: `PairColumns.facts`."""

    columns: ExchangeColumns
    kinds: dict[int, ExchangeKind]
    """By code."""
    bodies: bool
    records: Batches | None
    """What is read of the batches of records."""


class ExchangeFinder:
    """Finds exchanges that are columns (`inspector.PairFinder`).

    `headers`: of bodies nothing is wanted; `bodies`: their JSON is; `records`: their records are.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        headers: bool = False,
        bodies: bool = False,
        records: bool = False,
        show_secrets: bool = False,
    ) -> None:
        self._kernel = kernel
        self._headers = headers
        self._bodies = bodies
        self._wants_records = records
        self._show_secrets = show_secrets
        self._options: DecodeOptions | None = None
        self._reader: ExchangeReader | None = None
        self._records: NativeRecords | None = None
        self._kinds: dict[int, ExchangeKind | None] = {}
        """By code, of which there are as many as there are versions."""
        self._programs: list[Program] = []
        self._learnt: dict[tuple[int, bytes], int] = {}
        """Bodies that Python has read, each with when it was there first."""
        self._learnt_bytes = 0

    def find(self, messages: Messages, options: DecodeOptions) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and which of all messages of whole exchanges are not among them."""
        rows = messages.rows
        reader = self._use(options)
        # Only exchanges that are emitted one by one count retransmissions.
        answer = np.flatnonzero((rows["pair"] != NONE) & (rows["flags"] & REQUEST == 0) & (rows["retransmits"] == 0))
        pairs = np.zeros(len(answer), PAIR)
        pairs["response"], pairs["request"] = answer, rows["pair"][answer]
        pairs = pairs[self._chosen(messages, pairs)]
        # Sorted rows need not be moved later.
        asked = rows[pairs["request"]]
        pairs = pairs[_order(messages, asked, asked["time"])]
        found: list[PairColumns] = []
        others = rows["pair"] != NONE
        first = 0
        while first < len(pairs):
            columns, first = reader.read(rows, messages.buffer, messages.arena, pairs, first)
            own = pairs[columns.rows["pair"].astype(np.int64)]
            records = None
            if self._wants_records:
                assert self._records is not None
                columns = _with_sorted_batches(columns, messages, own)
                records, right = self._records.read_batches(columns.batches, columns.shared, len(own))
                if not right.all():
                    columns, own = _some(columns, right), own[right]
            others[own["request"]] = others[own["response"]] = False
            if len(own):
                found.append(self._pairs(messages, own, columns, records))
        return found, others

    def _use(self, options: DecodeOptions) -> ExchangeReader:
        if self._reader is None or options is not self._options:
            self._options = options
            self._kinds.clear()
            self._programs.clear()
            self._reader = ExchangeReader(
                self._kernel,
                headers=self._headers,
                bodies=self._bodies,
                records=self._wants_records,
                show_secrets=self._show_secrets,
                most=MAX_READ,
                max_records=options.max_records,
            )
            if self._wants_records:
                self._records = NativeRecords(self._kernel, options, show_secrets=self._show_secrets)
        return self._reader

    def _chosen(self, messages: Messages, pairs: NDArray[np.void]) -> Bools:
        """Which of the pairs are of a kind that is read here."""
        if self._headers:
            return np.ones(len(pairs), bool)
        rows = messages.rows
        codes = rows["code"][pairs["request"]].astype(np.int64)
        known, learns = np.zeros((2, KEYS * VERSIONS), bool)
        for code in distinct(codes) if len(codes) else ():
            kind = self._kind(code)
            known[code] = kind is not None
            learns[code] = kind is not None and kind.learns
        chosen: Bools = known[codes]
        learning = np.flatnonzero(learns[codes])
        chosen[learning] = list(self._learnt_before(messages, pairs["response"][learning]))
        return chosen

    def _kind(self, code: int) -> ExchangeKind | None:
        if code not in self._kinds:
            kind = exchange_kind(*divmod(code, VERSIONS), show_secrets=self._show_secrets)
            self._kinds[code] = kind
            if kind is not None:
                request, response = Program(self._kernel, kind.request), Program(self._kernel, kind.response)
                self._programs += request, response
                assert self._reader is not None
                self._reader.read_by(code, request.address, response.address)
        return self._kinds[code]

    def _learnt_before(self, messages: Messages, answers: NDArray[np.uint32]) -> Iterator[bool]:
        """Whether Python has read the body of a response before, so that there is nothing in it to be learnt.

        If not, it will now. Of each fact the earliest telling stands (`enrich.tellings`).
        """
        rows = messages.rows[answers]
        columns = (rows[name].tolist() for name in ("code", "flags", "start", "body", "size", "time"))
        for code, flags, start, body_at, size, time_ns in zip(*columns, strict=True):
            body = (messages.arena if flags & ARENA else messages.buffer)[start + body_at : start + size]
            known = self._learnt.get((code, body))
            if known is not None and known <= time_ns:
                yield True
                continue
            if len(self._learnt) >= MAX_LEARNT or self._learnt_bytes + len(body) > MAX_LEARNT_BYTES:
                self._learnt.clear()
                self._learnt_bytes = 0
            self._learnt[code, body] = time_ns
            self._learnt_bytes += len(body)
            yield False

    def _pairs(
        self, messages: Messages, own: NDArray[np.void], columns: ExchangeColumns, records: Batches | None
    ) -> PairColumns:
        asked, answered = messages.rows[own["request"]], messages.rows[own["response"]]
        names = _strings(columns.names).to_pylist()
        pairs = PairColumns(messages.owners, asked, answered, names, columns.rows["client_id"].astype(np.int64))
        if self._headers:
            return pairs
        throttle = np.where(columns.rows["has"] & HAS_THROTTLE, columns.rows["throttle"].astype(np.int64), 0)
        kinds = {code: kind for code, kind in self._kinds.items() if kind is not None}
        return pairs._replace(
            facts=Facts(columns, kinds, self._bodies, records),
            throttle_ns=np.maximum(throttle, 0) * 1_000_000,
            at_once=_by_code(pairs, lambda code: answers_at_once(*divmod(code, VERSIONS)), bool),
            behind_ns=np.zeros(len(own), np.int64),
            muted_ns=np.zeros(len(own), np.int64),
        )


def exchange_finder(
    *, headers: bool = False, bodies: bool = False, records: bool = False, show_secrets: bool = False
) -> ExchangeFinder | None:
    """A finder; None where there is no kernel: then no connection is in step, and all is told one by one."""
    found = kernel()
    if found is None:
        return None
    return ExchangeFinder(found, headers=headers, bodies=bodies, records=records, show_secrets=show_secrets)


def _order(messages: Messages, asked: NDArray[np.void], time: Ints) -> Ints:
    """The order of exchanges in their table, by their requests; `time`: what they are sorted by within an API."""
    codes = distinct(asked["code"].astype(np.int64)) if len(asked) else []
    rank = np.zeros(KEYS * VERSIONS, np.int64)
    names = sorted({version_of(code).api or "" for code in codes})
    rank[codes] = [names.index(version_of(code).api or "") for code in codes]
    ids = np.array([0 if owner is None else owner.identify() for owner in messages.owners], np.int64)
    return np.lexsort((asked["ordinal"], ids[asked["connection"]], time, rank[asked["code"]]))


def _with_sorted_batches(columns: ExchangeColumns, messages: Messages, own: NDArray[np.void]) -> ExchangeColumns:
    """The same, its batches in the order of the table `records`, which costs less than to sort their records."""
    row = columns.shared["row"].astype(np.int64)
    asked, answered = messages.rows[own["request"][row]], messages.rows["time"][own["response"][row]]
    order = _order(messages, asked, np.where(columns.shared["is_request"], asked["time"], answered))
    return columns._replace(batches=columns.batches[order], shared=columns.shared[order])


def _some(columns: ExchangeColumns, right: Bools) -> ExchangeColumns:
    """The rows that are right."""
    rows = columns.rows

    def texts(strings: Strings) -> Strings:
        kept = _strings(strings).filter(pa.array(right)) if len(strings.offsets) > 1 else _strings(strings)
        # A filtered array owns its memory and begins with it.
        _, offsets, data = kept.buffers()
        return Strings(
            np.frombuffer(offsets, np.int32)[: len(kept) + 1] if offsets is not None else np.zeros(1, np.int32),
            np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8),
        )

    return columns._replace(
        rows=rows[right],
        requests=texts(columns.requests),
        responses=texts(columns.responses),
        topics=columns.topics[np.repeat(right, rows["topics"])],
        partitions=columns.partitions[np.repeat(right, rows["partitions"])],
    )


def _by_code(found: PairColumns, value: Callable[[int], Any], kind: Any) -> NDArray[Any]:
    """A value for each exchange, by the version of its API."""
    table = np.zeros(KEYS * VERSIONS, kind)
    codes = found.asked["code"]
    for code in distinct(codes.astype(np.int64)):
        table[code] = value(code)
    made: NDArray[Any] = table[codes]
    return made


def _strings(strings: Strings) -> pa.Array:
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.string(), len(strings.offsets) - 1, buffers)


def _named(names: pa.Array, index: NDArray[Any]) -> pa.Array:
    """Names by their indices, NONE: null."""
    return names.take(pa.array(index.astype(np.int64), mask=index == NONE))


def _owned(found: PairColumns, value: Callable[[InspectedConnection], Any], kind: pa.DataType) -> pa.Array:
    values = [None if owner is None else value(owner) for owner in found.owners]
    return pa.array(values, kind).take(pa.array(found.asked["connection"]))


def _numbered(numbers: NDArray[Any], value: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
    different, where = np.unique(numbers, return_inverse=True)
    return pa.array([value(one) for one in different.tolist()], kind).take(pa.array(where))


def _plain(numbers: NDArray[Any], kind: pa.DataType, mask: Bools | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(numbers), mask=mask).cast(kind, safe=False)


def _microseconds(numbers: Ints, kind: pa.DataType) -> pa.Array:
    # Floored, also below zero.
    return pa.array(numbers // 1000).cast(kind)


def exchange_rows(found: PairColumns, captures: Sequence[str]) -> pa.RecordBatch:
    """Answered exchanges as a record batch of the staged schema; `captures`: names by index."""
    schema = STAGED["exchanges"]
    asked, answered = found.asked, found.answered
    count = len(asked)
    code = asked["code"]
    names = pa.array(found.names, pa.string())
    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda kind: _numbered(asked["packet"] >> PACKET_SHIFT, _capture_of(captures), kind),
        "connection_id": lambda kind: _owned(found, InspectedConnection.identify, kind),
        "exchange_id": lambda kind: _plain(asked["ordinal"], kind),
        "time": lambda kind: _microseconds(asked["time"], kind),
        "time_ns": lambda kind: _plain(asked["time"], kind),
        "client_ip": lambda kind: _owned(found, lambda one: one.client.address if one.client else None, kind),
        "client_port": lambda kind: _owned(found, lambda one: one.client.port if one.client else None, kind),
        "broker_ip": lambda kind: _owned(found, lambda one: one.broker.address if one.broker else None, kind),
        "broker_port": lambda kind: _owned(found, lambda one: one.broker.port if one.broker else None, kind),
        "api_key": lambda kind: _plain(code // VERSIONS, kind),
        "api": lambda kind: _numbered(code, lambda one: version_of(one).request.api, kind),
        "api_version": lambda kind: _plain(code % VERSIONS, kind),
        "correlation_id": lambda kind: _plain(asked["correlation"], kind),
        "client_id": lambda _: _named(names, found.client_id),
        "software_name": lambda kind: _owned(found, lambda one: one.account and one.account.software[0], kind),
        "software_version": lambda kind: _owned(found, lambda one: one.account and one.account.software[1], kind),
        "status": lambda kind: pa.repeat(pa.scalar("answered", kind), count),
        "request_size": lambda kind: _plain(asked["size"], kind),
        "response_size": lambda kind: _plain(answered["size"], kind),
        "latency_us": lambda kind: _microseconds(answered["latency"], kind),
        "duration_us": lambda kind: _microseconds(answered["duration"], kind),
        "retransmits": lambda kind: pa.repeat(pa.scalar(0, kind), count),
        **dict.fromkeys(
            ("topics", "partitions", "problems"),
            lambda kind: _lists(np.zeros(count), pa.nulls(0, kind.value_type), kind),
        ),
    }
    if found.facts is not None:
        made |= _of_bodies(found, found.facts, names)
    arrays = [made[field.name](field.type) if field.name in made else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _capture_of(captures: Sequence[str]) -> Callable[[int], str | None]:
    return lambda one: capture_name(captures[one]) if one < len(captures) else None


def _lists(counts: NDArray[Any], values: pa.Array, kind: pa.DataType) -> pa.Array:
    borders = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(borders), values, type=kind)


def _of_bodies(found: PairColumns, facts: Facts, names: pa.Array) -> dict[str, Callable[[pa.DataType], pa.Array]]:
    """The columns that bodies tell."""
    columns = facts.columns
    rows = columns.rows
    sender, wait, reason = _waits(found, facts)
    asked, told = rows["asked_member"], rows["told_member"]
    # A member that joins for the first time says "" and is told its id.
    is_empty = pc.equal(names, "").to_numpy(zero_copy_only=False) if len(names) else np.zeros(0, bool)
    says = (asked != NONE) & ~np.append(is_empty, True)[np.minimum(asked, len(names))]
    tells = (told != NONE) & ~np.append(is_empty, True)[np.minimum(told, len(names))]
    member = np.where(says, asked, np.where(tells, told, asked))
    acks, has_acks = _value(found, facts, "acks")
    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "throttle_time_ms": lambda kind: _plain(rows["throttle"], kind, rows["has"] & HAS_THROTTLE == 0),
        "error_code": lambda kind: _plain(rows["code"], kind),
        "error": lambda kind: _errors(rows["code"], rows["codes"] == 0, kind),
        "error_count": lambda kind: _plain(rows["codes"], kind),
        "group_id": lambda _: _named(names, rows["group"]),
        "member_id": lambda _: _named(names, member),
        "transactional_id": lambda _: _named(names, rows["transaction"]),
        "acks": lambda kind: _plain(acks, kind, ~has_acks),
        "record_count": lambda kind: _plain(rows["records"], kind, rows["has"] & HAS_RECORDS == 0),
        "topics": lambda kind: _lists(rows["topics"], _named(names, columns.topics), kind),
        "partitions": lambda kind: _lists(rows["partitions"], _partitions(columns.partitions, names), kind),
        "sender": lambda kind: pa.array(sender, kind),
        "behind_us": lambda kind: _microseconds(found.behind_ns, kind),
        "muted_us": lambda kind: _microseconds(found.muted_ns, kind),
        "wait_us": lambda kind: _microseconds(wait, kind),
        "waits_for": lambda kind: pa.array(reason, kind),
    }
    if facts.bodies:
        made["request_body"] = lambda _: _strings(columns.requests)
        made["response_body"] = lambda _: _strings(columns.responses)
    return made


def _errors(codes: NDArray[Any], none: Bools, kind: pa.DataType) -> pa.Array:
    if none.all():
        return pa.nulls(len(codes), kind)
    return pc.if_else(pa.array(none), pa.scalar(None, kind), _numbered(codes, error_name, kind))


def _value(found: PairColumns, facts: Facts, name: str) -> tuple[Ints, Bools]:
    """A number of each request, and where there is one."""
    place = _by_code(
        found, lambda code: facts.kinds[code].values.index(name) if name in facts.kinds[code].values else -1, np.int64
    )
    return facts.columns.rows["values"][np.arange(len(place)), place], place >= 0


def _waits(found: PairColumns, facts: Facts) -> tuple[NDArray[Any], Ints, NDArray[Any]]:
    """What `asked_wait` tells of each exchange: the sender, nanoseconds, and what the request waited for."""
    count = len(found.asked)
    sender, reason = np.full(count, None, object), np.full(count, None, object)
    wait = np.zeros(count, np.int64)
    values = facts.columns.rows["values"]
    codes = found.asked["code"]
    for code in distinct(codes.astype(np.int64)):
        kind = facts.kinds[code]
        plan = kind.wait
        if plan is None:
            continue
        rows = np.flatnonzero(codes == code)
        own = {name: values[rows, number] for number, name in enumerate(kind.values)}
        if plan.replica_ids and plan.replica_id is not None:
            sender[rows] = np.where(own[plan.replica_id] >= 0, "replica", "client")
        if plan.reason is None:
            continue
        limit = np.zeros(len(rows), np.int64)
        for name in plan.limits:
            if name in own:
                limit = np.where((limit <= 0) & (own[name] > 0), own[name], limit)
        waits = np.ones(len(rows), bool)
        if plan.reason == "replicas":
            waits = own["acks"] == -1 if "acks" in own else np.zeros(len(rows), bool)
        elif plan.reason == "data":
            waits = (limit > 0) & (own["min_bytes"] > 0 if "min_bytes" in own else np.zeros(len(rows), bool))
        elif plan.reason == "operation":
            waits = limit > 0
        asked = found.answered["latency"][rows] - found.behind_ns[rows] - found.muted_ns[rows]
        asked = np.maximum(asked, 0)
        asked = np.where(limit > 0, np.minimum(asked, limit * 1_000_000), asked)
        wait[rows] = np.where(waits, asked, 0)
        reason[rows[waits]] = plan.reason
    return sender, wait, reason


def _partitions(facts: NDArray[np.void], names: pa.Array) -> pa.Array:
    has = facts["has"]

    def lacks(bit: int) -> Bools:
        none: Bools = has & bit == 0
        return none

    no_code = lacks(HAS_CODE)
    columns: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "topic": lambda _: _named(names, facts["topic"]),
        "topic_id": lambda kind: pa.nulls(len(facts), kind),
        "partition": lambda kind: _plain(facts["partition"], kind),
        "error_code": lambda kind: _plain(facts["code"], kind, no_code),
        "error": lambda kind: _errors(facts["code"], no_code | (facts["code"] == 0), kind),
        "offset": lambda kind: _plain(facts["offset"], kind, lacks(HAS_OFFSET)),
        "high_watermark": lambda kind: _plain(facts["watermark"], kind, lacks(HAS_WATERMARK)),
        "record_count": lambda kind: _plain(facts["records"], kind, lacks(HAS_BATCHES)),
        "batch_count": lambda kind: _plain(facts["batches"], kind, lacks(HAS_BATCHES)),
        "bytes": lambda kind: _plain(facts["bytes"], kind, lacks(HAS_BATCHES)),
        "uncompressed_bytes": lambda kind: _plain(facts["bytes"], kind, lacks(HAS_UNCOMPRESSED)),
        "compression": lambda _: pa.array(CODECS).take(pa.array(facts["codec"], mask=lacks(HAS_CODEC))),
        "producer_id": lambda kind: _plain(facts["producer_id"], kind, lacks(HAS_PRODUCER)),
        "producer_epoch": lambda kind: _plain(facts["producer_epoch"], kind, lacks(HAS_PRODUCER)),
        "base_sequence": lambda kind: _plain(facts["base_sequence"], kind, lacks(HAS_PRODUCER)),
    }
    return pa.StructArray.from_arrays([columns[field.name](field.type) for field in PARTITION], fields=list(PARTITION))


def record_rows(found: PairColumns, captures: Sequence[str]) -> pa.RecordBatch | None:
    """The records of these exchanges, as a record batch of the staged schema; None where there are none."""
    records = None if found.facts is None else found.facts.records
    if records is None or not records.counts.any():
        return None
    schema = STAGED["records"]
    shared, row = records.shared, records.row
    asked, is_request = found.asked[row], shared["is_request"] > 0
    message = np.where(is_request, asked, found.answered[row])
    of = np.repeat(np.arange(len(row)), records.counts)
    starts = np.flatnonzero(np.append(True, row[of][1:] != row[of][:-1]))
    names = pa.array(found.names, pa.string())

    def known(values: Sequence[str | None], index: NDArray[Any]) -> pa.Array:
        """A name for each record, by the index of each batch."""
        return pa.DictionaryArray.from_arrays(pa.array(index[of].astype(np.int32)), pa.array(values, pa.string()))

    def encoded(texts: pa.Array) -> pa.Array:
        texts = texts.dictionary_encode()
        return pa.DictionaryArray.from_arrays(texts.indices.take(pa.array(of)), texts.dictionary)

    def unknown(kind: pa.DataType) -> pa.Array:
        return pa.nulls(len(of), kind)

    zeros = np.zeros(len(row), np.int32)
    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda _: encoded(_numbered(message["packet"] >> PACKET_SHIFT, _capture_of(captures), pa.string())),
        "connection_id": lambda kind: _owned(found, InspectedConnection.identify, kind).take(pa.array(row[of])),
        "exchange_id": lambda kind: _plain(asked["ordinal"][of], kind),
        "_time_ns": lambda kind: _plain(message["time"][of], kind),
        "api": lambda _: encoded(_numbered(asked["code"], lambda one: version_of(one).request.api, pa.string())),
        "direction": lambda _: known(["request", "response"], ~is_request),
        "topic": lambda _: encoded(_named(names, shared["topic"])),
        "topic_id": unknown,
        "partition": lambda kind: _plain(shared["partition"][of], kind),
        "timestamp_type": lambda _: known(["CreateTime", "LogAppendTime"], shared["appended"]),
        "compression": lambda _: known(CODECS[:1], zeros),
        "magic": lambda kind: pa.repeat(pa.scalar(2, kind), len(of)),
        "producer_id": lambda kind: _plain(shared["producer_id"][of], kind),
        "producer_epoch": lambda kind: _plain(shared["producer_epoch"][of], kind),
        "transactional": lambda kind: _plain(shared["transactional"][of] > 0, kind),
        "_position": lambda kind: _plain(
            np.arange(len(of)) - np.repeat(starts, np.diff(np.append(starts, len(of)))), kind
        ),
    }
    arrays = [
        records.own[field.name] if field.name in records.own else made[field.name](field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
