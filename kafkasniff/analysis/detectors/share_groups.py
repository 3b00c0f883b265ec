"""Share groups whose records are delivered again and again, or given up (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import CLUSTER, CLUSTER_COLUMNS, Tally, clusters
from kafkasniff.analysis.detectors.wording import in_cluster, plural
from kafkasniff.analysis.share_bodies import REJECT, RELEASE, SHARE_APIS, ShareBody, SharePart, topic_names
from kafkasniff.engine.roles import Bodies
from kafkasniff.text.printable import word

_SUMS: Final = ("again", "last_time", "released", "rejected")


class RepeatedDeliveryThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RepeatedDeliveries`."""

    limit: Annotated[
        int,
        Meta(ge=2, description="A record delivered this often is an error: unless accepted, the broker archives it."),
    ] = 5
    at_least: Annotated[
        int,
        Meta(ge=1, description="This many repeated deliveries or rejected records are a warning; fewer are a note."),
    ] = 10


class RepeatedDeliveries(Detector[RepeatedDeliveryThresholds]):
    """Records that a share group delivers again, because members release them or do not acknowledge them in time.

    After a limit of deliveries, or when a member rejects a record, the broker archives it: nobody processes it.

    Caveats: the broker's limit (`group.share.delivery.attempt.limit`) is not on the wire. A record may be accepted at
    its last delivery.
    """

    name: ClassVar[str] = "repeated-deliveries"
    summary: ClassVar[str] = "Share groups that deliver records again, or give them up."
    parameters_type = RepeatedDeliveryThresholds
    bodies: ClassVar[Bodies] = {(direction, api): None for api in SHARE_APIS for direction in ("request", "response")}
    parts_clusters = True

    _records = Tally(
        "records", (*CLUSTER, ("group_id", pa.string()), ("topic", pa.string())), sums=_SUMS, highs=("deliveries",)
    )

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", *CLUSTER_COLUMNS, "partitions", "request_body", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), SHARE_APIS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", SHARE_APIS), pc.is_valid(column(batch, "group_id"))))
        found: list[tuple[int, str | None, dict[str, int]]] = []
        names = ("request_body", "response_body", "partitions")
        rows = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
        for row, (request, response, partitions) in enumerate(rows):
            names_of_ids = topic_names(partitions)
            by_topic: dict[str | None, dict[str, int]] = {}
            for body in (request, response):
                for topic, part in ShareBody.decode(body).parts(names_of_ids):
                    self._count(part, by_topic.setdefault(topic, dict.fromkeys((*_SUMS, "deliveries"), 0)))
            found += [(row, topic, counts) for topic, counts in by_topic.items() if any(counts.values())]
        # Without bodies and lists, which would be copied for each topic.
        batch = batch.select([*ORDER, "api", "group_id", *CLUSTER_COLUMNS])
        batch = batch.take(pa.array([row for row, _, _ in found], pa.int64()))
        keys = {
            **clusters(batch),
            "group_id": column(batch, "group_id"),
            "topic": pa.array([topic for _, topic, _ in found], pa.string()),
        }
        measures = {
            name: pa.array([counts[name] for _, _, counts in found], pa.int64()) for name in (*_SUMS, "deliveries")
        }
        self._records.add(self, batch, keys, pa.array([_note(counts) for _, _, counts in found]), **measures)

    def _count(self, part: SharePart, counts: dict[str, int]) -> None:
        for one in part.acquired_records:
            if one.delivery_count is not None and one.delivery_count > 1:
                counts["again"] += one.size
                counts["deliveries"] = max(counts["deliveries"], one.delivery_count)
                counts["last_time"] += one.size if one.delivery_count >= self.thresholds.limit else 0
        for one in part.acknowledgement_batches:
            counts["released"] += one.count_of(RELEASE)
            counts["rejected"] += one.count_of(REJECT)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._records.rows(self):
            if row["again"] or row["rejected"]:
                yield self._finding(row, evidence)

    def _finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
        limits = self.thresholds
        severity: Severity = "note"
        if row["last_time"]:
            severity = "error"
        elif max(row["again"], row["rejected"]) >= limits.at_least:
            severity = "warning"
        seen = []
        if row["again"]:
            deliveries = plural(row["again"], "repeated delivery", "repeated deliveries")
            seen.append(f"{deliveries}, of one record up to {row['deliveries']:,} times")
        seen += [f"{row[name]:,} {name}" for name in ("released", "rejected") if row[name]]
        if row["again"] > row["released"]:
            seen.append(f"{row['again'] - row['released']:,} not acknowledged in time")
        given_up = []
        if row["last_time"]:
            given_up.append(f"{plural(row['last_time'], 'delivery', 'deliveries')} at the limit of {limits.limit}")
        return self.row_finding(
            row,
            evidence,
            severity,
            f"share group {word(row['group_id'])}{in_cluster(self.clusters, row['cluster'])} and topic "
            f"{word(row['topic'])}: {', '.join([*seen, *given_up])}",
            meaning=(
                "Members release records that they cannot process, or keep them for longer than the acquisition lock "
                "lasts (group.share.record.lock.duration.ms). The broker archives rejected records, and others after "
                "group.share.delivery.attempt.limit deliveries: the group never processes them."
            ),
            advice=(
                "Find out why the program cannot process these records: a poison record, a service that is down, or "
                "work that takes longer than the lock. Release only after temporary failures, and store rejected "
                "records elsewhere."
            ),
            subject=("group_id", "topic"),
            values={name: row[name] for name in (*_SUMS, "deliveries")},
        )


def _note(counts: dict[str, int]) -> str:
    again = f"delivered {plural(counts['again'], 'record')} again" if counts["again"] else ""
    return ", ".join([*([again] if again else []), *(f"{counts[one]:,} {one}" for one in _SUMS[2:] if counts[one])])
