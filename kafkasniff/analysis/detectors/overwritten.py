"""Records that were acknowledged, and whose offsets a later leader has given to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, exploded, floor_divided, in_any, named, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.analysis.detectors.tally import CLUSTER, CLUSTER_COLUMNS, clusters
from kafkasniff.analysis.detectors.wording import in_cluster, plural
from kafkasniff.analysis.partials import Shape
from kafkasniff.text.printable import word

_LOG: Final[Any] = (*CLUSTER, ("topic", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32()))
_SPAN_NS: Final = 10_000_000_000
MAX_SPANS: Final = 1 << 17
"""Maximum number of time spans of partitions that are kept; partitions with the fewest are dropped first."""

Row = dict[str, Any]


class OverwrittenThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OverwrittenRecords`."""

    at_least: Annotated[
        int, Meta(ge=1, description="Report from this many offsets that were given twice, in at least 3 requests.")
    ] = 3


class OverwrittenRecords(Detector[OverwrittenThresholds]):
    """Records that a broker acknowledged, and that are lost: a later leader has given their offsets to other records.

    This happens if a replica becomes leader that did not have these records: after an unclean election, or with acks=1,
    if the leader dies before its followers have fetched them. Retries keep the offset of the first attempt, so only
    offsets that the new leader gives without a gap count.

    Caveats: a topic that was deleted and created again looks the same if Produce requests have no topic ids (before
    version 13).
    """

    name: ClassVar[str] = "overwritten-records"
    summary: ClassVar[str] = "Acknowledged records that are lost, because a later leader did not have them."
    parameters_type = OverwrittenThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("api", *ORDER, *CLUSTER_COLUMNS, "partitions"), ("Produce",))}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        measures: Any = (
            *((name, number, "first") for name in ORDER),
            ("low", number, "min"),
            ("high", number, "max"),
            ("last", number, "max"),
            *((name, number, "sum") for name in ("records", "requests")),
        )
        keys = (*_LOG, ("broker", pa.string()), ("span", number))
        group = tuple(name for name, _ in _LOG)
        return {"spans": Shape(keys=keys, measures=measures, order=ORDER, group=group, bound=MAX_SPANS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["Produce"]), pc.is_valid(column(batch, "time_ns"))))
        batch = batch.append_column("broker", broker_endpoint(batch))
        rows = named(exploded(batch, [*ORDER, *CLUSTER_COLUMNS, "broker"]))
        stored = pc.and_(pc.equal(column(rows, "error_code"), 0), pc.greater_equal(column(rows, "offset"), 0))
        rows = only(rows, pc.and_(stored, pc.greater(column(rows, "record_count"), 0)))
        offset, count, time = (column(rows, name) for name in ("offset", "record_count", "time_ns"))
        names = (*(name for name, _ in _LOG if name != "cluster"), "broker", *ORDER)
        self.parts["spans"].add(
            {
                **clusters(rows),
                **{name: column(rows, name) for name in names},
                "span": floor_divided(time, _SPAN_NS),
                "low": offset,
                "high": pc.subtract(pc.add(offset, count), 1),
                "last": time,
                "records": count,
                "requests": np.ones(rows.num_rows, np.int64),
            }
        )

    def findings(self) -> Iterator[Finding]:
        logs: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.resolved("spans").to_pylist():
            logs.setdefault(tuple(row[name] for name, _ in _LOG), []).append(row)
        for rows in logs.values():
            rows.sort(key=lambda row: (row["time_ns"], row["connection_id"]))
            found = next(self._overwriting(rows), None)
            if found is not None:
                yield self._finding(*found)

    def _overwriting(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
        """The span with the highest offset before, and the first one of another broker that begins below."""
        for place, row in enumerate(rows):
            before = [one for one in rows[:place] if one["broker"] != row["broker"] and one["last"] < row["time_ns"]]
            top = max(before, key=lambda one: one["high"], default=None)
            if top is None or row["requests"] < 3 or row["records"] != row["high"] - row["low"] + 1:
                continue
            if min(top["high"], row["high"]) - row["low"] + 1 >= self.thresholds.at_least:
                yield top, row

    def _finding(self, top: Row, row: Row) -> Finding:
        lost = top["high"] - row["low"] + 1
        name = f"{word(row['topic'])}-{row['partition']}"
        return self.finding(
            "error",
            f"{plural(lost, 'acknowledged record')} of {name}{in_cluster(self.clusters, row['cluster'])} lost: "
            f"{top['broker']} gave offsets up to {top['high']:,}, and {row['broker']} continued at {row['low']:,}",
            meaning=(
                "The new leader did not have the last records of the old one, and gave their offsets to others. "
                "Producers got an acknowledgement for them. Consumers that had read further start over at the point "
                "where the logs differ, or skip what was written there."
            ),
            advice=(
                "Set acks=all and min.insync.replicas=2 with three replicas, and leave unclean.leader.election.enable "
                "off. Find out which records are missing from the producers' own data, at these offsets and times."
            ),
            subject={"topic": row["topic"], "partition": row["partition"]}
            | ({} if row["cluster"] is None else {"cluster": row["cluster"]}),
            count=lost,
            first=row["time_ns"],
            last=row["last"],
            evidence=(
                Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"first request to {row['broker']}"),
            ),
            values={"before": top["broker"], "after": row["broker"], "high": top["high"], "low": row["low"]},
        )
