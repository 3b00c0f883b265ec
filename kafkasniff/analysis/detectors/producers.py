"""Batches that producers repeat, out of order or not, and those that nobody acknowledges.

A broker stores the sequence numbers of an idempotent producer in order and without gaps: once it acknowledges a later
number of the same producer id and epoch, all earlier ones are stored. In a new epoch numbers restart at 0, and only its
records and bytes identify a batch that is sent again. Batches of producers without sequence numbers cannot be followed
at all, since some clients resend records in other batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.columns import ORDER, column, encoded, exploded, in_any, integers, named, only
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, in_cluster, plural, some, subject
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.retries import Retries
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

MAX_FAILED: Final = 1 << 16
"""Batches whose first attempt failed; those with the most attempts are kept."""
MAX_PRODUCERS: Final = 1 << 17
"""Producers by partition and epoch, and sizes of acknowledged batches; the busiest are kept."""
UNANSWERED: Final = -2
"""Used in place of an error code: the connection ended without a response."""
OUT_OF_ORDER: Final = 45
"""OUT_OF_ORDER_SEQUENCE_NUMBER."""
STORED: Final = (0, 46)
"""NONE, and DUPLICATE_SEQUENCE_NUMBER: the broker has the batch from an earlier attempt."""

_PLACE: Final = (*CLIENT, ("topic", pa.string()), ("partition", pa.int32()))
_PRODUCER: Final = (*_PLACE, ("producer_id", pa.int64()), ("producer_epoch", pa.int32()))
_SIZE: Final = (("record_count", pa.int64()), ("bytes", pa.int64()))
_BATCH: Final = (*_PRODUCER, ("base_sequence", pa.int32()), *_SIZE, ("error_code", pa.int64()))
_producer = itemgetter(*(name for name, _ in _PRODUCER))
_batch_size = itemgetter(*(name for name, _ in (*_PLACE, *_SIZE)))
ATTEMPT_COLUMNS: Final = ("api", "status", "acks", "transactional_id", "partitions", "client_id", "client_ip")
"""Columns of `exchanges` that `add_attempts` needs, besides those of the order."""


_OF_PRODUCER: Final = frozenset({"producer_id", "producer_epoch", "base_sequence"})
NO_PRODUCER: Final = -1
"""Replaces the fields of an idempotent producer, which message sets (formats 0 and 1) lack."""


class Attempt(msgspec.Struct, frozen=True):
    """A batch that was refused or not answered, with all attempts that had the same outcome."""

    client_id: str | None
    client_ip: str | None
    topic: str | None
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    bytes: int
    error_code: int
    """UNANSWERED, or the partition's error code."""
    count: int
    first: int | None
    last: int | None

    @property
    def place(self) -> tuple[Any, ...]:
        """Client and partition."""
        return self.client_id, self.client_ip, self.topic, self.partition

    @property
    def producer(self) -> tuple[Any, ...]:
        """Its sequence of numbers: client, partition, producer id and epoch."""
        return *self.place, self.producer_id, self.producer_epoch


def attempt_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    count: Any = ("count", pa.int64(), "sum")
    last: Any = ("last", pa.int64(), "max")
    first: Any = ("first", pa.int64(), "min")
    until: Any = ("until", pa.int64(), "max")
    return {
        "failed": Shape(keys=_BATCH, measures=(count, first, last), weight="count", bound=MAX_FAILED),
        "acked": Shape(keys=_PRODUCER, measures=(count, until, first, last), weight="count", bound=MAX_PRODUCERS),
        "sizes": Shape(keys=(*_PLACE, *_SIZE), measures=(count, last), weight="count", bound=MAX_PRODUCERS),
    }


def add_attempts(detector: Detector[Any], parts: pa.RecordBatch) -> None:
    """Add partitions of Produce exchanges with acks other than 0, with `ATTEMPT_COLUMNS` and `time_ns`."""
    known = pc.and_(pc.is_valid(column(parts, "record_count")), pc.is_valid(column(parts, "bytes")))
    # Records of a transaction are dropped with it, and the program is notified.
    parts = only(parts, pc.and_(known, pc.is_null(column(parts, "transactional_id"))))
    answered = in_any(parts, "status", ["answered"])
    error = pc.fill_null(column(parts, "error_code"), UNANSWERED)
    stored = pc.and_(answered, pc.is_in(error, value_set=pa.array(STORED, error.type)))
    refused = pc.and_(answered, pc.greater(error, 0))
    failed = pc.or_(in_any(parts, "status", ["unanswered"]), pc.and_(refused, pc.invert(stored)))
    _add(detector, "failed", only(parts, failed), _BATCH)
    acked = only(parts, stored)
    until = integers(column(acked, "base_sequence")) + integers(column(acked, "record_count"))
    _add(detector, "acked", acked, _PRODUCER, until=until)
    # Only producers that fail sometimes matter here, and their batches have sequence numbers.
    _add(detector, "sizes", only(acked, pc.greater_equal(column(acked, "producer_id"), 0)), (*_PLACE, *_SIZE))


def _add(detector: Detector[Any], name: str, parts: pa.RecordBatch, keys: Any, **more: Any) -> None:
    columns = {key: column(parts, key) for key, _ in keys if key != "error_code"}
    if ("error_code", pa.int64()) in keys:
        unanswered = pc.invert(in_any(parts, "status", ["answered"]))
        error = pc.fill_null(column(parts, "error_code").cast(pa.int64()), UNANSWERED)
        columns["error_code"] = pc.if_else(unanswered, pa.scalar(UNANSWERED, pa.int64()), error)
    time = column(parts, "time_ns")
    detector.parts[name].add(
        {**columns, "count": np.ones(parts.num_rows, np.int64), "first": time, "last": time, **more}
    )


def _attempt(row: dict[str, Any]) -> Attempt:
    none = dict.fromkeys((name for name in _OF_PRODUCER if row[name] is None), NO_PRODUCER)
    return Attempt(**{name: row[name] for name in Attempt.__struct_fields__} | none)


class Attempts:
    """The batches of a detector's partial answers, with lookups of their outcome.

    Building it reads all of them, so build it once for all findings.
    """

    def __init__(self, detector: Detector[Any]) -> None:
        self.failed = [_attempt(row) for row in detector.resolved("failed").to_pylist() if row["partition"] is not None]
        self._acked = {_producer(row): row for row in detector.resolved("acked").to_pylist()}
        self._sizes = {_batch_size(row): row["last"] for row in detector.resolved("sizes").to_pylist()}
        self.whole = not any(detector.parts[name].lost.rows for name in ("acked", "sizes"))
        """No acknowledged batch was dropped to stay within bounds."""
        self._epochs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self._places: dict[tuple[Any, ...], int] = {}
        self._stored: dict[tuple[Any, ...], int] = {}
        """When a batch of each partition was last acknowledged."""
        self._clients: dict[tuple[Any, ...], int] = {}
        for key, row in self._acked.items():
            self._epochs.setdefault((*key[:4], key[4]), []).append(row)
            self._seen(key[:4], row["last"], acked=True)
        self._lacking: dict[tuple[Any, ...], int] = {}
        """The highest sequence number per producer that a broker refused because earlier ones are missing."""
        self._refused: dict[tuple[Any, ...], list[Attempt]] = {}
        for attempt in self.failed:
            self._refused.setdefault((*attempt.place[:3], attempt.error_code), []).append(attempt)
            self._seen(attempt.place, attempt.last, acked=False)
            if attempt.error_code == OUT_OF_ORDER:
                self._lacking[attempt.producer] = max(
                    self._lacking.get(attempt.producer, NO_PRODUCER), attempt.base_sequence
                )

    def _seen(self, place: tuple[Any, ...], last: int | None, *, acked: bool) -> None:
        if last is None:
            return
        self._places[place] = max(self._places.get(place, last), last)
        if acked:
            self._stored[place] = max(self._stored.get(place, last), last)
            self._clients[place[:2]] = max(self._clients.get(place[:2], last), last)

    def of(self, client_id: str | None, client_ip: str | None, topic: str | None, error_code: int) -> list[Attempt]:
        """The failed batches of a client for a topic with this outcome."""
        return self._refused.get((client_id, client_ip, topic, error_code), [])

    def is_stored(self, one: Attempt) -> bool:
        """Whether the same or a later sequence number of its epoch was acknowledged."""
        if one.producer_id < 0:
            return False
        row = self._acked.get(one.producer)
        return row is not None and row["until"] is not None and row["until"] > one.base_sequence

    def is_missed(self, one: Attempt) -> bool:
        """Whether the broker refused a later number of its epoch, since it lacks this batch: it is not stored."""
        return self._lacking.get(one.producer, NO_PRODUCER) > one.base_sequence

    def went_on(self, one: Attempt) -> bool:
        """Whether its client had later batches of this partition acknowledged."""
        return one.last is not None and self._stored.get(one.place, one.last) > one.last

    def later_epoch(self, one: Attempt) -> int | None:
        """The epoch in which its producer resumed this partition without a batch of this size; otherwise None."""
        if one.producer_id < 0 or one.last is None or self.is_stored(one):
            return None
        newer = self._sizes.get((*one.place, one.record_count, one.bytes))
        if newer is not None and newer > one.last:
            return None
        later = [
            row["producer_epoch"]
            for row in self._epochs.get((*one.place, one.producer_id), ())
            if row["producer_epoch"] > one.producer_epoch and row["last"] is not None and row["last"] > one.last
        ]
        return min(later, default=None)

    def silent_ns(self, one: Attempt) -> int:
        """How long its client sent to other partitions and nothing more to this one; 0 if it did send."""
        if one.last is None or self._places.get(one.place, 0) > one.last:
            return 0
        return max(self._clients.get(one.place[:2], 0) - one.last, 0)


_CLIENT_PRODUCER: Final = (
    *CLUSTER,
    ("client_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("producer_id", pa.int64()),
)


class RepeatedSequenceThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RepeatedSequences`."""

    share: Annotated[float, Meta(ge=0, description="More than this fraction of a producer's records sent again …")] = (
        0.1
    )
    at_least: Annotated[int, Meta(ge=1, description="… and at least this many are a warning; fewer are a note.")] = 100


class RepeatedSequences(Detector[RepeatedSequenceThresholds]):
    """Idempotent producers that repeated or skipped sequence numbers.

    Brokers store each number once, so repeats only cost time. OUT_OF_ORDER_SEQUENCE_NUMBER means that preceding records
    are missing. It is a note if they came: batches in flight after a refused one, as in transactions that begin before
    the previous one is complete (CONCURRENT_TRANSACTIONS), are sent again after it. The evidence is the failed
    requests, which caused the repeats.
    """

    name: ClassVar[str] = "repeated-sequences"
    summary: ClassVar[str] = "Idempotent producers with repeated or missing sequence numbers."
    parameters_type = RepeatedSequenceThresholds
    parts_clusters = True

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {"retries": Retries()}

    def reads(self) -> Mapping[str, TableReading]:
        # The question would compare records, too; sequence numbers are in the batches' headers.
        asked = {"exchanges": self.asked["retries"].reads()["exchanges"]}
        return united(asked, {"exchanges": TableReading((*ORDER, *CLUSTER_COLUMNS, "status"), ("Produce",))})

    def shapes(self) -> Mapping[str, Shape]:
        highest: Any = tuple((name, pa.int64(), "max") for name in ("stored", "lacking"))
        order = Shape(keys=(*_CLIENT_PRODUCER, ("producer_epoch", pa.int32())), measures=highest)
        return {"evidence": evidence_shape(_CLIENT_PRODUCER), "order": order}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ["Produce"]))
        self.asked["retries"].update(batch)
        parts = named(exploded(batch, [*ORDER, "client_id", *CLUSTER_COLUMNS, "status"]))
        self._add_order(only(parts, pc.greater_equal(column(parts, "producer_id"), 0)))
        refused = pc.greater(pc.fill_null(column(parts, "error_code"), 0), 0)
        failed = pc.or_(refused, pc.invert(in_any(parts, "status", ["answered"])))
        parts = only(parts, pc.and_(failed, pc.greater_equal(column(parts, "producer_id"), 0)))
        notes = [
            f"from sequence {base}: {error_name(code) if code else status}"
            for base, code, status in zip(
                *(column(parts, name).to_pylist() for name in ("base_sequence", "error_code", "status")), strict=True
            )
        ]
        keys = {
            **clusters(parts),
            **{name: column(parts, name) for name, _ in _CLIENT_PRODUCER if name != "cluster"},
        }
        self.parts["evidence"].add(evidence_columns(parts, keys, pa.array(notes, pa.string())))

    def _add_order(self, parts: pa.RecordBatch) -> None:
        """The highest sequence number that was stored, and the highest that was refused as out of order."""
        code, base = column(parts, "error_code"), integers(column(parts, "base_sequence"))
        none = pa.scalar(-1, pa.int64())
        stored = pc.and_(
            in_any(parts, "status", ["answered"]),
            pc.fill_null(pc.is_in(code, value_set=pa.array(STORED, code.type)), False),
        )
        lacking = pc.fill_null(pc.equal(code, OUT_OF_ORDER), False)
        last = pa.array(base + integers(column(parts, "record_count")) - 1, pa.int64())
        self.parts["order"].add(
            {
                **clusters(parts),
                **{name: column(parts, name) for name, _ in _CLIENT_PRODUCER if name != "cluster"},
                "producer_epoch": column(parts, "producer_epoch"),
                "stored": pc.if_else(stored, last, none),
                "lacking": pc.if_else(lacking, pa.array(base, pa.int64()), none),
            }
        )

    def findings(self) -> list[Finding]:
        evidence = self.evidence("evidence")
        order: dict[tuple[Any, ...], tuple[int, int]] = {}
        for row in self.resolved("order").to_pylist():
            key = (*(row[name] for name, _ in _CLIENT_PRODUCER), row["producer_epoch"])
            stored, lacking = order.get(key, (-1, -1))
            order[key] = max(stored, row["stored"]), max(lacking, row["lacking"])
        producers: dict[tuple[Any, ...], dict[str, Any]] = {}
        retries = self.asked["retries"]
        assert isinstance(retries, Retries)
        retries.clusters, retries.names = self.clusters, self.names
        for row in retries.sequences():
            producers[*(row[name] for name, _ in _CLIENT_PRODUCER), row["producer_epoch"]] = row
        # A broker stores the numbers of an epoch in order: whatever precedes a stored one is stored, too.
        came = {key for key, (stored, lacking) in order.items() if stored >= lacking}
        return [
            self._finding(row, evidence.get(key[:-1], ()), missing=key not in came) for key, row in producers.items()
        ]

    def _finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...], *, missing: bool) -> Finding:
        place = f"{word(row['topic'])}-{row['partition']}{in_cluster(self.clusters, row['cluster'])}"
        where = f"for {place} (producer id {row['producer_id']})"
        repeats, gaps, duplicates = row["repeated_records"], row["out_of_order_errors"], row["duplicate_errors"]
        who = "a producer" if row["client_id"] is None else word(row["client_id"])
        severity: Severity = "note"
        if gaps and not missing:
            title = f"{who} had {plural(gaps, 'batch', 'batches')} refused as out of order and accepted later {where}"
            meaning = (
                "The broker refused a batch, and with it those that were already in flight after it. The producer "
                "sent all of them again, and the broker stored them in order."
            )
            advice = (
                "Nothing: producers do this by themselves. If it is frequent, the error of the first refused batch "
                "shows why; CONCURRENT_TRANSACTIONS means that the previous transaction was not complete yet."
            )
        elif gaps:
            severity = "error"
            title = f"{who} got OUT_OF_ORDER_SEQUENCE_NUMBER {plural(gaps, 'time')} {where}"
            meaning = "The broker lacks earlier records: the producer lost or gave up a batch, or the broker lost data."
            advice = (
                "Find out what happened to the earlier batches (did delivery.timeout.ms expire?), and whether the "
                "leader changed uncleanly. Producers of old versions may have to be closed and recreated."
            )
        else:
            many = repeats >= self.thresholds.at_least and repeats > self.thresholds.share * row["records"]
            severity = "warning" if many else "note"
            title = f"{who} sent {plural(repeats, 'record')} more than once {where}"
            if duplicates:
                title = f"{title}; {plural(duplicates, 'batch', 'batches')} refused with DUPLICATE_SEQUENCE_NUMBER"
            meaning = (
                "The producer got no acknowledgement, or too late, or was refused, and sent the records again. The "
                "broker stores them once."
            )
            advice = (
                "Find out why the first attempt failed: slow responses (late-answers), leaders that moved "
                "(not-leader), broken connections, or a request.timeout.ms that is too short."
            )
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject=subject(row, "client_id", "topic", "partition", "producer_id", "producer_epoch"),
            count=max(gaps, duplicates, 1 if repeats else 0, len(evidence)),
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values={
                "records": row["records"],
                "repeated_records": repeats,
                "duplicate_errors": duplicates,
                "out_of_order_errors": gaps,
            },
        )


class AcksZeroThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `AcksZero`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a client from this many Produce requests.")] = 1


class AcksZero(Detector[AcksZeroThresholds]):
    """Producers that request no acknowledgement (acks=0).

    This is a choice, not a fault.
    """

    name: ClassVar[str] = "acks-zero"
    summary: ClassVar[str] = "Producers that ask for no response (acks=0)."
    parameters_type = AcksZeroThresholds

    _requests = Tally("requests", CLIENT, sums=("records",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "acks", "record_count", "partitions", *CLIENT_COLUMNS)
        return {"exchanges": TableReading((*ORDER, *own), ("Produce",))}

    def shapes(self) -> Mapping[str, Shape]:
        return {**self._requests.shapes(), "topics": Shape(keys=(*CLIENT, ("topic", pa.string())))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["Produce"]), pc.equal(column(batch, "acks"), 0)))
        self._requests.add(self, batch, clients(batch), records=integers(column(batch, "record_count")))
        parts = named(exploded(batch, list(CLIENT_COLUMNS)))
        self.parts["topics"].add({**clients(parts), "topic": encoded(parts, "topic")})

    def findings(self) -> Iterator[Finding]:
        topics: dict[tuple[Any, ...], list[str]] = {}
        for row in self.resolved("topics").to_pylist():
            topics.setdefault((row["client_id"], row["client_ip"]), []).append(row["topic"] or "")
        for row, evidence in self._requests.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            names = sorted(topics.get((row["client_id"], row["client_ip"]), []))
            yield self.row_finding(
                row,
                evidence,
                "note",
                f"{client(row)} sent {plural(row['count'], 'Produce request')} with acks=0"
                + (f" for {some(names)}" if names else ""),
                meaning=(
                    "The broker does not respond: the producer never learns that a record was refused, and "
                    "records in flight are silently lost when a connection breaks or a leader moves."
                ),
                advice="Unless losing records is acceptable, use acks=1, or acks=all with an idempotent producer.",
                subject=("client_id", "client_ip"),
                values={"requests": row["count"], "records": row["records"], "topics": names[:MAX_TOPICS]},
            )


MAX_TOPICS: Final = 20
"""Maximum number of topics in the values of a finding."""
