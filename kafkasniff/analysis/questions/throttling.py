"""Clients that brokers throttle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import TIME, column, datetimes, integers, ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError

__all__ = ["Throttling", "ThrottlingParameters"]

_SUMS: Final = ("exchanges", "throttled", "throttle_ms")


class ThrottlingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Throttling`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions of the answer.")] = ("client", "api", "broker")


class Throttling(Accumulator[ThrottlingParameters]):
    """Exchanges whose response has a throttle time, and the total; the longest first.

    Since KIP-219 (Kafka 2.0) a broker responds immediately and the client waits; older brokers wait themselves, and
    latencies include it. Rows without throttling are omitted.
    """

    name: ClassVar[str] = "throttling"
    summary: ClassVar[str] = "Clients that brokers throttle, and for how long."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "api", "broker", "throttled", "throttle_ms")
    columns: ClassVar[Mapping[str, str]] = {
        "throttled": "those with a throttle time above 0",
        "throttle_ms": "total throttle time",
        "max_ms": "longest throttle time",
        "mean_ms": "mean throttle time of throttled exchanges",
    }
    parameters_type = ThrottlingParameters

    def check(self) -> None:
        """A throttle time belongs to the exchange, not to a topic."""
        if not self.parameters.by or "topic" in self.parameters.by:
            raise UsageError("throttling: --by names at least one dimension, and not topic")
        self._dimensions = Dimensions(self.parameters.by)

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._dimensions.reads, "time_ns", "throttle_time_ms"))}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        rest: Any = (("max_ms", pa.int64(), "max"), ("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {"clients": Shape(keys=self._dimensions.keys, measures=(*sums, *rest), weight="throttle_ms")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        throttle = integers(column(batch, "throttle_time_ms"))
        throttled = throttle > 0
        times = pc.if_else(pa.array(throttled), column(batch, "time_ns"), pa.scalar(None, pa.int64()))
        self.parts["clients"].add(
            {
                **self._dimensions.arrays(batch),
                "exchanges": pa.array([1] * batch.num_rows, pa.int64()),
                "throttled": throttled.astype("int64"),
                "throttle_ms": throttle,
                "max_ms": throttle,
                "first": times,
                "last": times,
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["clients"].table()
        table = table.filter(pc.greater(table.column("throttled"), 0))
        columns = {
            **self._dimensions.answer(table),
            **{name: table.column(name) for name in (*_SUMS, "max_ms")},
            "mean_ms": ratio(table.column("throttle_ms"), table.column("throttled")),
            "first": datetimes(table.column("first")),
            "last": datetimes(table.column("last")),
        }
        fields = [
            *self._dimensions.fields,
            *((name, pa.int64()) for name in (*_SUMS, "max_ms")),
            ("mean_ms", pa.float64()),
            ("first", TIME),
            ("last", TIME),
        ]
        names = [(name, "ascending") for name, _ in self._dimensions.fields]
        return table_of(columns, fields, [("throttle_ms", "descending"), *names])
