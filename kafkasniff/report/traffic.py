"""Counts by time span: exchanges by API, error codes, latencies.

The width of spans suits the whole duration, which is known only at the end. Each width divides the next one, and spans
begin at multiples of their width. So rows counted in narrow spans can later be counted in wider ones, and the result is
the same as if the width had been known from the beginning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, floor_divided, integers, only
from kafkasniff.analysis.overview.counts import NOT_ANSWERED, TEXT, api_labels
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions, middle_of
from kafkasniff.analysis.questions.errors import error_codes
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, is_long_poll

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


MAX_ROWS: Final = 1 << 17
"""Maximum number of rows of a count by span; there are some hundred spans, and fewer APIs and error codes."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EDGES: Final = tuple(round(step * 10**power) for power in range(9) for step in (1, 2, 5))
"""Bounds in microseconds between which a histogram counts latencies: 1 µs to 500 s, three per power of ten."""


class TrafficOverTime(OverTime):
    """Exchanges and bytes by span and API."""

    name: ClassVar[str] = "report-traffic"

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
    return [int(count) for count in counts]
