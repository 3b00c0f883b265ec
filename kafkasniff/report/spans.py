"""Time spans whose width suits the whole duration, which is known only at the end.

Each width divides the next one, and spans begin at multiples of their width. So rows counted in narrow spans can later
be counted in wider ones, and the result is the same as if the width had been known from the beginning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters
from kafkasniff.analysis.columns import column, floor_divided
from kafkasniff.analysis.partials import Partials, Shape

__all__ = ["MAX_SPANS", "START", "WIDTHS", "OverTime", "width_of"]

MAX_SPANS: Final = 96
"""Maximum number of spans in a chart: as many as are distinguishable on a phone."""

_US, _MS, _S, _MIN, _H, _DAY = 1_000, 10**6, 10**9, 60 * 10**9, 3_600 * 10**9, 86_400 * 10**9
WIDTHS: Final = (
    *(number * _US for number in (10, 20, 100, 200)),
    *(number * _MS for number in (1, 2, 10, 20, 100, 200)),
    *(number * _S for number in (1, 2, 10, 20)),
    *(number * _MIN for number in (1, 2, 10, 20)),
    *(number * _H for number in (1, 2, 6, 12)),
    *(number * _DAY for number in (1, 2, 10, 20, 100, 200, 1_000, 2_000)),
)
"""Span widths in nanoseconds; `MAX_SPANS` of the widest exceed the range of 64-bit nanoseconds."""

START: Final = ("start", pa.int64())
"""The key column of rows by span: start of the span in nanoseconds since 1970; null: exchanges without a time."""

_EXTENT: Final = Shape(
    keys=(("what", pa.string()),),
    measures=(("low", pa.int64(), "min"), ("high", pa.int64(), "max")),
)


def width_of(low: int, high: int) -> int:
    """Width of a span in nanoseconds, so that at most `MAX_SPANS` fit between two times."""
    return next((width for width in WIDTHS if high // width - low // width < MAX_SPANS), WIDTHS[-1])


class OverTime(Accumulator[Parameters]):
    """Base of counts by span: all that see the same rows have the same spans."""

    name: ClassVar[str]

    def __init__(self, parameters: Parameters | None = None) -> None:
        super().__init__(parameters)
        self._width = WIDTHS[0]
        self.parts["extent"] = Partials(_EXTENT)

    @abstractmethod
    def counted(self) -> Mapping[str, Shape]:
        """The partial answers by name; each has `START` among its keys."""

    @abstractmethod
    def count(self, batch: pa.RecordBatch, starts: pa.Array) -> None:
        """Take rows of `exchanges`; `starts`: the start of each row's span."""

    def shapes(self) -> Mapping[str, Shape]:
        """As described in `counted`, and the times of the first and last row."""
        return {**self.counted(), "extent": _EXTENT}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of `exchanges`."""
        times = column(batch, "time_ns")
        if times.null_count < len(times):
            ends = pc.min_max(times)
            self.parts["extent"].add({"what": ["time"], "low": [ends["min"].as_py()], "high": [ends["max"].as_py()]})
        self._fit()
        self.count(batch, pc.multiply(floor_divided(times, self._width), self._width))

    def merge(self, other: OverTime) -> None:
        """Merge another's rows."""
        super().merge(other)
        self._fit(always=True)

    @property
    def width(self) -> int:
        """Width of a span in nanoseconds."""
        self._fit()
        return self._width

    def spans(self, name: str) -> pa.Table:
        """The rows of a partial answer, by the spans that suit the whole duration."""
        # Rows of a restored state may have narrower spans.
        self._fit(always=True)
        return self.parts[name].table()

    def _fit(self, *, always: bool = False) -> None:
        """Widen the spans to suit the duration seen so far."""
        extent = self.parts["extent"].table()
        width = self._width
        if extent.num_rows:
            width = width_of(extent.column("low")[0].as_py(), extent.column("high")[0].as_py())
        if width != self._width or always:
            self._width = width
            for name, shape in self.counted().items():
                self.parts[name] = _widened(self.parts[name], shape, width)


def _widened(part: Partials, shape: Shape, width: int) -> Partials:
    table = part.table()
    columns: dict[str, Any] = {name: table.column(name) for name in table.schema.names}
    columns["start"] = pc.multiply(floor_divided(columns["start"], width), width)
    made = Partials(shape, part.lost)
    made.add(columns)
    return made
