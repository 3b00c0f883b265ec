"""Producers whose records come twice, out of order, or without anybody to say that they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, Reading
from kafkasniff.analysis.columns import ORDER, column, exploded, in_any, integers, named, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.retries import Retries
from kafkasniff.detectors.detector import Detector, evidence_columns, evidence_shape, united
from kafkasniff.detectors.finding import Evidence, Finding, Severity
from kafkasniff.detectors.tally import CLIENT, CLIENT_COLUMNS, CLUSTER, CLUSTER_COLUMNS, Tally, clients, clusters
from kafkasniff.detectors.wording import client, in_cluster, plural, some, subject
from kafkasniff.kafka.errors import error_name
from kafkasniff.sinks.printable import word

__all__ = ["AcksZero", "RepeatedSequences"]

_PRODUCER: Final = (
    *CLUSTER,
    ("client_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("producer_id", pa.int64()),
)
_FOLDED: Final[dict[str, Any]] = {
    **dict.fromkeys(("records", "repeated_records", "duplicate_errors", "out_of_order_errors"), sum),
    "first": min,
    "last": max,
}
"""How numbers of one producer and partition become one."""


class RepeatedSequenceThresholds(Parameters, frozen=True, kw_only=True):
    """Of `RepeatedSequences`."""

    share: Annotated[float, Meta(ge=0, description="More than this part of a producer's records sent again …")] = 0.1
    at_least: Annotated[int, Meta(ge=1, description="… and so many: a warning; fewer are a note.")] = 100


class RepeatedSequences(Detector[RepeatedSequenceThresholds]):
    """Idempotent producers that sent sequence numbers again, or left some out.

    Brokers store a sequence number once, so that repeats cost only time; OUT_OF_ORDER_SEQUENCE_NUMBER says that records
    in front are missing. Evidence are the requests that failed, which is why their records came again.
    """

    name: ClassVar[str] = "repeated-sequences"
    summary: ClassVar[str] = "Idempotent producers with repeated or missing sequence numbers."
    parameters_type = RepeatedSequenceThresholds
    parts_clusters = True

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {"retries": Retries()}

    def reads(self) -> Mapping[str, Reading]:
        # The question would compare records, too; sequence numbers stand in the batches' headers.
        asked = {"exchanges": self.asked["retries"].reads()["exchanges"]}
        return united(asked, {"exchanges": Reading((*ORDER, *CLUSTER_COLUMNS, "status"), ("Produce",))})

    def shapes(self) -> Mapping[str, Shape]:
        return {"evidence": evidence_shape(_PRODUCER)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ["Produce"]))
        self.asked["retries"].update(batch)
        parts = named(exploded(batch, "partitions", [*ORDER, "client_id", *CLUSTER_COLUMNS, "status"]))
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

    def findings(self) -> list[Finding]:
        evidence = self.evidence("evidence")
        producers: dict[tuple[Any, ...], dict[str, Any]] = {}
        retries = self.asked["retries"]
        assert isinstance(retries, Retries)
        retries.clusters = self.clusters
        for row in retries.sequences():
            if self.names is not None:
                row["topic"] = self.names.topic(row["topic"]) or row["topic"]
            known = producers.setdefault((*(row[name] for name, _ in _PRODUCER), row["producer_epoch"]), row)
            if known is not row:
                # A topic that was named by its id, too.
                for name, how in _FOLDED.items():
                    known[name] = how([one for one in (known[name], row[name]) if one is not None] or [None])
        return [self._finding(row, evidence.get(key[:-1], ())) for key, row in producers.items()]

    def _finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
        place = f"{word(row['topic'])}-{row['partition']}{in_cluster(self.clusters, row['cluster'])}"
        where = f"for {place} (producer id {row['producer_id']})"
        again, gaps, duplicates = row["repeated_records"], row["out_of_order_errors"], row["duplicate_errors"]
        who = "a producer" if row["client_id"] is None else word(row["client_id"])
        severity: Severity = "note"
        if gaps:
            severity = "error"
            title = f"{who} was told OUT_OF_ORDER_SEQUENCE_NUMBER {plural(gaps, 'time')} {where}"
            meaning = (
                "The broker misses records in front of these: a batch was lost or given up by the producer, or the "
                "broker lost what it had."
            )
            advice = (
                "See what became of the batches before (delivery.timeout.ms over?), and whether the leader changed "
                "uncleanly. Producers of old versions may have to be closed and made anew."
            )
        else:
            many = again >= self.thresholds.at_least and again > self.thresholds.share * row["records"]
            severity = "warning" if many else "note"
            title = f"{who} sent {plural(again, 'record')} more than once {where}"
            if duplicates:
                title = f"{title}; {plural(duplicates, 'batch', 'batches')} refused with DUPLICATE_SEQUENCE_NUMBER"
            meaning = (
                "The producer did not hear, or not in time, that they had come, or was refused, and sent them again. "
                "The broker stores them once."
            )
            advice = (
                "See why the first try failed: slow answers (late-answers), leaders that moved (not-leader), "
                "connections that broke; a request.timeout.ms that is too short."
            )
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject=subject(row, "client_id", "topic", "partition", "producer_id", "producer_epoch"),
            count=max(gaps, duplicates, 1 if again else 0, len(evidence)),
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values={
                "records": row["records"],
                "repeated_records": again,
                "duplicate_errors": duplicates,
                "out_of_order_errors": gaps,
            },
        )


class AcksZeroThresholds(Parameters, frozen=True, kw_only=True):
    """Of `AcksZero`."""

    at_least: Annotated[int, Meta(ge=1, description="So many Produce requests of a client are told.")] = 1


class AcksZero(Detector[AcksZeroThresholds]):
    """Producers that want no answer (acks=0)."""

    name: ClassVar[str] = "acks-zero"
    summary: ClassVar[str] = "Producers that ask for no answer (acks=0)."
    parameters_type = AcksZeroThresholds

    _requests = Tally("requests", CLIENT, sums=("records",))

    def reads(self) -> Mapping[str, Reading]:
        own = ("api", "acks", "record_count", "partitions", *CLIENT_COLUMNS)
        return {"exchanges": Reading((*ORDER, *own), ("Produce",))}

    def shapes(self) -> Mapping[str, Shape]:
        return {**self._requests.shapes(), "topics": Shape(keys=(*CLIENT, ("topic", pa.string())))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["Produce"]), pc.equal(column(batch, "acks"), 0)))
        self._requests.add(self, batch, clients(batch), records=integers(column(batch, "record_count")))
        parts = named(exploded(batch, "partitions", list(CLIENT_COLUMNS)))
        self.parts["topics"].add({**clients(parts), "topic": column(parts, "topic")})

    def findings(self) -> list[Finding]:
        topics: dict[tuple[Any, ...], list[str]] = {}
        for row in self.told("topics").to_pylist():
            topics.setdefault((row["client_id"], row["client_ip"]), []).append(row["topic"] or "")
        found = []
        for row, evidence in self._requests.rows(self):
            if row["count"] < self.thresholds.at_least:
                continue
            names = sorted(topics.get((row["client_id"], row["client_ip"]), []))
            found.append(
                self.finding(
                    "note",
                    f"{client(row)} sent {plural(row['count'], 'Produce request')} with acks=0"
                    + (f" for {some(names)}" if names else ""),
                    meaning=(
                        "The broker does not answer: the producer never learns that a record was refused, and whatever "
                        "is on its way when a connection breaks or a leader moves is lost silently."
                    ),
                    advice="Unless losing records does not matter: acks=1, or acks=all with an idempotent producer.",
                    subject=subject(row, "client_id", "client_ip"),
                    count=row["count"],
                    first=row["first"],
                    last=row["last"],
                    evidence=evidence,
                    values={"requests": row["count"], "records": row["records"], "topics": names[:MAX_TOPICS]},
                )
            )
        return found


MAX_TOPICS: Final = 20
"""Topics that a finding names in its values."""
