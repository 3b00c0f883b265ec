"""Rows of `exchanges` and `records` from the columns of answered exchanges (`exchange_columns`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import ANSWERS, SESSION, ExchangeKind, distinct, version_of
from kafkasniff.enrich.catalog import MAX_NAME
from kafkasniff.enrich.sessions import FINAL_EPOCH, SessionStep
from kafkasniff.kafka.connection.waits import WaitPlan
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.kafka.schema.walker import NUMBERED
from kafkasniff.model import PACKET_NUMBER, PACKET_SHIFT
from kafkasniff.native.columns import (
    CODECS,
    HAS_BATCHES,
    HAS_CODE,
    HAS_CODEC,
    HAS_OFFSET,
    HAS_PRODUCER,
    HAS_RECORDS,
    HAS_STABLE_OFFSET,
    HAS_THROTTLE,
    HAS_UNCOMPRESSED,
    HAS_WATERMARK,
    UNNAMED,
    ExchangeColumns,
    Strings,
)
from kafkasniff.native.feed import KEYS, NONE, VERSIONS
from kafkasniff.tables.rows.exchanges import capture_name
from kafkasniff.tables.rows.record_arrays import Batches
from kafkasniff.tables.rows.schemas import PARTITION
from kafkasniff.tables.rows.sessions import lasting
from kafkasniff.tables.rows.staged import STAGED, StagedParts, unread

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class BodyFacts(NamedTuple):
    """Facts from bodies: `PairColumns.facts`."""

    columns: ExchangeColumns
    kinds: dict[int, ExchangeKind]
    """By code."""
    bodies: bool
    records: Batches | None
    """Results for the batches of records."""


def by_code(pair_columns: PairColumns, value: Callable[[int], Any], kind: Any) -> NDArray[Any]:
    """A value for each exchange, by the version of its API."""
    table = np.zeros(KEYS * VERSIONS, kind)
    codes = pair_columns.asked["code"]
    for code in distinct(codes.astype(np.int64)):
        table[code] = value(code)
    made: NDArray[Any] = table[codes]
    return made


def string_array(strings: Strings) -> pa.Array:
    """The kernel's strings as an Arrow array."""
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.string(), len(strings.offsets) - 1, buffers)


def _bodies(texts: Strings) -> pa.Array:
    """Bodies as JSON; those that are not wanted are null."""
    array = string_array(texts)
    return pc.if_else(pc.equal(pc.binary_length(array), 0), pa.scalar(None, array.type), array)


def _named(names: pa.Array, index: NDArray[Any]) -> pa.Array:
    """Names by their indices; NONE is null."""
    return names.take(pa.array(index.astype(np.int64), mask=index == NONE))


def _software(pair_columns: PairColumns, which: int, kind: pa.DataType) -> pa.Array:
    """Name or version of client software, as far as it is known by now."""
    values = [owner.account.software[which] if owner and owner.account else None for owner in pair_columns.owners]
    if all(value is None for value in values):
        return pa.nulls(len(pair_columns.asked), kind)
    return pa.array(values, kind).take(pa.array(pair_columns.asked["connection"]))


def _numbered(numbers: NDArray[Any], value: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
    different, where = np.unique(numbers, return_inverse=True)
    return pa.array([value(one) for one in different.tolist()], kind).take(pa.array(where))


def _plain(numbers: NDArray[Any], kind: pa.DataType, mask: Bools | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(numbers), mask=mask).cast(kind, safe=False)


def _microseconds(numbers: Ints, kind: pa.DataType) -> pa.Array:
    # Floored, also below zero.
    return pa.array(numbers // 1000).cast(kind)


def exchange_rows(
    pair_columns: PairColumns,
    captures: Sequence[str] = (),
    *,
    headers: bool = False,
    schema: pa.Schema = STAGED["exchanges"],
    columns: Container[str] = STAGED["exchanges"].names,
) -> pa.RecordBatch:
    """Answered exchanges as a record batch of the staged schema, or of some of its columns.

    `captures`: names by index; `headers`: columns from bodies are null, whether or not bodies were read; `columns`:
    those that are wanted, others are `unread`.
    """
    asked, answered = pair_columns.asked, pair_columns.answered
    count = len(asked)
    code = asked["code"]
    names = pa.array(pair_columns.names, pa.string())
    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda kind: _numbered(asked["packet"] >> PACKET_SHIFT, _capture_of(captures), kind),
        "exchange_id": lambda kind: _plain(asked["ordinal"], kind),
        "time": lambda kind: _microseconds(asked["time"], kind),
        "time_ns": lambda kind: _plain(asked["time"], kind),
        "api_key": lambda kind: _plain(code // VERSIONS, kind),
        "api": lambda kind: _numbered(code, lambda one: version_of(one).request.api, kind),
        "api_version": lambda kind: _plain(code % VERSIONS, kind),
        "correlation_id": lambda kind: _plain(asked["correlation"], kind),
        "client_id": lambda _: _named(names, pair_columns.client_id),
        "software_name": lambda kind: _software(pair_columns, 0, kind),
        "software_version": lambda kind: _software(pair_columns, 1, kind),
        "status": lambda kind: pa.repeat(pa.scalar("answered", kind), count),
        "request_size": lambda kind: _plain(asked["size"], kind),
        "response_size": lambda kind: _plain(answered["size"], kind),
        "latency_us": lambda kind: _microseconds(answered["latency"], kind),
        "duration_us": lambda kind: _microseconds(answered["duration"], kind),
        "retransmits": lambda kind: _plain(answered["retransmits"], kind),
    }
    connections = pa.array(asked["connection"])
    for name, values in pair_columns.ends.columns.items():
        made[name] = lambda _, values=values: values.take(connections)  # type: ignore[misc]
    if pair_columns.facts is not None:
        problems = pair_columns.facts.columns.problems
        made["problems"] = lambda kind: _kinds_of(problems, count, kind)
    if pair_columns.facts is not None and not headers:
        made |= _of_bodies(pair_columns, pair_columns.facts, names)
    arrays = [
        made[field.name](field.type) if field.name in made and field.name in columns else unread(field, count)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _capture_of(captures: Sequence[str]) -> Callable[[int], str | None]:
    return lambda one: capture_name(captures[one]) if one < len(captures) else None


def _lists(counts: NDArray[Any], values: pa.Array, kind: pa.DataType) -> pa.Array:
    borders = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(borders), values, type=kind)


def _of_bodies(
    pair_columns: PairColumns, facts: BodyFacts, names: pa.Array
) -> dict[str, Callable[[pa.DataType], pa.Array]]:
    """The columns that come from bodies."""
    columns = facts.columns
    rows = columns.rows
    waits = functools.cache(lambda: _waits(pair_columns, facts))
    asked, given = rows["asked_member"], rows["given_member"]
    # A member that joins for the first time sends "" and receives its id.
    is_empty = pc.equal(names, "").to_numpy(zero_copy_only=False) if len(names) else np.zeros(0, bool)
    says = (asked != NONE) & ~np.append(is_empty, True)[np.minimum(asked, len(names))]
    has_given = (given != NONE) & ~np.append(is_empty, True)[np.minimum(given, len(names))]
    member = np.where(says, asked, np.where(has_given, given, asked))
    acks, has_acks = _value(pair_columns, facts, "acks")
    is_named = columns.topics < UNNAMED
    row_of_topics = np.repeat(np.arange(len(rows)), rows["topics"])
    topics = np.bincount(row_of_topics.compress(is_named), minlength=len(rows))
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
        "topics": lambda kind: _lists(topics, _named(names, columns.topics.compress(is_named)), kind),
        "partitions": lambda kind: _lists(rows["partitions"], _partitions(columns.partitions, names), kind),
        "sender": lambda kind: pa.array(waits()[0], kind),
        "behind_us": lambda kind: _microseconds(pair_columns.answered["behind"], kind),
        "muted_us": lambda kind: _microseconds(pair_columns.answered["muted"], kind),
        "wait_us": lambda kind: _microseconds(waits()[1], kind),
        "waits_for": lambda kind: pa.array(waits()[2], kind),
        "_pending": lambda kind: pa.array(_pending(pair_columns, facts, is_named, row_of_topics, topics), kind),
    }
    if facts.bodies:
        made["request_body"] = lambda _: _bodies(columns.requests)
        made["response_body"] = lambda _: _bodies(columns.responses)
    return made


def _pending(
    pair_columns: PairColumns, facts: BodyFacts, is_named: Bools, row_of_topics: Ints, topics: Ints
) -> list[bytes | None]:
    """What each row waits for (`StagedParts`); `row_of_topics`, `topics`: the row of each topic, named ones of each."""
    columns = facts.columns
    parts: dict[int, StagedParts] = {}
    if not is_named.all():
        # The topics before each one in its row.
        places = np.cumsum(is_named) - (np.cumsum(topics) - topics)[row_of_topics]
        unnamed = np.flatnonzero(~is_named)
        ids = (columns.topics[unnamed] - UNNAMED).tolist()
        for row, place, index in zip(row_of_topics[unnamed].tolist(), places[unnamed].tolist(), ids, strict=True):
            part = parts.setdefault(row, StagedParts({}, facts.bodies))
            part.unnamed[pair_columns.names[index]] = place
    if any(facts.kinds[code].session for code in distinct(pair_columns.asked["code"].astype(np.int64))):
        _add_session_steps(parts, pair_columns, facts)
    encoded = {row: msgspec.msgpack.encode(part) for row, part in parts.items()}
    return [encoded.get(row) for row in range(len(columns.rows))]


_KINDS: Final = sorted({template.kind for template in NUMBERED})
_KIND: Final = np.array([-1, *(_KINDS.index(template.kind) for template in NUMBERED)], np.int64)
"""By the kernel's number of a problem: the place of its kind in `_KINDS`."""


def _kinds_of(problems: NDArray[np.void], count: int, kind: pa.DataType) -> pa.Array:
    """The kinds of each row's problems, sorted, each once."""
    rows, kinds = np.divmod(
        np.unique(problems["row"].astype(np.int64) * len(_KINDS) + _KIND[problems["kind"]]), len(_KINDS)
    )
    return _lists(np.bincount(rows, minlength=count), pa.array(_KINDS).take(pa.array(kinds)), kind)


def _add_session_steps(parts: dict[int, StagedParts], pair_columns: PairColumns, facts: BodyFacts) -> None:
    """Add what exchanges do to fetch sessions (`sessions.session_step`) to the parts that wait, by row."""
    names = [*SESSION, *ANSWERS.values()]
    columns = [_value(pair_columns, facts, name) for name in names]
    rows, partitions = facts.columns.rows, facts.columns.partitions
    wanted = np.flatnonzero(columns[0][1])
    firsts = (np.cumsum(rows["partitions"], dtype=np.int64) - rows["partitions"])[wanted]
    topic = np.where(partitions["topic_id"] == NONE, partitions["topic"], partitions["topic_id"])
    counts, times = rows["asked_partitions"][wanted], pair_columns.answered["time"][wanted]
    values = (values[wanted].tolist() for values, _ in columns)
    for row, first, count, time_ns, number, epoch, given, error in zip(
        wanted.tolist(), firsts.tolist(), counts.tolist(), times.tolist(), *values, strict=True
    ):
        step = SessionStep(number, epoch, answer_ns=time_ns, answer_number=given, answer_error=error)
        if count and epoch != FINAL_EPOCH:
            own = slice(first, first + count)
            for index, partition in zip(topic[own].tolist(), partitions["partition"][own].tolist(), strict=True):
                name = pair_columns.names[index]
                if len(name) <= MAX_NAME:
                    step.added.setdefault(name, []).append(partition)
            step.by_id = bool(partitions["topic_id"][first] != NONE)
        effect = lasting(step)
        if effect is not None:
            parts.setdefault(row, StagedParts()).session = effect


def _errors(codes: NDArray[Any], none: Bools, kind: pa.DataType) -> pa.Array:
    if none.all():
        return pa.nulls(len(codes), kind)
    return pc.if_else(pa.array(none), pa.scalar(None, kind), _numbered(codes, error_name, kind))


def _value(pair_columns: PairColumns, facts: BodyFacts, name: str) -> tuple[Ints, Bools]:
    """A number of each request, and a mask of the requests that have one."""
    place = by_code(
        pair_columns,
        lambda code: facts.kinds[code].values.index(name) if name in facts.kinds[code].values else -1,
        np.int64,
    )
    return facts.columns.rows["values"][np.arange(len(place)), place], place >= 0


class AskedWaits(NamedTuple):
    """Waits that requests of one version of an API ask for."""

    plan: WaitPlan
    rows: Ints
    """The exchanges."""
    values: dict[str, Ints]
    """Numbers of the requests, by field."""
    limit: Ints
    """In milliseconds; 0 or less: none."""
    waits: Bools
    """Whether each asks for a wait."""


def asked_waits(pair_columns: PairColumns, facts: BodyFacts) -> Iterator[AskedWaits]:
    """What requests ask for (`asked_limit_ns`), by version of the API; those without a plan are skipped."""
    codes = pair_columns.asked["code"]
    for code in distinct(codes.astype(np.int64)):
        kind = facts.kinds[code]
        plan = kind.wait
        if plan is None:
            continue
        rows = np.flatnonzero(codes == code)
        values = facts.columns.rows["values"]
        own = {name: values[rows, number] for number, name in enumerate(kind.values)}
        limit, waits = np.zeros(len(rows), np.int64), np.full(len(rows), plan.reason is not None)
        for name in plan.limits:
            if name in own:
                limit = np.where((limit <= 0) & (own[name] > 0), own[name], limit)
        none = np.zeros(len(rows), bool)
        if plan.reason == "replicas":
            waits = own["acks"] == -1 if "acks" in own else none
        elif plan.reason == "data":
            waits = (limit > 0) & (own["min_bytes"] > 0) if "min_bytes" in own else none
        elif plan.reason == "operation":
            waits = limit > 0
        yield AskedWaits(plan, rows, own, limit, waits)


def _waits(pair_columns: PairColumns, facts: BodyFacts) -> tuple[NDArray[Any], Ints, NDArray[Any]]:
    """The results of `asked_wait` for each exchange: the sender, nanoseconds, and what the request waited for."""
    count = len(pair_columns.asked)
    sender, reason = np.full(count, None, object), np.full(count, None, object)
    wait = np.zeros(count, np.int64)
    for plan, rows, own, limit, waits in asked_waits(pair_columns, facts):
        if plan.replica_ids:
            # Requests of replicas in later versions have a struct, and are left to Python.
            sender[rows] = (
                np.where(own[plan.replica_id] >= 0, "replica", "client") if plan.replica_id in own else "client"
            )
        asked = (pair_columns.answered["latency"] - pair_columns.answered["behind"] - pair_columns.answered["muted"])[
            rows
        ]
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
        "topic_id": lambda _: _named(names, facts["topic_id"]),
        "partition": lambda kind: _plain(facts["partition"], kind),
        "error_code": lambda kind: _plain(facts["code"], kind, no_code),
        "error": lambda kind: _errors(facts["code"], no_code | (facts["code"] == 0), kind),
        "offset": lambda kind: _plain(facts["offset"], kind, lacks(HAS_OFFSET)),
        "high_watermark": lambda kind: _plain(facts["watermark"], kind, lacks(HAS_WATERMARK)),
        "record_count": lambda kind: _plain(facts["records"], kind, lacks(HAS_BATCHES)),
        "batch_count": lambda kind: _plain(facts["batches"], kind, lacks(HAS_BATCHES)),
        "bytes": lambda kind: _plain(facts["bytes"], kind, lacks(HAS_BATCHES)),
        "uncompressed_bytes": lambda kind: _plain(facts["uncompressed"], kind, lacks(HAS_UNCOMPRESSED)),
        "compression": lambda _: pa.array(CODECS).take(pa.array(facts["codec"], mask=lacks(HAS_CODEC))),
        "producer_id": lambda kind: _plain(facts["producer_id"], kind, lacks(HAS_PRODUCER)),
        "producer_epoch": lambda kind: _plain(facts["producer_epoch"], kind, lacks(HAS_PRODUCER)),
        "base_sequence": lambda kind: _plain(facts["base_sequence"], kind, lacks(HAS_PRODUCER)),
        "last_stable_offset": lambda kind: _plain(facts["stable_offset"], kind, lacks(HAS_STABLE_OFFSET)),
    }
    return pa.StructArray.from_arrays([columns[field.name](field.type) for field in PARTITION], fields=list(PARTITION))


def problem_rows(pair_columns: PairColumns, captures: Sequence[str]) -> pa.RecordBatch | None:
    """The problems of these exchanges as a record batch of the staged schema; None if there are none."""
    columns = None if pair_columns.facts is None else pair_columns.facts.columns
    if columns is None or not len(columns.problems):
        return None
    schema = STAGED["problems"]
    problems = columns.problems
    asked, answered = pair_columns.asked.take(problems["row"]), pair_columns.answered.take(problems["row"])
    is_request = problems["is_request"] > 0
    packet, last = (np.where(is_request, asked[name], answered[name]) for name in ("packet", "last_packet"))
    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda kind: _numbered(packet >> PACKET_SHIFT, _capture_of(captures), kind),
        "connection_id": lambda kind: _plain(pair_columns.ends.ids[asked["connection"]], kind),
        "exchange_id": lambda kind: _plain(asked["ordinal"], kind),
        "time": lambda kind: _microseconds(asked["time"], kind),
        "time_ns": lambda kind: _plain(asked["time"], kind),
        "kind": lambda kind: pa.array(_KINDS, kind).take(pa.array(_KIND[problems["kind"]])),
        "detail": lambda _: string_array(columns.details),
        "packet": lambda kind: _plain(last & PACKET_NUMBER, kind),
        "direction": lambda kind: pa.array(["response", "request"], kind).take(pa.array(problems["is_request"])),
        "bytes": lambda kind: _plain(problems["bytes"], kind, problems["bytes"] < 0),
        "offset": lambda kind: _plain(problems["offset"], kind),
    }
    arrays = [
        made[field.name](field.type) if field.name in made else pa.nulls(len(problems), field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def record_rows(pair_columns: PairColumns, captures: Sequence[str]) -> pa.RecordBatch | None:
    """The records of these exchanges as a record batch of the staged schema; None if there are no records."""
    records = None if pair_columns.facts is None else pair_columns.facts.records
    if records is None or not records.counts.any():
        return None
    schema = STAGED["records"]
    shared, row = records.shared, records.row
    asked, is_request = pair_columns.asked.take(row), shared["is_request"] > 0
    answered = pair_columns.answered.take(row)
    packet, time = (np.where(is_request, asked[name], answered[name]) for name in ("packet", "time"))
    of = np.repeat(np.arange(len(row)), records.counts)
    starts = np.flatnonzero(np.append(True, row[of][1:] != row[of][:-1]))
    names = pa.array(pair_columns.names, pa.string())

    def known(values: Sequence[str | None], index: NDArray[Any]) -> pa.Array:
        """A name for each record, by the index of each batch."""
        return pa.DictionaryArray.from_arrays(pa.array(index[of].astype(np.int32)), pa.array(values, pa.string()))

    def encoded(texts: pa.Array) -> pa.Array:
        texts = texts.dictionary_encode()
        return pa.DictionaryArray.from_arrays(texts.indices.take(pa.array(of)), texts.dictionary)

    def unknown(kind: pa.DataType) -> pa.Array:
        return pa.nulls(len(of), kind)

    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda _: encoded(_numbered(packet >> PACKET_SHIFT, _capture_of(captures), pa.string())),
        "connection_id": lambda kind: _plain(pair_columns.ends.ids[asked["connection"]][of], kind),
        "exchange_id": lambda kind: _plain(asked["ordinal"][of], kind),
        "_time_ns": lambda kind: _plain(time[of], kind),
        "api": lambda _: encoded(_numbered(asked["code"], lambda one: version_of(one).request.api, pa.string())),
        "direction": lambda _: known(["request", "response"], ~is_request),
        "topic": lambda _: encoded(_named(names, shared["topic"])),
        "topic_id": lambda _: encoded(_named(names, shared["topic_id"])),
        "partition": lambda kind: _plain(shared["partition"][of], kind),
        "timestamp_type": lambda _: known(["CreateTime", "LogAppendTime"], shared["appended"]),
        "compression": lambda _: known(CODECS, shared["codec"]),
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
