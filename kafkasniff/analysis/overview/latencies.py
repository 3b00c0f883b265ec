"""Latencies by API, without long polls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, only, ratio, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, is_long_poll

__all__ = ["ApiLatencies"]

_APIS: Final = Dimensions(("api",))
_QUANTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99}


class ApiLatencies(Accumulator[Parameters]):
    """Percentiles at most 0.4% off; `api` is null for responses without their requests."""

    name: ClassVar[str] = "latencies"

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*_APIS.reads, "latency_us", *LONG_POLL_COLUMNS))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(_APIS.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(is_long_poll(batch))))
        self.parts["latencies"].add(distribution_rows(_APIS.arrays(batch), column(batch, "latency_us")))

    def result(self) -> pa.Table:
        keys, found = distributions(self.parts["latencies"], _APIS.names, _QUANTILES)
        columns = {
            **_APIS.answer(keys),
            **{name: found[name] for name in _QUANTILES},
            "count": found["count"],
            "mean_us": ratio(found["total"], found["count"]),
            "max_us": found["high"],
        }
        whole = [(name, pa.int64()) for name in ("count", *_QUANTILES, "max_us")]
        return table_of(columns, [*_APIS.fields, ("mean_us", pa.float64()), *whole])
