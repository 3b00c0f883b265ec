"""Topics whose traffic goes to few of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, in_any, integers, named, only
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import CLUSTER, CLUSTER_COLUMNS, clusters
from kafkasniff.analysis.detectors.wording import in_cluster, percent, plural, subject, times_as_much
from kafkasniff.analysis.partials import Shape
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word

MAX_PARTITIONS: Final = 1 << 18
"""Maximum number of partitions whose traffic is counted; those with the least are dropped first."""
_KEYS: Final = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int32()))
METADATA: Final = ("Metadata", "DescribeTopicPartitions")
"""These show which partitions a topic has, including those without traffic."""


class SkewThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SkewedPartitions`."""

    factor: Annotated[float, Meta(gt=1, description="A partition with this many times its fair share is skewed.")] = 3.0
    records: Annotated[int, Meta(ge=1, description="Topics with fewer records in the capture are not judged.")] = 1000


class SkewedPartitions(Detector[SkewThresholds]):
    """Partitions that get far more produced records than an equal share over all partitions of their topic.

    Only partitions that the capture names count.

    Caveats: a short capture shows the partition that a sticky partitioner is currently filling. Without a Metadata
    response, partitions without traffic are unknown.
    """

    name: ClassVar[str] = "skewed-partitions"
    summary: ClassVar[str] = "Topics with most of their traffic in few partitions."
    parameters_type = SkewThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading((*ORDER, "api", *CLUSTER_COLUMNS, "partitions"), ("Produce", "Fetch", *METADATA))
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = (("records", pa.int64(), "sum"), ("bytes", pa.int64(), "sum"))
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {
            "partitions": Shape(keys=_KEYS, measures=(*sums, *times), weight="records", bound=MAX_PARTITIONS),
            "evidence": evidence_shape(_KEYS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ("Produce", "Fetch", *METADATA)))
        rows = named(exploded(batch, [*ORDER, "api", *CLUSTER_COLUMNS]))
        rows = only(rows, pc.and_(pc.is_valid(column(rows, "topic")), pc.greater_equal(column(rows, "partition"), 0)))
        if not rows.num_rows:
            return
        produced = in_any(rows, "api", ["Produce"]).to_numpy(zero_copy_only=False)
        time = pc.if_else(pa.array(produced), column(rows, "time_ns"), pa.scalar(None, pa.int64()))
        keys = _keys(rows)
        self.parts["partitions"].add(
            {
                **keys,
                "records": np.where(produced, integers(column(rows, "record_count")), 0),
                "bytes": np.where(produced, integers(column(rows, "bytes")), 0),
                "first": time,
                "last": time,
            }
        )
        produced_rows = only(rows, pa.array(produced))
        self.parts["evidence"].add(evidence_columns(produced_rows, _keys(produced_rows)))

    def findings(self) -> Iterator[Finding]:
        topics: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for row in self.resolved("partitions").to_pylist():
            topics.setdefault((row["cluster"], row["topic"]), []).append(row)
        evidence = self.evidence("evidence")
        for (cluster, topic), rows in topics.items():
            records = sum(row["records"] for row in rows)
            hottest = max(rows, key=lambda row: (row["records"], -row["partition"]))
            if records < self.thresholds.records or not _is_skewed(hottest, rows, records, self.thresholds.factor):
                continue
            share, fair = hottest["records"] / records, 1 / len(rows)
            idle = sum(not row["records"] for row in rows)
            silent = f"; {plural(idle, 'partition')} got none" if idle else ""
            yield self.finding(
                "warning",
                f"partition {hottest['partition']} of {word(topic)}{in_cluster(self.clusters, cluster)} got "
                f"{percent(share)} of {plural(records, 'record')} ({amount(hottest['bytes'])}), "
                f"{times_as_much(share / fair)} its fair share among {plural(len(rows), 'partition')}{silent}",
                meaning=(
                    "One broker and one consumer of a group do most of the work; more partitions or consumers do "
                    "not help. The usual causes are few keys, or one key that is much more frequent than others."
                ),
                advice=(
                    "Look at the keys (`analyze topic`, `decode -vv --topic`): spread a hot key by adding a "
                    "suffix, send no key where order does not matter, and check for a custom partitioner."
                ),
                subject=subject(hottest, "topic", "partition"),
                count=hottest["records"],
                first=hottest["first"],
                last=hottest["last"],
                evidence=evidence.get((cluster, topic, hottest["partition"]), ()),
                values={
                    "share": share,
                    "factor": share / fair,
                    "partitions": len(rows),
                    "idle": idle,
                    "records": records,
                    "bytes": sum(row["bytes"] for row in rows),
                },
            )


def _keys(rows: pa.RecordBatch) -> dict[str, Any]:
    return {**clusters(rows), **{name: column(rows, name) for name in ("topic", "partition")}}


def _is_skewed(hottest: dict[str, Any], rows: list[dict[str, Any]], records: int, factor: float) -> bool:
    """By the factor; for topics with fewer partitions than that, if nearly all records go to one."""
    if len(rows) == 1:
        return False
    wanted = min(factor / len(rows), _NEARLY_ALL)
    return bool(hottest["records"] / records >= wanted)


_NEARLY_ALL: Final = 0.9
