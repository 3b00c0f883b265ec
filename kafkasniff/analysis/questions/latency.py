"""Response times of brokers: latency percentiles by API, broker, client and time span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.sql.question import SqlQuestion, ranked
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, long_poll_sql
from kafkasniff.errors import UsageError

_TIMES: Final = {"min_us": "low", "p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "max_us": "high"}


class LatencyParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Latency`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions of the answer.")] = ("api",)
    every: Annotated[Duration, Meta(ge=0, description="Width of time spans; 0: all in one.")] = 0
    long_polls: Annotated[bool, Meta(description="Percentiles and mean include long polls.")] = False


class Latency(SqlQuestion[LatencyParameters]):
    """Percentiles of `latency_us`: from the request's last byte to the response's first, at the point of capture.

    Long polls, which ask the broker to wait for data or for members of a group, are counted apart: their latency shows
    when these came. By topic, an exchange counts for each topic that it names. Percentiles are exact.
    """

    name: ClassVar[str] = "latency"
    summary: ClassVar[str] = "Latency percentiles by API, broker, client and time."
    columns: ClassVar[Mapping[str, str]] = {
        "api": "name, or key of an unknown API; null for a response without its request",
        "count": "answered exchanges with a known latency, without long polls",
        "long_polls": "long polls with a known latency, which the other columns omit",
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
        polls = () if self.parameters.long_polls else LONG_POLL_COLUMNS
        return {"exchanges": TableReading(tuple(dict.fromkeys((*self._dimensions.reads, "latency_us", *polls))))}

    def pieces(self) -> dict[str, str]:
        is_long_poll = "false" if self.parameters.long_polls else long_poll_sql()
        pieces = self._dimensions.pieces
        return {**pieces, "is_long_poll": is_long_poll, "ranked": ranked(pieces["keys"])}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = ("count", "long_polls", "total", *_TIMES.values())
        return [*self._dimensions.keys, *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns = {
            **self._dimensions.answer(found),
            **{name: found.column(name) for name in ("count", "long_polls")},
            "mean_us": ratio(found.column("total"), found.column("count")),
            **{name: found.column(source) for name, source in _TIMES.items()},
        }
        fields = [
            *self._dimensions.fields,
            ("count", pa.int64()),
            ("long_polls", pa.int64()),
            ("mean_us", pa.float64()),
            *((name, pa.int64()) for name in _TIMES),
        ]
        return table_of(columns, fields, [(name, "ascending") for name, _ in self._dimensions.fields])
