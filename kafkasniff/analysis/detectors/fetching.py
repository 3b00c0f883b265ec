"""Consumers that fetch over and over and get nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, floor_divided, in_any, integers, only
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape

_APIS = ("Fetch", "ShareFetch")


class EmptyFetchThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `EmptyFetches`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which fetches are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="Report at least this many empty fetches of a client at a broker in a span …")
    ] = 200
    share: Annotated[float, Meta(ge=0, le=1, description="… that are at least this fraction of all its fetches …")] = (
        0.9
    )
    wait: Annotated[
        Duration, Meta(ge=0, description="… and were answered in less than this time on average: a loop.")
    ] = 100_000_000


class EmptyFetches(Detector[EmptyFetchThresholds]):
    """Runs of empty fetches that the broker answers at once.

    A consumer that has read everything normally waits at the broker for `fetch.max.wait.ms` (500 ms). Throttled fetches
    do not count.

    Caveats: a consumer that asks for no wait looks the same. Open transactions can make a read_committed fetch return
    early and empty.
    """

    name: ClassVar[str] = "empty-fetches"
    summary: ClassVar[str] = "Consumers that fetch in a loop and get nothing."
    parameters_type = EmptyFetchThresholds

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", *CLIENT_COLUMNS, "broker_ip", "broker_port", "partitions", "error_count", "latency_us")
        return {"exchanges": TableReading((*ORDER, *own, "throttle_time_ms"), _APIS)}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("span", pa.int64()), *CLIENT, *BROKER)
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("fetches", "empty", "waited_us"))
        return {
            "spans": Shape(keys=keys, measures=sums, weight="empty", bound=1 << 18),
            "evidence": evidence_shape(keys),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        mask = pc.and_(in_any(batch, "api", _APIS), in_any(batch, "status", ["answered"]))
        # Without an error count the response could not be read, and its contents are unknown.
        batch = only(batch, pc.and_(mask, pc.equal(column(batch, "error_count"), 0)))
        # A fetch beyond its quota is answered immediately, without data (KafkaApis.handleFetchRequest).
        batch = only(batch, pc.equal(pc.fill_null(column(batch, "throttle_time_ms"), 0), 0))
        lists = column(batch, "partitions")
        parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        sizes = integers(pc.struct_field(pc.list_flatten(lists), "bytes"))
        empty = np.bincount(parents, weights=sizes, minlength=batch.num_rows)[: batch.num_rows] == 0
        keys = {
            "span": floor_divided(column(batch, "time_ns"), self.thresholds.every),
            **clients(batch, broker=True),
        }
        self.parts["spans"].add(
            {
                **keys,
                "fetches": np.ones(batch.num_rows, np.int64),
                "empty": empty.astype(np.int64),
                "waited_us": np.where(empty, integers(column(batch, "latency_us")), 0),
            }
        )
        shown = {name: values.filter(pa.array(empty)) for name, values in keys.items()}
        self.parts["evidence"].add(evidence_columns(only(batch, pa.array(empty)), shown))

    def findings(self) -> list[Finding]:
        evidence = self.evidence("evidence")
        loops: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        limits = self.thresholds
        for row in self.parts["spans"].table().to_pylist():
            empty = row["empty"]
            often = empty >= limits.at_least and empty >= limits.share * row["fetches"]
            if often and row["waited_us"] * 1000 < limits.wait * empty:
                loops.setdefault((row["client_id"], row["client_ip"], row["broker"]), []).append(row)
        return [self._finding(key, rows, evidence) for key, rows in loops.items()]

    def _finding(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], evidence: dict[tuple[Any, ...], tuple[Evidence, ...]]
    ) -> Finding:
        every = self.thresholds.every
        worst = max(rows, key=lambda row: (row["empty"], -(row["span"] or 0)))
        spans = [row["span"] for row in rows if row["span"] is not None]
        wait = worst["waited_us"] * 1000 // worst["empty"]
        return self.finding(
            "warning",
            f"{client(worst)} sent {worst['fetches']:,} fetches to {worst['broker']} within {elapsed(every)}; "
            f"{worst['empty']:,} returned nothing, after {elapsed(wait)} on average",
            meaning=(
                "The client repeatedly asks for data that does not exist yet, and the broker answers immediately: "
                "a busy loop."
            ),
            advice=(
                "Let the broker wait: set fetch.max.wait.ms to 500 and fetch.min.bytes to 1 or more. Fetch sessions "
                "that are evicted and recreated, and very short polls, look the same."
            ),
            subject=subject(worst, "client_id", "client_ip", "broker"),
            count=sum(row["empty"] for row in rows),
            first=min(spans) * every if spans else None,
            last=(max(spans) + 1) * every if spans else None,
            evidence=evidence.get((worst["span"], *key), ()),
            values={
                "fetches": worst["fetches"],
                "empty": worst["empty"],
                "mean_wait_ms": wait / 1e6,
                "spans": len(rows),
            },
        )
