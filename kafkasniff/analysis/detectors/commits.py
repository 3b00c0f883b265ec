"""Offset commits that are too frequent, or that arrive too late, in a rebalance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, floor_divided, in_any, only, with_client
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

_GROUP: Final = (*CLUSTER, ("group_id", pa.string()))


def _keys(batch: pa.RecordBatch) -> dict[str, Any]:
    return {**clients(batch), **clusters(batch), "group_id": column(batch, "group_id")}


class FrequentCommitThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `FrequentCommits`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which commits are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="Report a client from this many OffsetCommit requests in a span.")
    ] = 100


class FrequentCommits(Detector[FrequentCommitThresholds]):
    """Clients that commit offsets many times a second.

    Commits within transactions (TxnOffsetCommit) do not count.
    """

    name: ClassVar[str] = "frequent-commits"
    summary: ClassVar[str] = "Clients that commit offsets many times a second."
    parameters_type = FrequentCommitThresholds
    parts_clusters = True

    _commits = Tally("commits", (*CLIENT, *_GROUP, ("span", pa.int64())))

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading(
                (*ORDER, "api", "group_id", "problems", *CLIENT_COLUMNS, *CLUSTER_COLUMNS), ("OffsetCommit",)
            )
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = with_client(only(batch, in_any(batch, "api", ["OffsetCommit"])))
        span = floor_divided(column(batch, "time_ns"), self.thresholds.every)
        self._commits.add(self, batch, {**_keys(batch), "span": span})

    def findings(self) -> Iterator[Finding]:
        by_client: dict[tuple[Any, ...], list[tuple[dict[str, Any], Any]]] = {}
        for row, evidence in self._commits.rows(self):
            if row["count"] >= self.thresholds.at_least:
                key = (row["client_id"], row["client_ip"], row["cluster"], row["group_id"])
                by_client.setdefault(key, []).append((row, evidence))
        for rows in by_client.values():
            worst, evidence = max(rows, key=lambda one: (one[0]["count"], -(one[0]["span"] or 0)))
            every = elapsed(self.thresholds.every)
            where = in_cluster(self.clusters, worst["cluster"])
            yield self.finding(
                "warning",
                f"{client(worst)} committed offsets of group {word(worst['group_id'])}{where} "
                f"{plural(worst['count'], 'time')} within {every}",
                meaning=(
                    "Each commit is written to __consumer_offsets and replicated. Committing after every record "
                    "slows the consumer down and loads the group's coordinator."
                ),
                advice=(
                    "Commit once per poll or every few seconds, asynchronously, and synchronously before shutdown."
                ),
                subject=subject(worst, "client_id", "client_ip", "group_id"),
                count=sum(row["count"] for row, _ in rows),
                first=min((row["first"] for row, _ in rows if row["first"] is not None), default=None),
                last=max((row["last"] for row, _ in rows if row["last"] is not None), default=None),
                evidence=evidence,
                values={"commits": worst["count"], "spans": len(rows)},
            )


REBALANCE_IN_PROGRESS: Final = 27
_REFUSED: Final = (22, 25, REBALANCE_IN_PROGRESS, 82, 110, 113)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID (KIP-345), FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH
(KIP-848)."""
_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
_PASSING: Final = (
    "The group was rebalancing. The member can commit after it has rejoined.",
    "Nothing if it is rare; otherwise find out why the group rebalances (rebalance-storms).",
)
_OUTSIDE: Final = (
    "The commit names no member: it comes from an administrator (kafka-consumer-groups.sh --reset-offsets), or from a "
    "program that chooses its partitions itself (assign). While the group has members, only these may commit.",
    "Stop all members of the group before you set its offsets. Give programs that use assign a group.id of their own.",
)
_LATE: Final = (
    "The group had moved on without this member. The new owner of its partitions reads and processes everything since "
    "its last commit again.",
    "Do less work between polls, or raise max.poll.interval.ms; commit when partitions are revoked; make processing "
    "idempotent.",
)
"""Meaning and advice."""


class RefusedCommitThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RefusedCommits`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a client from this many commits refused in this way.")] = 1


class RefusedCommits(Detector[RefusedCommitThresholds]):
    """Commits refused because the group had moved on: the member, generation or epoch is outdated.

    The records may be processed twice. A commit that names no member is a program's or an administrator's that sets the
    offsets of a group while its members run.
    """

    name: ClassVar[str] = "refused-commits"
    summary: ClassVar[str] = "Commits sent during a rebalance, or by former members."
    parameters_type = RefusedCommitThresholds
    parts_clusters = True

    _refused = Tally(
        "refused", (*CLIENT, *_GROUP, ("error_code", pa.int64()), ("outside", pa.bool_())), sums=("partitions",)
    )

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading(
                (
                    *ORDER,
                    "api",
                    "group_id",
                    "member_id",
                    *CLIENT_COLUMNS,
                    *CLUSTER_COLUMNS,
                    "error_count",
                    "partitions",
                ),
                _COMMITS,
            )
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", _COMMITS), pc.greater(column(batch, "error_count"), 0)))
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = exploded(rows, ["row"])
        parts = only(parts, pc.is_in(column(parts, "error_code"), value_set=pa.array(_REFUSED, pa.int32())))
        if not parts.num_rows:
            return
        # The coordinator judges the member, so all partitions of a request have the same code.
        places, firsts, counts = np.unique(column(parts, "row").to_numpy(), return_index=True, return_counts=True)
        batch = batch.take(pa.array(places))
        keys = {
            **_keys(batch),
            "error_code": column(parts, "error_code").take(pa.array(firsts)),
            "outside": pc.fill_null(pc.equal(column(batch, "member_id"), ""), False),
        }
        self._refused.add(self, batch, keys, partitions=counts)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._refused.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            name, passing = error_name(row["error_code"]), row["error_code"] == REBALANCE_IN_PROGRESS
            meaning, advice = _PASSING if passing else _OUTSIDE if row["outside"] else _LATE
            yield self.row_finding(
                row,
                evidence,
                "note" if passing else "warning",
                f"{plural(row['count'], 'commit')} of {client(row)} to group {word(row['group_id'])}"
                f"{in_cluster(self.clusters, row['cluster'])} refused with {name}",
                meaning=meaning,
                advice=advice,
                subject=("client_id", "client_ip", "group_id", "error_code"),
                values={"commits": row["count"], "partitions": row["partitions"]},
            )
