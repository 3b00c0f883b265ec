"""Problems of batches that producers send: too small, too large, or without compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading, united
from kafkasniff.analysis.columns import ORDER, column, encoded, exploded, in_any, integers, named, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.producers import ATTEMPT_COLUMNS, Attempts, add_attempts, attempt_shapes
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, plural
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word

_TOPIC: Final = (("topic", pa.string()),)
_READS: Final = {"exchanges": TableReading((*ORDER, "api", *CLIENT_COLUMNS, "partitions"), ("Produce",))}


def _produced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each partition of each Produce exchange."""
    batch = only(batch, in_any(batch, "api", ["Produce"]))
    return named(exploded(batch, [*ORDER, *CLIENT_COLUMNS]))


def _keys(parts: pa.RecordBatch) -> dict[str, pa.Array]:
    return {**clients(parts), "topic": encoded(parts, "topic")}


class SmallBatchThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SmallBatches`."""

    records: Annotated[float, Meta(ge=1, description="Report batches with at most this many records on average …")] = (
        1.5
    )
    at_least: Annotated[int, Meta(ge=1, description="… if there are at least this many …")] = 500
    per_second: Annotated[
        float, Meta(ge=0, description="… and this many per second: slower producers cannot fill batches.")
    ] = 50


class SmallBatches(Detector[SmallBatchThresholds]):
    """Producers that send many records, but each in a batch of its own."""

    name: ClassVar[str] = "small-batches"
    summary: ClassVar[str] = "Producers that send many records, each in its own batch."
    parameters_type = SmallBatchThresholds

    _batches = Tally("batches", (*CLIENT, *_TOPIC), sums=("batches", "records", "bytes"))

    def reads(self) -> Mapping[str, TableReading]:
        return _READS

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        parts = _produced(batch)
        known = pc.and_(pc.greater(column(parts, "batch_count"), 0), pc.is_valid(column(parts, "record_count")))
        parts = only(parts, known)
        measures = {"batches": column(parts, "batch_count"), "records": column(parts, "record_count")}
        self._batches.add(self, parts, _keys(parts), **measures, bytes=integers(column(parts, "bytes")))

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._batches.rows(self, self._reports):
            batches, records, rate = row["batches"], row["records"], _rate(row)
            yield self.row_finding(
                row,
                evidence,
                "warning",
                f"{client(row)} sent {plural(records, 'record')} to topic {word(row['topic'])} in "
                f"{plural(batches, 'batch', 'batches')}, {rate:,.0f} batches/s",
                meaning=(
                    "Each batch has a 61-byte header, costs the broker and its replicas one request, and "
                    "compresses poorly when it is small. Throughput is a fraction of what it could be."
                ),
                advice=(
                    "Let the producer collect records: set linger.ms to 5-20 (and check batch.size), and do not "
                    "wait for each record (no flush or get() after every send)."
                ),
                subject=("client_id", "client_ip", "topic"),
                values={
                    "batches": batches,
                    "records_per_batch": records / batches,
                    "bytes_per_batch": row["bytes"] / batches,
                    "batches_per_second": rate,
                },
            )

    def _reports(self, row: Mapping[str, Any]) -> bool:
        limits, batches = self.thresholds, row["batches"]
        if batches < limits.at_least or row["records"] > limits.records * batches:
            return False
        return _rate(row) >= limits.per_second


def _rate(row: Mapping[str, Any]) -> float:
    """Batches per second."""
    lasted = row["last"] - row["first"] if row["first"] is not None else 0
    return row["batches"] * 1e9 / lasted if lasted > 0 else 0.0


class UncompressedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UncompressedBatches`."""

    size: Annotated[
        int, Meta(ge=1, description="Report a client's uncompressed data for a topic from this many bytes …")
    ] = 10_000_000
    batch: Annotated[
        int, Meta(ge=0, description="… in batches of at least this many bytes on average; small ones gain little.")
    ] = 1000


class UncompressedBatches(Detector[UncompressedThresholds]):
    """Producers that send much data without compression."""

    name: ClassVar[str] = "uncompressed-batches"
    summary: ClassVar[str] = "Producers that send a lot of data without compression."
    parameters_type = UncompressedThresholds

    _batches = Tally("batches", (*CLIENT, *_TOPIC), sums=("batches", "bytes"))

    def reads(self) -> Mapping[str, TableReading]:
        return _READS

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        parts = _produced(batch)
        parts = only(parts, in_any(parts, "compression", ["none"]))
        batches, size = (integers(column(parts, name)) for name in ("batch_count", "bytes"))
        self._batches.add(self, parts, _keys(parts), batches=batches, bytes=size)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._batches.rows(self, self._reports):
            size, batches = row["bytes"], row["batches"]
            yield self.row_finding(
                row,
                evidence,
                "note",
                f"{client(row)} sent {amount(size)} to topic {word(row['topic'])} without compression",
                meaning="All of it is sent over the network, stored and replicated at its full size.",
                advice=(
                    "Try compression.type=lz4 or zstd on the producer, unless the records are already compressed "
                    "or encrypted."
                ),
                subject=("client_id", "client_ip", "topic"),
                values={"bytes": size, "bytes_per_batch": size / batches},
            )

    def _reports(self, row: Mapping[str, Any]) -> bool:
        size, batches, limits = row["bytes"], row["batches"], self.thresholds
        return bool(size >= limits.size and batches and size / batches >= limits.batch)


SOON_NS: Final = 1_000_000_000
"""How soon producers send the parts of a batch that was refused."""
_TOO_LARGE: Final = (10, 18)
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE."""
_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


class OversizedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OversizedMessages`."""

    limit: Annotated[int, Meta(ge=1, description="Largest batch in bytes that brokers accept (message.max.bytes).")] = (
        1_048_588
    )
    near: Annotated[float, Meta(ge=0, description="Note batches of more than this fraction of the limit.")] = 0.9


class OversizedMessages(Detector[OversizedThresholds]):
    """Batches that brokers refused for their size, and batches close to the limit.

    It is an error for a batch of one record, which cannot be split, a warning for a producer without sequence numbers
    that continues, or if the capture ends within a second, and a note if the records were accepted later in smaller
    batches.

    Caveats: batches sent with acks=0 are refused without a response (`lost-records`). The topic's limit may differ from
    `limit`.
    """

    name: ClassVar[str] = "oversized-messages"
    summary: ClassVar[str] = "Batches that were refused for their size, or are close to the limit."
    parameters_type = OversizedThresholds

    _refused = Tally("refused", (*CLIENT, *_TOPIC, ("error_code", pa.int64())), sums=("packed",), highs=("bytes",))
    _near = Tally("near", (*CLIENT, *_TOPIC), highs=("bytes",))

    def reads(self) -> Mapping[str, TableReading]:
        whole = {"connections": TableReading(("end_time_ns",))}
        return united(_READS, whole, {"exchanges": TableReading((*ORDER, *ATTEMPT_COLUMNS), ("Produce",))})

    def shapes(self) -> Mapping[str, Shape]:
        end = Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),))
        return {**self._refused.shapes(), **self._near.shapes(), **attempt_shapes(), "end": end}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            self.parts["end"].add({"one": [0], "end_ns": [pc.max(column(batch, "end_time_ns")).as_py()]})
            return
        produced = only(batch, in_any(batch, "api", ["Produce"]))
        kept = [*ORDER, *(name for name in ATTEMPT_COLUMNS if name != "partitions")]
        parts = named(exploded(produced, kept))
        add_attempts(self, parts)
        large = pc.fill_null(pc.is_in(column(parts, "error_code"), value_set=pa.array(_TOO_LARGE, pa.int32())), False)
        refused = only(parts, large)
        keys = {**_keys(refused), "error_code": column(refused, "error_code")}
        measures = {
            "bytes": integers(column(refused, "bytes")),
            "packed": in_any(refused, "compression", _CODECS).cast(pa.int64()),
        }
        self._refused.add(self, refused, keys, self._notes_of(refused), **measures)
        # Requests with several batches only show their sum.
        size = self.thresholds.limit * self.thresholds.near
        single = pc.and_(pc.equal(column(parts, "batch_count"), 1), pc.greater_equal(column(parts, "bytes"), size))
        near = only(parts, pc.and_(single, pc.invert(large)))
        self._near.add(self, near, _keys(near), self._notes_of(near), bytes=integers(column(near, "bytes")))

    @staticmethod
    def _notes_of(parts: pa.RecordBatch) -> pa.Array:
        sizes = column(parts, "bytes").to_pylist()
        return pa.array(["" if size is None else amount(size) for size in sizes], pa.string())

    def findings(self) -> Iterator[Finding]:
        refused = list(self._refused.rows(self))
        # Without refused batches, the outcome of attempts does not matter.
        attempts = Attempts(self) if refused else None
        for row, evidence in refused:
            assert attempts is not None
            yield self._refused_finding(row, evidence, attempts)
        for row, evidence in self._near.rows(self):
            count = plural(row["count"], "batch", "batches")
            yield self.row_finding(
                row,
                evidence,
                "note",
                f"{count} of {client(row)} for topic {word(row['topic'])} near the size limit of brokers, the "
                f"largest {amount(row['bytes'])}",
                meaning=(
                    f"By default brokers accept batches of up to {amount(self.thresholds.limit)} "
                    "(message.max.bytes). Slightly larger ones would be refused."
                ),
                advice=("Find out why the batches are so large: a few large records, or a batch.size near the limit."),
                subject=("client_id", "client_ip", "topic"),
                values={"bytes": row["bytes"]},
            )

    def _refused_finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...], attempts: Attempts) -> Finding:
        kept = attempts.of(row["client_id"], row["client_ip"], row["topic"], row["error_code"])
        stored = sum(attempt.count for attempt in kept if attempts.is_stored(attempt))
        # The fate of the records in a batch that can be split is unknown without sequence numbers, or if the capture
        # ends before the producer can send them again.
        end = pc.max(self.parts["end"].table().column("end_ns")).as_py()
        unknown = sum(
            attempt.count
            for attempt in kept
            if attempt.record_count > 1
            and not attempts.is_stored(attempt)
            and (
                (attempt.producer_id < 0 and attempts.went_on(attempt))
                or (end is not None and (attempt.last or 0) > end - SOON_NS)
            )
        )
        # Batches that were cut off may have been sent again, too.
        unknown += row["count"] - sum(attempt.count for attempt in kept)
        lost = row["count"] - stored - unknown
        severity: Severity = "error" if lost else "warning" if unknown else "note"
        effect = "their records were accepted in smaller batches" if severity == "note" else ""
        meaning = "Unless the client can split the batch, these records are lost to the topic."
        if severity == "note":
            meaning = "The producer split them: only time is lost."
        elif severity == "warning":
            meaning = "Whether the client sent their records again in smaller batches is unknown."
        elif stored or unknown:
            meaning = (
                f"The records of {lost:,} of these batches were not accepted later; the others were, or it is unknown."
            )
        packed = row["packed"] == row["count"] and row["bytes"] < self.thresholds.limit
        if packed:
            meaning += (
                " They are compressed: if the topic has another compression.type than producer, the broker compresses "
                "them anew, and their size after that counts."
            )
        count = plural(row["count"], "compressed batch" if packed else "batch", f"{'compressed ' * packed}batches")
        return self.row_finding(
            row,
            evidence,
            severity,
            f"{count} of {client(row)} for topic {word(row['topic'])} refused with {error_name(row['error_code'])}"
            + (f", the largest {amount(row['bytes'])}" if row["bytes"] else "")
            + (f"; {effect}" if effect else ""),
            meaning=(
                f"The broker accepts no batch larger than message.max.bytes (per topic: max.message.bytes). {meaning}"
            ),
            advice=("Set the topic's compression.type to producer, or raise its max.message.bytes. " if packed else "")
            + (
                "Send smaller records, or store large payloads elsewhere and send references to them. Otherwise raise "
                "max.message.bytes of the topic together with the limits of producers, consumers and replicas."
            ),
            subject=("client_id", "client_ip", "topic", "error_code"),
            values={"bytes": row["bytes"], "stored": stored, "unknown": unknown},
        )
