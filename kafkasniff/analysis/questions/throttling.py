"""Clients that brokers throttle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import TIME, datetimes, ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.sql.question import SqlQuestion
from kafkasniff.errors import UsageError

_FOUND: Final = ("exchanges", "throttled", "throttle_ms", "max_ms")


class ThrottlingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Throttling`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions of the answer.")] = ("client", "api", "broker")


class Throttling(SqlQuestion[ThrottlingParameters]):
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

    def pieces(self) -> dict[str, str]:
        return self._dimensions.pieces

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*self._dimensions.keys, *((name, pa.int64()) for name in (*_FOUND, "first_ns", "last_ns"))]

    def finish(self, found: pa.Table) -> pa.Table:
        columns = {
            **self._dimensions.answer(found),
            **{name: found.column(name) for name in _FOUND},
            "mean_ms": ratio(found.column("throttle_ms"), found.column("throttled")),
            "first": datetimes(found.column("first_ns")),
            "last": datetimes(found.column("last_ns")),
        }
        fields = [
            *self._dimensions.fields,
            *((name, pa.int64()) for name in _FOUND),
            ("mean_ms", pa.float64()),
            ("first", TIME),
            ("last", TIME),
        ]
        names = [(name, "ascending") for name, _ in self._dimensions.fields]
        return table_of(columns, fields, [("throttle_ms", "descending"), *names])
