"""Counts by time span: exchanges by API, error codes, latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, integers, only
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.overview.apis import NOT_ANSWERED
from kafkasniff.analysis.overview.section import TEXT, api_labels
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.percentiles import middle_of
from kafkasniff.analysis.questions.errors import error_codes
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, is_long_poll
from kafkasniff.report.spans import START, OverTime

__all__ = ["EDGES", "QUANTILES", "ErrorsOverTime", "LatenciesOverTime", "TrafficOverTime", "histogram"]

MAX_ROWS: Final = 1 << 17
"""Maximum number of rows of a count by span; there are some hundred spans, and fewer APIs and error codes."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EDGES: Final = tuple(round(step * 10**power) for power in range(9) for step in (1, 2, 5))
"""Bounds in microseconds between which a histogram counts latencies: 1 µs to 500 s, three per power of ten."""


class TrafficOverTime(OverTime):
    """Exchanges and bytes by span and API."""

    name: ClassVar[str] = "report-traffic"
    summary: ClassVar[str] = "Exchanges and bytes over time."

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "api", "api_key", "status", "request_size", "response_size")
        return {"exchanges": TableReading(own)}

    def counted(self) -> Mapping[str, Shape]:
        names = ("exchanges", "unanswered", "request_bytes", "response_bytes")
        measures: Any = tuple((name, pa.int64(), "sum") for name in names)
        return {"traffic": Shape(keys=(START, ("api", TEXT)), measures=measures, weight="exchanges", bound=MAX_ROWS)}

    def count(self, batch: pa.RecordBatch, starts: pa.Array) -> None:
        unanswered = pc.is_in(column(batch, "status"), value_set=pa.array(NOT_ANSWERED, TEXT))
        self.parts["traffic"].add(
            {
                "start": starts,
                "api": api_labels(batch),
                "exchanges": np.ones(batch.num_rows, np.int64),
                "unanswered": unanswered.cast(pa.int64()),
                "request_bytes": pc.fill_null(column(batch, "request_size"), 0),
                "response_bytes": pc.fill_null(column(batch, "response_size"), 0),
            }
        )

    def result(self) -> pa.Table:
        """Rows by `start` and `api`, in that order; those without a time last."""
        return self.spans("traffic").sort_by([("start", "ascending"), ("api", "ascending")])


class ErrorsOverTime(OverTime):
    """Error codes by span."""

    name: ClassVar[str] = "report-errors"
    summary: ClassVar[str] = "Error codes over time."

    _OWN: ClassVar = ("api_key", "error_code", "error_count", "partitions", "response_body")

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("time_ns", *self._OWN))}

    def counted(self) -> Mapping[str, Shape]:
        measures: Any = (("errors", pa.int64(), "sum"),)
        return {"errors": Shape(keys=(START, ("code", pa.int32())), measures=measures, weight="errors", bound=MAX_ROWS)}

    def count(self, batch: pa.RecordBatch, starts: pa.Array) -> None:
        wrong = pc.fill_null(pc.greater(column(batch, "error_count"), 0), False)
        found = error_codes(only(batch, wrong))
        begin = starts.filter(wrong).take(found.column("row"))
        self.parts["errors"].add({"start": begin, "code": found.column("code"), "errors": found.column("times")})

    def result(self) -> pa.Table:
        """Rows by `start` and `code`, in that order; those without a time last."""
        return self.spans("errors").sort_by([("start", "ascending"), ("code", "ascending")])


class LatenciesOverTime(OverTime):
    """Distributions of each API's latencies without long polls, by span and in total."""

    name: ClassVar[str] = "report-latencies"
    summary: ClassVar[str] = "Distributions of latencies over time."

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("time_ns", "api", "api_key", "latency_us", *LONG_POLL_COLUMNS))}

    def counted(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape((START, ("api", TEXT)))}

    def count(self, batch: pa.RecordBatch, starts: pa.Array) -> None:
        known = pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(is_long_poll(batch)))
        keys = {"start": starts.filter(known), "api": api_labels(batch).filter(known)}
        self.parts["latencies"].add(distribution_rows(keys, column(batch, "latency_us").filter(known)))

    def result(self) -> pa.Table:
        """By `start` and `api`: `count`, `low`, `high` and `QUANTILES` in µs; rows without a time are skipped."""
        self.spans("latencies")
        keys, found = distributions(self.parts["latencies"], ["start", "api"], QUANTILES)
        columns = {"start": keys.column("start"), "api": keys.column("api")}
        columns |= {name: found[name] for name in ("count", "low", "high", *QUANTILES)}
        table = pa.table(columns)
        return table.filter(pc.is_valid(table.column("start")))

    def histograms(self, apis: Sequence[str]) -> dict[str, list[int]]:
        """The number of latencies of some APIs between the `EDGES`: one count more than edges, the ends open."""
        part = self.parts["latencies"]
        return {api: histogram(part.table(), api, part.lost.level) for api in apis}


def histogram(latencies: pa.Table, api: str, level: int = 0) -> list[int]:
    """For the rows of one API, the number of values below each of the `EDGES`, and above the last one."""
    rows = latencies.filter(pc.equal(latencies.column("api"), api))
    values = middle_of(integers(rows.column("bucket")), level)
    places = np.searchsorted(np.array(EDGES), values, side="right")
    counts = np.bincount(places, weights=integers(rows.column("count")), minlength=len(EDGES) + 1)
    return [int(one) for one in counts]
