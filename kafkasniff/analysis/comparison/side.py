"""One side of a comparison: counts of its exchanges, by time span if they are tested statistically.

The duration of a capture is unknown in advance. Spans are 2**level nanoseconds long and begin at multiples of that
since 1970. The level is the lowest that needs at most `MAX_SPANS` of them from the first time to the last, so it only
rises while rows arrive, and two spans become one exactly. So the counts depend on the rows alone, not on their order or
batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, exploded, in_any, integers, is_follower, keys_of, only
from kafkasniff.analysis.overview.counts import TEXT, Brokers, Clients, api_labels, topic_names
from kafkasniff.analysis.partials import Lost, Partials, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape
from kafkasniff.analysis.waits import WAIT_COLUMNS, may_have_waited, with_sender, work_us
from kafkasniff.tables.rows.resolve import LearnedNames

MAX_SPANS: Final = 30
"""Schmeiser (1982): more than 30 batches hardly improve precision, and they are less independent."""
SPAN: Final = "span"

Integers = npt.NDArray[np.int64]


class SideSpans:
    """The spans of one side of a comparison."""

    def __init__(self) -> None:
        self.first: int | None = None
        """Nanoseconds since 1970, as `last`."""
        self.last: int | None = None
        self.level = 0

    def take(self, times: Integers) -> None:
        """Note that there are rows of these times."""
        if not len(times):
            return
        first, last = int(times.min()), int(times.max())
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        while (self.last >> self.level) - (self.first >> self.level) >= MAX_SPANS:
            self.level += 1

    @property
    def count(self) -> int:
        """Number of spans from the first to the last."""
        if self.first is None or self.last is None:
            return 0
        return (self.last >> self.level) - (self.first >> self.level) + 1

    @property
    def start(self) -> int:
        """The number of the first."""
        return 0 if self.first is None else self.first >> self.level

    def seconds(self) -> npt.NDArray[np.float64]:
        """How much of each span lies between the first and the last time."""
        if self.first is None or self.last is None:
            return np.zeros(0)
        edges = [(self.start + number) << self.level for number in range(self.count + 1)]
        edges[0], edges[-1] = self.first, self.last
        return np.array([(end - begin) / 1e9 for begin, end in pairwise(edges)])


class Spanned:
    """A partial answer with the key `span`, which follows the level of its spans."""

    def __init__(self, spans: SideSpans, shape: Shape) -> None:
        """`shape` without the key."""
        self._spans = spans
        group = tuple(name for name, _ in shape.keys) if shape.group is None else shape.group
        # A group dropped by the bound is dropped in all spans.
        self._shape = msgspec.structs.replace(shape, keys=(*shape.keys, (SPAN, pa.int64())), group=group)
        self._level = spans.level
        self._part = Partials(self._shape)

    def add(self, times: Integers, columns: Mapping[str, Any]) -> None:
        """Fold in rows of some times, which the spans already include."""
        self._follow()
        self._part.add({**columns, SPAN: times >> self._level})

    def part(self) -> Partials:
        """The rows, by spans of the present level."""
        self._follow()
        return self._part

    def table(self) -> pa.Table:
        """The same as a table."""
        return self.part().table()

    @property
    def lost(self) -> Lost:
        """What the bound has dropped."""
        return self._part.lost

    def _follow(self) -> None:
        rise = self._spans.level - self._level
        if not rise:
            return
        table, lost = self._part.table(), self._part.lost
        self._level = self._spans.level
        self._part = Partials(self._shape)
        columns = {name: table.column(name) for name in table.schema.names}
        self._part.add({**columns, SPAN: pc.shift_right(columns[SPAN], rise)})
        for name in Lost.__struct_fields__:
            setattr(self._part.lost, name, getattr(lost, name) + getattr(self._part.lost, name))


MAX_ROWS: Final = 1 << 17
"""Maximum number of rows of each partial answer: by API, error code or topic, and span; an answer has 30 numbers for
each of them.
"""

_API: Final = (("api", TEXT),)
_TOPIC: Final = (("topic", TEXT), ("topic_id", TEXT))
_COLUMNS: Final = (
    "time_ns",
    "api",
    "api_key",
    "api_version",
    "client_id",
    "request_size",
    "response_size",
    "latency_us",
    "error_code",
    "partitions",
    *WAIT_COLUMNS,
)
_OF_EXCHANGES: Final = ("exchanges", "requests", "responses", "request_bytes", "response_bytes")
_OF_TOPICS: Final = ("records", "batches", "bytes", "times")
_WAYS: Final = {"Produce": "produced", "Fetch": "fetched", "ShareFetch": "fetched"}

Sums = Mapping[str, npt.NDArray[np.int64]]
"""Counts by name, one number per span."""


class Latencies:
    """Latencies of one API: equally long arrays of spans (from 0), buckets (`percentiles`) and counts."""

    def __init__(self, spans: Any, buckets: Any, counts: Any, low: int, high: int) -> None:
        self.spans, self.buckets, self.counts = spans, buckets, counts
        self.low, self.high = low, high
        """The extremes, which are exact."""

    def matrix(self, axis: npt.NDArray[np.int64], spans: int) -> npt.NDArray[np.int64]:
        """Counts of spans by the buckets of `axis`, which contains at least all buckets here, ascending."""
        found = np.zeros((spans, len(axis)), np.int64)
        np.add.at(found, (self.spans, np.searchsorted(axis, self.buckets)), self.counts)
        return found


class Side:
    """Takes rows of the table `exchanges`, from exports or staged (`exports.staging`).

    `names` is learned from captures and set when they have been read. The counts depend on the rows alone.
    """

    def __init__(self) -> None:
        self.spans = SideSpans()
        self.names: LearnedNames | None = None
        self.exchanges = 0
        self.timeless = 0
        """Exchanges without a time, which have no span."""
        self._apis = Spanned(self.spans, _sums(_API, _OF_EXCHANGES, "exchanges"))
        self._latencies = Spanned(self.spans, distribution_shape(_API, coarsens=False))
        self._errors = Spanned(self.spans, _sums((*_API, ("error_code", pa.int32())), ("exchanges",), "exchanges"))
        self._topics = Spanned(self.spans, _sums((("flow", TEXT), *_TOPIC), _OF_TOPICS, "times"))
        self._versions = Partials(_sums((*_API, ("api_version", pa.int32())), ("exchanges",), "exchanges"))
        self._codecs = Partials(_sums((*_TOPIC, ("compression", TEXT)), ("batches",), "batches"))
        self._brokers, self._clients = Brokers(), Clients()

    def reads(self) -> TableReading:
        """The columns of `exchanges` that are needed."""
        peers = [name for one in (self._brokers, self._clients) for name in one.reads()["exchanges"].columns]
        return TableReading((*_COLUMNS, *peers))

    def update(self, batch: pa.RecordBatch, _table: str = "exchanges") -> None:
        """Take rows of the table."""
        self._brokers.update(batch)
        self._clients.update(batch)
        self.exchanges += batch.num_rows
        self.timeless += column(batch, "time_ns").null_count
        batch = batch.append_column("label", api_labels(batch))
        # Orphan responses answer an unknown request, so they belong to no API.
        batch = only(batch, pc.is_valid(column(batch, "label")))
        self._versions.add(
            {
                "api": column(batch, "label"),
                "api_version": column(batch, "api_version"),
                "exchanges": np.ones(batch.num_rows, np.int64),
            }
        )
        batch = only(batch, pc.is_valid(column(batch, "time_ns")))
        times = integers(column(batch, "time_ns"))
        self.spans.take(times)
        request, response = column(batch, "request_size"), column(batch, "response_size")
        self._apis.add(
            times,
            {
                "api": column(batch, "label"),
                "exchanges": np.ones(batch.num_rows, np.int64),
                "requests": pc.is_valid(request).cast(pa.int64()),
                "responses": pc.is_valid(response).cast(pa.int64()),
                "request_bytes": pc.fill_null(request, 0),
                "response_bytes": pc.fill_null(response, 0),
            },
        )
        known = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(may_have_waited(batch))))
        rows = distribution_rows({"api": with_sender(known, column(known, "label"))}, pa.array(work_us(known)))
        self._latencies.add(integers(column(known, "time_ns")), rows)
        self._partitions(batch.append_column("row", pa.array(np.arange(batch.num_rows))), times)

    def _partitions(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64]) -> None:
        """Take values from partitions: errors, and produced and fetched data."""
        parts = exploded(batch, ["row", "api", "client_id"])
        failed = [only(one, pc.not_equal(column(one, "error_code"), 0)) for one in (batch, parts)]
        # An exchange counts once for each of its codes.
        codes = pa.concat_tables(
            [pa.table({name: column(one, name) for name in ("row", "error_code")}) for one in failed]
        ).group_by(["row", "error_code"], use_threads=False)
        codes = codes.aggregate([])
        rows = codes.column("row")
        self._errors.add(
            times[rows.to_numpy()],
            {
                "api": column(batch, "label").take(rows),
                "error_code": codes.column("error_code"),
                "exchanges": np.ones(len(rows), np.int64),
            },
        )
        follower = is_follower(column(parts, "client_id"))
        parts = only(parts, pc.and_(in_any(parts, "api", _WAYS), pc.invert(follower)))
        flow = pc.if_else(in_any(parts, "api", ["Produce"]), "produced", "fetched")
        topics = {name: column(parts, name) for name, _ in _TOPIC}
        self._topics.add(
            times[column(parts, "row").to_numpy()],
            {
                "flow": flow,
                **topics,
                "records": pc.fill_null(column(parts, "record_count"), 0),
                "batches": pc.fill_null(column(parts, "batch_count"), 0),
                "bytes": pc.fill_null(column(parts, "bytes"), 0),
                "times": np.ones(parts.num_rows, np.int64),
            },
        )
        sent = only(parts, pc.and_(pc.equal(flow, "produced"), pc.greater(column(parts, "batch_count"), 0)))
        self._codecs.add(
            {name: column(sent, name) for name in ("topic", "topic_id", "compression")}
            | {"batches": column(sent, "batch_count")}
        )

    # -- results, when all rows have been taken -----------------------------------------------------------------------

    def apis(self) -> dict[str, Sums]:
        """By API, `exchanges`, `requests`, `responses`, `request_bytes` and `response_bytes` by span."""
        return {api: sums for (api,), sums in self._by_span(self._apis.table(), ["api"], _OF_EXCHANGES)}

    def versions(self) -> dict[str, dict[int | None, int]]:
        """By API and version, exchanges."""
        found: dict[str, dict[int | None, int]] = {}
        for row in self._versions.table().to_pylist():
            found.setdefault(row["api"], {})[row["api_version"]] = row["exchanges"]
        return found

    def latencies(self) -> dict[str, Latencies]:
        """By API."""
        table = self._latencies.table()
        keys, number = keys_of(table, ["api"])
        spans, buckets, counts = (integers(table.column(name)) for name in (SPAN, "bucket", "count"))
        found = {}
        for index, api in enumerate(keys.column("api").to_pylist()):
            here = number == index
            rows = table.filter(pa.array(here))
            low, high = pc.min(rows.column("low")).as_py(), pc.max(rows.column("high")).as_py()
            found[api] = Latencies(spans[here] - self.spans.start, buckets[here], counts[here], low, high)
        return found

    def errors(self) -> dict[tuple[str, int], Sums]:
        """By API and error code, `exchanges` by span that answered with it."""
        names = ["api", "error_code"]
        return {(api, code): sums for (api, code), sums in self._by_span(self._errors.table(), names, ["exchanges"])}

    def topics(self) -> dict[tuple[str, str | None], Sums]:
        """By direction (`produced`, `fetched`) and topic, `records`, `batches`, `bytes` and `times` by span."""
        table = topic_names(self._topics.table(), self.names)
        return {(flow, topic): sums for (flow, topic), sums in self._by_span(table, ["flow", "topic"], _OF_TOPICS)}

    def codecs(self) -> dict[str | None, dict[str, int]]:
        """By topic and codec, the number of produced batches."""
        found: dict[str | None, dict[str, int]] = {}
        for row in topic_names(self._codecs.table(), self.names).to_pylist():
            if row["compression"] is not None:
                codecs = found.setdefault(row["topic"], {})
                codecs[row["compression"]] = codecs.get(row["compression"], 0) + row["batches"]
        return found

    def clients(self) -> list[dict[str, Any]]:
        """Rows of `Clients`."""
        self._clients.names = self.names
        rows: list[dict[str, Any]] = self._clients.result().to_pylist()
        return rows

    def brokers(self) -> list[dict[str, Any]]:
        """Rows of `Brokers`."""
        self._brokers.names = self.names
        rows: list[dict[str, Any]] = self._brokers.result().to_pylist()
        return rows

    def notes(self) -> list[str]:
        """Caveats for the reader of the answer."""
        found = []
        if self.timeless:
            subject = "exchange without a time is" if self.timeless == 1 else "exchanges without a time are"
            found.append(f"{self.timeless:,} {subject} not included in rates, latencies and shares")
        parts: dict[str, Lost] = {
            "APIs": self._apis.lost,
            "latencies": self._latencies.lost,
            "errors": self._errors.lost,
            "topics": self._topics.lost,
            "versions": self._versions.lost,
            "codecs": self._codecs.lost,
        }
        for name, lost in parts.items():
            if lost.rows:
                found.append(f"{name}: the smallest ones were dropped ({lost.weight:,} in total)")
        for section in (self._brokers, self._clients):
            found += [f"{section.name.removeprefix('overview-')}: {note}" for note in section.notes()]
        return found

    def _by_span(
        self, table: pa.Table, names: Sequence[str], measures: Sequence[str]
    ) -> Iterator[tuple[tuple[Any, ...], Sums]]:
        """The groups of a table, each with its sums by span."""
        keys, number = keys_of(table, names)
        spans = integers(table.column(SPAN)) - self.spans.start
        found = {name: np.zeros((keys.num_rows, self.spans.count), np.int64) for name in measures}
        for name, sums in found.items():
            np.add.at(sums, (number, spans), integers(table.column(name)))
        columns = [keys.column(name).to_pylist() for name in names]
        for index, key in enumerate(zip(*columns, strict=True)):
            yield key, {name: sums[index] for name, sums in found.items()}


def _sums(keys: Any, names: Sequence[str], weight: str) -> Shape:
    measures: Any = tuple((name, pa.int64(), "sum") for name in names)
    return Shape(keys=tuple(keys), measures=measures, weight=weight, bound=MAX_ROWS)
