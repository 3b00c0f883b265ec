"""Producers whose records are repeated, out of order, or never acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, in_any, integers, named, only
from kafkasniff.analysis.detectors.attempts import OUT_OF_ORDER, STORED
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape, united
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

_PRODUCER: Final = (
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
        order = Shape(keys=(*_PRODUCER, ("producer_epoch", pa.int32())), measures=highest)
        return {"evidence": evidence_shape(_PRODUCER), "order": order}

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
        keys = {**clusters(parts), **{name: column(parts, name) for name, _ in _PRODUCER if name != "cluster"}}
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
                **{name: column(parts, name) for name, _ in _PRODUCER if name != "cluster"},
                "producer_epoch": column(parts, "producer_epoch"),
                "stored": pc.if_else(stored, last, none),
                "lacking": pc.if_else(lacking, pa.array(base, pa.int64()), none),
            }
        )

    def findings(self) -> list[Finding]:
        evidence = self.evidence("evidence")
        order: dict[tuple[Any, ...], tuple[int, int]] = {}
        for row in self.resolved("order").to_pylist():
            key = (*(row[name] for name, _ in _PRODUCER), row["producer_epoch"])
            stored, lacking = order.get(key, (-1, -1))
            order[key] = max(stored, row["stored"]), max(lacking, row["lacking"])
        producers: dict[tuple[Any, ...], dict[str, Any]] = {}
        retries = self.asked["retries"]
        assert isinstance(retries, Retries)
        retries.clusters, retries.names = self.clusters, self.names
        for row in retries.sequences():
            producers[*(row[name] for name, _ in _PRODUCER), row["producer_epoch"]] = row
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
        self.parts["topics"].add({**clients(parts), "topic": column(parts, "topic")})

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
