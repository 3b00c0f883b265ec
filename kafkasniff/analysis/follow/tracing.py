"""Puts together the way of one record.

First it decides which rows are the same record: attempts to produce it, its place in the log, and its deliveries. Only
bodies say how transactions end, and what members of share groups do with records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.record_rows import (
    PARTITIONED,
    CarriedRecord,
    ExchangeFacts,
    Partition,
    PartitionOutcome,
    Positions,
    Served,
    exchanges_of,
    has_keys,
    record_order,
)
from kafkasniff.analysis.follow.way import Consumer, ConsumerState, RecordWay, StepKind, Unknown, WayStep
from kafkasniff.analysis.share_bodies import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    SHARE_APIS,
    OffsetRange,
    ShareBody,
    SharePart,
    topic_names,
)
from kafkasniff.kafka.schema.codes import error_name

BODIES: Final = ("request_body", "response_body", "error_code")
ENDS: Final = ("EndTxn",)


class _EndTxn(msgspec.Struct):
    """A request."""

    producer_id: int | None = None
    producer_epoch: int | None = None
    committed: bool | None = None


_END_TXN: Final = msgspec.json.Decoder(_EndTxn)


class EndedTransaction(NamedTuple):
    """A transaction that its producer ended."""

    facts: ExchangeFacts
    producer_id: int | None
    producer_epoch: int | None
    committed: bool


class ShareBodies(NamedTuple):
    """What a ShareFetch or ShareAcknowledge says of offsets."""

    facts: ExchangeFacts
    acknowledged: Mapping[Partition, list[OffsetRange]]
    acquired: Mapping[Partition, list[OffsetRange]] | None
    """None if that is unknown."""


def ended(export: Export) -> Iterator[EndedTransaction]:
    """Successful EndTxn exchanges with bodies. Raises CaptureError, UsageError."""
    for rows in _successful(export, ENDS):
        for facts, body in zip(exchanges_of(rows), column(rows, "request_body").to_pylist(), strict=True):
            request = _end_txn(body)
            if request.committed is not None:
                yield EndedTransaction(facts, request.producer_id, request.producer_epoch, request.committed)


def share_bodies(export: Export) -> Iterator[ShareBodies]:
    """Successful exchanges of share groups with bodies. Raises CaptureError, UsageError."""
    names = ("partitions", "request_body", "response_body")
    for rows in _successful(export, SHARE_APIS):
        columns = (column(rows, name).to_pylist() for name in names)
        for facts, partitions, request, response in zip(exchanges_of(rows), *columns, strict=True):
            topics = topic_names(partitions)
            is_fetch = facts.api == "ShareFetch"
            answers = _by_place(ShareBody.decode(response), topics)
            refused = {
                place
                for place, part in answers.items()
                if (part.acknowledge_error_code if is_fetch else part.error_code)
            }
            asked = _by_place(ShareBody.decode(request), topics)
            yield ShareBodies(
                facts,
                {place: part.acknowledgement_batches for place, part in asked.items() if place not in refused},
                None
                if response is None or not is_fetch
                else {place: share_part.acquired_records for place, share_part in answers.items()},
            )


def _successful(export: Export, apis: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for batch in export.batches("exchanges", TableReading((*PARTITIONED, *BODIES), apis)):
        fine = pc.and_(pc.equal(column(batch, "status"), "answered"), pc.equal(column(batch, "error_code"), 0))
        yield only(batch, pc.and_(fine, has_keys(batch)))


def _end_txn(text: str | None) -> _EndTxn:
    """A request as in the table; an empty one if there is none, or another program has written it."""
    try:
        return _EndTxn() if text is None else _END_TXN.decode(text)
    except msgspec.DecodeError:
        return _EndTxn()


def _by_place(body: ShareBody, names: Mapping[str | None, str | None]) -> dict[Partition, SharePart]:
    return {(topic, part.partition_index): part for topic, part in body.parts(names)}


Match = Literal["offset", "sequence", "content"]


class ProduceAttempt(msgspec.Struct, frozen=True):
    """A Produce request with the record."""

    row: CarriedRecord
    facts: ExchangeFacts | None
    matched: Match


class Linked(msgspec.Struct):
    """Rows of one record."""

    offset: int | None
    attempts: list[ProduceAttempt] = []
    deliveries: list[CarriedRecord] = []

    @property
    def rows(self) -> list[CarriedRecord]:
        """All rows."""
        return [*(attempt.row for attempt in self.attempts), *self.deliveries]

    @property
    def first(self) -> CarriedRecord:
        """The earliest row."""
        return min(self.rows, key=record_order)


def link(rows: Iterable[CarriedRecord], served: Served) -> list[Linked]:
    """The records, by the time of their first row.

    Rows with an offset are the same record if partition, offset and content are (a topic may have been deleted and
    created again). A Produce request without a known offset is an attempt of the record with its sequence, else of the
    only one with its content that was not delivered before.
    """
    placed: dict[tuple[Any, ...], Linked] = {}
    numbers: dict[tuple[Any, ...], Linked] = {}
    unplaced: list[ProduceAttempt] = []
    for row in sorted(rows, key=record_order):
        facts = served.get(row.exchange)
        offset = row.offset
        if row.is_produced:
            base = _base_offset(row, facts)
            if base is None:
                unplaced.append(ProduceAttempt(row, facts, "sequence"))
                continue
            offset = base + row.position
        one = placed.setdefault((*row.place, offset, row.content), Linked(offset))
        if row.is_produced:
            one.attempts.append(ProduceAttempt(row, facts, "offset"))
        else:
            one.deliveries.append(row)
        if row.number is not None:
            numbers.setdefault((row.number, row.content), one)
    found = list(placed.values())
    contents: dict[tuple[Any, ...], list[Linked]] = {}
    for one in found:
        for content in {_content(row) for row in one.rows}:
            if content is not None:
                contents.setdefault(content, []).append(one)
    lost: dict[tuple[Any, ...], Linked] = {}
    for attempt in unplaced:
        row, content = attempt.row, _content(attempt.row)
        same = None if row.number is None else numbers.get((row.number, row.content))
        matched: Match = "sequence"
        if same is None and content is not None:
            same, matched = _only(row, contents.get(content, [])), "content"
        if same is None:
            key = (*row.place, row.number or content or row.exchange)
            same, matched = lost.setdefault(key, Linked(None)), "sequence" if row.number else "content"
        same.attempts.append(msgspec.structs.replace(attempt, matched=matched))
    found += lost.values()
    for one in found:
        one.attempts.sort(key=lambda attempt: record_order(attempt.row))
        one.deliveries.sort(key=record_order)
    return sorted(found, key=lambda one: record_order(one.first))


def _base_offset(row: CarriedRecord, facts: ExchangeFacts | None) -> int | None:
    """The offset that the first record of the partition was assigned."""
    part = None if facts is None else facts.partitions.get(row.place)
    if part is None or part.error_code != 0 or part.offset is None or part.offset < 0:
        return None
    return part.offset


def _content(row: CarriedRecord) -> tuple[Any, ...] | None:
    """What attempts without sequences have in common."""
    return None if row.content is None or row.created is None else (*row.place, row.content, row.created)


def _only(row: CarriedRecord, candidates: list[Linked]) -> Linked | None:
    """The record that an attempt must have been for: the only one of which no other attempt is known, or the only one.

    Not one that was delivered before.
    """
    later = [one for one in candidates if not one.deliveries or _is_not_after(row, one.deliveries[0])]
    alone = [one for one in later if not one.attempts]
    for some in (alone, later):
        if len(some) == 1:
            return some[0]
    return None


def _is_not_after(row: CarriedRecord, other: CarriedRecord) -> bool:
    return row.time is None or other.time is None or row.time <= other.time


_ACKNOWLEDGED: Final[dict[int, StepKind]] = {
    ACCEPT: "accepted",
    RELEASE: "released",
    REJECT: "rejected",
    RENEW: "renewed",
}
_SETTLED: Final = ("accepted", "rejected")


class _Who(NamedTuple):
    """A group, or a client without a known group."""

    group_id: str | None
    client_id: str | None = None
    client_ip: str | None = None


class Trace:
    """One record: its rows, and what other exchanges say about it."""

    def __init__(self, linked: Linked, served: Served) -> None:
        self._linked = linked
        self._served = served
        self.place: Partition = linked.first.place
        self.offset = linked.offset
        row = linked.first
        self.transactional = row.transactional and row.control is None
        self._producer = (row.producer_id, row.producer_epoch)
        self._deliveries = [
            (carried_record, facts)
            for carried_record in linked.deliveries
            if (facts := served.get(carried_record.exchange)) is not None
        ]
        self.is_shared = any(facts.api == "ShareFetch" for _, facts in self._deliveries)
        self._got: dict[str | None, int | None] = {}
        """When each group got the record first."""
        for carried_record, facts in self._deliveries:
            self._got.setdefault(served.group(facts), carried_record.time)
        self._commits: dict[str, tuple[ExchangeFacts, int]] = {}
        """The first commit of each group after that."""
        self._positions: dict[_Who, tuple[int, int]] = {}
        self._marker: CarriedRecord | None = None
        self._end: EndedTransaction | None = None
        self._settled: list[tuple[ExchangeFacts, StepKind]] = []
        self._acquired: dict[tuple[int, int], int | None] = {}

    @property
    def _begins(self) -> int | None:
        return self._linked.first.time

    def take_commit(self, facts: ExchangeFacts, partition: PartitionOutcome, place: Partition) -> None:
        """Take a successful commit: the first one beyond the record counts."""
        if self.offset is None or place != self.place or facts.group_id is None:
            return
        if partition.offset is None or partition.offset <= self.offset or _is_before(facts.time, self._begins):
            return
        got = self._got.get(facts.group_id)
        if got is not None and _is_before(facts.time, got):
            return
        found = self._commits.get(facts.group_id)
        if found is None or _order(facts) < _order(found[0]):
            self._commits[facts.group_id] = facts, partition.offset

    def take_positions(self, positions: Positions, served: Served) -> None:
        """Take the offsets that consumers of the partition requested."""
        if self.offset is None:
            return
        for client, lowest, highest in positions.of(self.place):
            group = served.group_of(client)
            who = _Who(group) if group is not None else _Who(None, *client)
            least, most = self._positions.get(who, (lowest, highest))
            self._positions[who] = (min(least, lowest), max(most, highest))

    def take_marker(self, row: CarriedRecord) -> None:
        """Take the marker of a transaction: the first one of the producer after the record is its own."""
        if self.offset is None or row.place != self.place or row.producer_id != self._producer[0]:
            return
        if row.offset > self.offset and (self._marker is None or row.offset < self._marker.offset):
            self._marker = row

    def take_end(self, end: EndedTransaction) -> None:
        """Take the end of a transaction by its producer, the first one after the record."""
        if (end.producer_id, end.producer_epoch) != self._producer:
            return
        produced = [attempt.row.time for attempt in self._linked.attempts]
        if produced and _is_before(end.facts.time, produced[0]):
            return
        if self._end is None or _order(end.facts) < _order(self._end.facts):
            self._end = end

    def take_share(self, bodies: ShareBodies) -> None:
        """Take acknowledgements of share groups, and which records they acquired."""
        if self.offset is None:
            return
        for offset_range in bodies.acknowledged.get(self.place, ()):
            kind = _ACKNOWLEDGED.get(offset_range.type_of(self.offset) or 0) if self.offset in offset_range else None
            if kind is not None:
                self._settled.append((bodies.facts, kind))
        if bodies.acquired is not None:
            counts = [
                offset_range.delivery_count
                for offset_range in bodies.acquired.get(self.place, ())
                if self.offset in offset_range
            ]
            key = (bodies.facts.connection_id, bodies.facts.exchange_id)
            if counts:
                self._acquired[key] = counts[0]
            else:
                # A batch has records of others.
                self._deliveries = [delivery for delivery in self._deliveries if delivery[0].exchange != key]

    def way(self, export: Export) -> RecordWay:
        """All of it."""
        linked, row = self._linked, self._linked.first
        steps = sorted((*self._production(), *self._replication(), *self._consumption()), key=_step_order)
        _connect(steps)
        consumers = self._consumers(steps)
        return RecordWay(
            topic=row.topic,
            partition=row.partition,
            offset=linked.offset,
            key=row.key,
            key_decoded=row.key_decoded,
            value_bytes=row.value_bytes,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            sequence=next(
                (carried_record.sequence for carried_record in linked.rows if carried_record.number is not None),
                row.sequence,
            ),
            trace_ids=list(row.trace_ids),
            transactional=self.transactional,
            outcome=self._outcome,
            marker_offset=None if self._marker is None else self._marker.offset,
            control=row.control,
            steps=steps,
            consumers=consumers,
            unknown=self._unknown(steps, export),
        )

    @property
    def _outcome(self) -> Any:
        if not self.transactional:
            return None
        if self._marker is not None:
            return "committed" if self._marker.control == "COMMIT" else "aborted"
        return None if self._end is None else "committed" if self._end.committed else "aborted"

    def _production(self) -> list[WayStep]:
        steps = []
        for number, attempt in enumerate(self._linked.attempts, 1):
            facts, row = attempt.facts, attempt.row
            if facts is None:
                continue
            part = facts.partitions.get(row.place)
            steps.append(
                _step(
                    "produced",
                    facts,
                    acks=facts.acks,
                    attempt=number,
                    status=facts.status,
                    matched=attempt.matched,
                )
            )
            if part is None or facts.status != "answered" or part.error_code is None:
                continue
            if part.error_code:
                error = part.error or error_name(part.error_code) or str(part.error_code)
                steps.append(_step("refused", facts, facts.answered, error=error))
            else:
                offset = self.offset if attempt.matched == "offset" else None
                steps.append(_step("acknowledged", facts, facts.answered, offset=offset))
        if self._end is not None:
            kind: StepKind = "transaction-committed" if self._end.committed else "transaction-aborted"
            steps.append(_step(kind, self._end.facts))
        return steps

    def _replication(self) -> list[WayStep]:
        steps: dict[str | None, WayStep] = {}
        for row, facts in self._deliveries:
            if facts.is_follower:
                steps.setdefault(facts.client_id, _step("replicated", facts, row.time))
        return list(steps.values())

    def _consumption(self) -> list[WayStep]:
        steps: list[WayStep] = []
        seen: set[_Who] = set()
        for row, facts in self._deliveries:
            if facts.is_follower:
                continue
            group = self._served.group(facts)
            who = _Who(group) if group is not None else _Who(None, facts.client_id, facts.client_ip)
            kind: StepKind = "redelivered" if who in seen else "delivered"
            seen.add(who)
            steps.append(_step(kind, facts, row.time, group_id=group, deliveries=self._acquired.get(row.exchange)))
        steps += (_step(kind, facts) for facts, kind in self._settled)
        steps += (_step("committed", facts, offset=offset) for facts, offset in self._commits.values())
        return steps

    def _consumers(self, steps: list[WayStep]) -> list[Consumer]:
        counts: dict[_Who, int] = {}
        done: dict[_Who, ConsumerState] = {}
        for step in steps:
            who = _Who(step.group_id) if step.group_id is not None else _Who(None, step.client_id, step.client_ip)
            if step.kind in ("delivered", "redelivered"):
                counts[who] = counts.get(who, 0) + 1
            elif step.kind == "committed":
                done[who] = "committed"
            elif step.kind in _SETTLED:
                done[who] = "settled"
        everyone = sorted({*counts, *done, *self._positions}, key=lambda who: [(one is None, one or "") for one in who])
        return [
            Consumer(
                **who._asdict(),
                state=done.get(who) or ("delivered" if who in counts else self._absent(who)),
                deliveries=counts.get(who, 0),
                position=self._positions[who][1] if who in self._positions else None,
            )
            for who in everyone
        ]

    def _absent(self, who: _Who) -> ConsumerState:
        assert self.offset is not None
        lowest, highest = self._positions[who]
        if highest <= self.offset:
            return "not-delivered"
        return "began-after" if lowest > self.offset else "passed-over"

    def _unknown(self, steps: list[WayStep], export: Export) -> list[Unknown]:
        kinds = {step.kind for step in steps}
        produced = [step for step in steps if step.kind == "produced"]
        found: list[Unknown] = []
        if not produced:
            found.append("producer")
        elif "acknowledged" not in kinds:
            if any(step.acks == 0 for step in produced):
                found.append("acknowledgement")
            if any(step.status in ("unanswered", "open", "lost") for step in produced):
                found.append("response")
        if self.offset is None:
            found.append("offset")
        if not kinds & {"delivered", "redelivered"}:
            found.append("delivery")
        if self.transactional and self._outcome is None:
            found.append("outcome")
        if (self.is_shared or self.transactional) and not export.has_json:
            found.append("bodies")
        if not export.has_payload:
            found.append("content")
        return found


def _is_before(time: int | None, other: int | None) -> bool:
    return time is not None and other is not None and time < other


def _order(facts: ExchangeFacts) -> tuple[Any, ...]:
    return facts.time_ns is None, facts.time_ns or 0, facts.connection_id, facts.exchange_id


_BY_KIND: Final = ("produced", "acknowledged", "refused", "replicated", "delivered", "redelivered")
"""The order of steps at the same time; all others come later."""


def _step_order(step: WayStep) -> tuple[Any, ...]:
    kind = _BY_KIND.index(step.kind) if step.kind in _BY_KIND else len(_BY_KIND)
    return step.time is None, step.time or 0, kind, step.connection_id, step.exchange_id


def _step(kind: StepKind, facts: ExchangeFacts, time: int | None = None, **values: Any) -> WayStep:
    wire = {
        name: getattr(facts, name)
        for name in (
            *("client_id", "client_ip", "client_port", "broker_id", "broker_ip", "broker_port", "group_id"),
            *("api", "api_version", "connection_id", "exchange_id"),
        )
    }
    at = facts.time if time is None else time
    return WayStep(kind=kind, time=at, **{**wire, **values})


def _connect(steps: list[WayStep]) -> None:
    """Add to each step the one that it follows, and the time since then."""
    for index, step in enumerate(steps):
        before = range(index - 1, -1, -1)
        step.after = next((one for kinds in _causes(step) for one in before if _follows(step, steps[one], kinds)), None)
        if step.after is not None and step.time is not None:
            since = steps[step.after].time
            step.delay_us = None if since is None else step.time - since


def _causes(step: WayStep) -> list[tuple[str, ...]]:
    """Kinds of steps that a step may follow; the latest of the first kinds that are there."""
    match step.kind:
        case "produced":
            return [("produced", "refused")]
        case "acknowledged" | "refused":
            return [("produced",)]
        case "redelivered":
            return [("delivered", "redelivered")]
        case "accepted" | "released" | "rejected" | "renewed" | "committed":
            return [("delivered", "redelivered")]
        case _:
            return [("acknowledged",), ("produced",)]


def _follows(step: WayStep, other: WayStep, kinds: tuple[str, ...]) -> bool:
    if other.kind not in kinds:
        return False
    if step.kind in ("acknowledged", "refused"):
        return (step.connection_id, step.exchange_id) == (other.connection_id, other.exchange_id)
    if other.kind in ("delivered", "redelivered"):
        if other.group_id is not None:
            return step.group_id == other.group_id
        # A client in several groups, or in none.
        return (step.client_id, step.client_ip) == (other.client_id, other.client_ip)
    return True
