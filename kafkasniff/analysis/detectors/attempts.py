"""The outcome of batches that a broker refused or did not answer: whether a later attempt stored their records.

A broker stores the sequence numbers of an idempotent producer in order and without gaps: once it acknowledges a later
number of the same producer id and epoch, all earlier ones are stored. In a new epoch numbers restart at 0, and only its
records and bytes identify a batch that is sent again. Batches of producers without sequence numbers cannot be followed
at all, since some clients resend records in other batches.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column, in_any, integers, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.tally import CLIENT
from kafkasniff.analysis.partials import Shape

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
        for one in self.failed:
            self._refused.setdefault((*one.place[:3], one.error_code), []).append(one)
            self._seen(one.place, one.last, acked=False)
            if one.error_code == OUT_OF_ORDER:
                self._lacking[one.producer] = max(self._lacking.get(one.producer, NO_PRODUCER), one.base_sequence)

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
