"""Response times of brokers: latency percentiles by API, broker, client and time span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, only, ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError

__all__ = ["Latency", "LatencyParameters"]

_QUANTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99}


class LatencyParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Latency`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions of the answer.")] = ("api",)
    every: Annotated[Duration, Meta(ge=0, description="Width of time spans; 0: all in one.")] = 0


class Latency(Accumulator[LatencyParameters]):
    """Percentiles of `latency_us`: from the request's last byte to the response's first, at the point of capture.

    Intended waits of a broker (a Fetch without data, a JoinGroup) are included. A percentile is at most 0.4% off;
    count, mean and extremes are exact. By topic, an exchange counts for each topic that it names.
    """

    name: ClassVar[str] = "latency"
    summary: ClassVar[str] = "Latency percentiles by API, broker, client and time."
    columns: ClassVar[Mapping[str, str]] = {
        "api": "name, or key of an unknown API; null for a response without its request",
        "count": "answered exchanges with a known latency",
        "mean_us": "mean",
        "min_us": "shortest; negative if the capture has the response before its request",
        "max_us": "longest",
    }
    parameters_type = LatencyParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("latency: --by names at least one dimension")
        self._dimensions = Dimensions(self.parameters.by, self.parameters.every)

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._dimensions.reads, "latency_us"))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(self._dimensions.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = self._dimensions.spread(only(batch, pc.is_valid(column(batch, "latency_us"))), ["latency_us"])
        rows = distribution_rows(self._dimensions.arrays(batch), column(batch, "latency_us"))
        self.parts["latencies"].add(rows)

    def result(self) -> pa.Table:
        dimensions = self._dimensions
        keys, found = distributions(self.parts["latencies"], dimensions.names, _QUANTILES)
        columns = {
            **dimensions.answer(keys),
            **{name: found[name] for name in _QUANTILES},
            "count": found["count"],
            "mean_us": ratio(found["total"], found["count"]),
            "min_us": found["low"],
            "max_us": found["high"],
        }
        whole = [(name, pa.int64()) for name in ("min_us", *_QUANTILES, "max_us")]
        fields = [*dimensions.fields, ("count", pa.int64()), ("mean_us", pa.float64()), *whole]
        return table_of(columns, fields)
