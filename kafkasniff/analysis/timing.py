"""Aggregated timing of exchanges by API, client and broker; from captures, or as far as exports have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta
from numpy.typing import NDArray

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, integers, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.errors import UsageError
from kafkasniff.kafka.connection.waits import waiting_apis
from kafkasniff.model import NO_TIME
from kafkasniff.timing import (
    PARTS,
    SUBJECTS,
    Ints,
    Marks,
    TimedColumns,
    Wait,
    Waits,
    answers_at_once,
    split,
    wait_of,
)

TimingDimension = Literal["api", "version", "broker", "client", "address", "topic", "connection"]

MEASURES: Final = ("duration", "latency", "transfer", *PARTS, "throttled", "may_wait")
"""`transfer`: request and response together, for exports, which do not separate them; others: `timing.TimeParts`."""
TROUBLE: Final = ("client_again", "broker_again", "client_late", "broker_late", "client_closed_ns", "broker_closed_ns")
"""Fields of `timing.Trouble`: who sent the packets, and what went wrong with them."""
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_FOUND: Final = ("count", "total", *_QUANTILES, "max")
_COUNTS: Final = ("exchanges", "timed", "retransmits", *TROUBLE)

_OF_EXPORTS: Final = (
    "api",
    "api_key",
    "api_version",
    "latency_us",
    "duration_us",
    "throttle_time_ms",
    "error_code",
    "error_count",
    "partitions",
    "retransmits",
    "request_body",
    "behind_us",
    "muted_us",
)
_TIMED: Final = (
    ("api", pa.string()),
    ("api_key", pa.int32()),
    ("api_version", pa.int32()),
    ("broker_id", pa.int32()),
    ("broker_ip", pa.string()),
    ("broker_port", pa.int32()),
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("topics", pa.list_(pa.string())),
    ("connection_id", pa.int64()),
    ("retransmits", pa.int64()),
    *((name, pa.int64()) for name in (*MEASURES, *TROUBLE)),
)
TIMED: Final = pa.schema(list(_TIMED))
"""Rows of `timed_rows`; measures in nanoseconds."""


class TimingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Timing`."""

    by: Annotated[tuple[TimingDimension, ...], Meta(description="Dimensions of the answer.")] = ("api",)


class Timing(Accumulator[TimingParameters]):
    """For each group the number of exchanges, and of each part of their time the sum, percentiles and maximum.

    A part counts in the exchanges in which it took any time: `count` is their number, and percentiles cover only those.
    Rows of the table `exchanges` have latencies, transfers, throttling and the waits that requests ask for; those made
    by `timed_rows` (table `timed`) have all parts. By topic, an exchange counts for each of its topics.
    """

    name: ClassVar[str] = "timing"
    summary: ClassVar[str] = "Where the time of exchanges was spent: clients, network, brokers, intended waits."
    parameters_type = TimingParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("timing: --by names at least one dimension")
        by: Sequence[Dimension] = self.parameters.by
        self.dimensions = Dimensions(by)

    def reads(self) -> Mapping[str, TableReading]:
        """The table `exchanges`; rows of the table `timed` are made by `timed_rows`."""
        return {"exchanges": TableReading((*self.dimensions.reads, *_OF_EXPORTS))}

    def shapes(self) -> Mapping[str, Shape]:
        """Values by group and part, and counts by group."""
        keys = (*self.dimensions.keys, ("part", pa.string()))
        sums: Any = tuple((name, pa.int64(), "sum") for name in _COUNTS)
        return {
            "times": distribution_shape(keys),
            "counts": Shape(keys=self.dimensions.keys, measures=sums, weight="exchanges"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of `exchanges`, or of `timed`."""
        rows = batch if table == "timed" else _of_export(batch, self.dimensions.reads)
        rows = self.dimensions.spread(rows, [*MEASURES, *TROUBLE, "retransmits"])
        keys = self.dimensions.arrays(rows)
        counts = {name: integers(column(rows, name)) for name in ("retransmits", *TROUBLE)}
        counts["timed"] = integers(pc.is_valid(column(rows, "duration")))
        counts["exchanges"] = integers(pa.array([1] * rows.num_rows, pa.int64()))
        self.parts["counts"].add({**keys, **counts})
        for name in MEASURES:
            values = column(rows, name)
            there = pc.fill_null(pc.greater(values, 0), False)
            if not pc.any(there).as_py():
                continue
            some = {key: array.filter(there) for key, array in keys.items()}
            taken = values.filter(there)
            some["part"] = pa.array([name] * len(taken), pa.string())
            self.parts["times"].add(distribution_rows(some, taken))

    def result(self) -> pa.Table:
        """A row for each group, those with the most time first: counts, and count, sum and percentiles of each part."""
        names = self.dimensions.names
        keys, found = distributions(self.parts["times"], (*names, "part"), _QUANTILES)
        # Exact sums and extremes, percentiles by buckets.
        values_of = {name: found["high" if name == "max" else name].to_pylist() for name in _FOUND}
        places = {tuple(row.values()): index for index, row in enumerate(keys.select([*names, "part"]).to_pylist())}
        counts = self.parts["counts"].table()
        groups = [tuple(row.values()) for row in counts.select(list(names)).to_pylist()]
        columns: dict[str, Any] = {**self.dimensions.answer(counts)}
        columns |= {name: counts.column(name) for name in _COUNTS}
        for part in MEASURES:
            where = [places.get((*group, part)) for group in groups]
            for name in _FOUND:
                values = values_of[name]
                columns[_named(part, name)] = [0 if index is None else _unit(name, values[index]) for index in where]
        columns |= {
            name.replace("_ns", "_us"): pc.divide(counts.column(name), 1000) for name in TROUBLE if name.endswith("_ns")
        }
        fields = [
            *self.dimensions.fields,
            *((name.replace("_ns", "_us"), pa.int64()) for name in _COUNTS),
            *((_named(part, name), pa.int64()) for part in MEASURES for name in _FOUND),
        ]
        order = [(name, "ascending") for name, _ in self.dimensions.fields]
        return table_of(columns, fields, [("duration_total_us", "descending"), *order])


def _named(part: str, name: str) -> str:
    return f"{part}_{name}" if name == "count" else f"{part}_{name}_us"


def _unit(name: str, value: int) -> int:
    return value if name == "count" else value // 1000


def timed_rows(timed: TimedColumns) -> pa.RecordBatch:
    """Exchanges of captures as rows of the table `timed`, without the subjects that they lack."""
    marks, networks = timed.marks, {}
    for name in ("again", "late", "closed_ns"):
        for side, whose in enumerate(("client", "broker")):
            networks[f"{whose}_{name}"] = timed.of_network(name, side, 0)
    own = {"duration": marks.duration, "latency": marks.latency}
    arrays = {name: pa.array(values, mask=~timed.timed) for name, values in own.items()}
    arrays |= {name: timed.subjects.column(name) for name in timed.subjects.schema.names}
    arrays |= {name: pa.array(values) for name, values in (*timed.parts._asdict().items(), *networks.items())}
    schema = pa.schema([field for field in TIMED if field.name in arrays or field.name not in SUBJECTS.names])
    # Numbers of brokers may become known later; the code that shows the answer fills them in.
    made = [arrays.get(field.name, pa.nulls(len(timed), field.type)).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _of_export(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Rows of an export's table as rows of `timed`: values that the table lacks are null."""
    count = batch.num_rows
    parts, known = _parts(batch)
    arrays: dict[str, Any] = {name: column(batch, name) for name in keys}
    arrays["retransmits"] = column(batch, "retransmits")
    arrays |= {
        name: pa.array(parts[name], mask=~known) if name in parts else pa.nulls(count, pa.int64()) for name in MEASURES
    }
    arrays |= {name: pa.array([0] * count, pa.int64()) for name in TROUBLE}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _parts(batch: pa.RecordBatch) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
    """The parts of the time that rows of an export have, in nanoseconds, and which rows have any."""
    given = {name: column(batch, name) for name in ("latency_us", "duration_us")}
    known = np.logical_and.reduce([one.is_valid().to_numpy(zero_copy_only=False) for one in given.values()])
    latency, duration = (_numbers(one) * 1000 for one in given.values())
    known &= (latency >= 0) & (duration >= latency)
    times = ("throttle_time_ms", "behind_us", "muted_us")
    throttle, behind, muted = (np.maximum(_numbers(column(batch, name)), 0) for name in times)
    throttle, behind, muted = throttle * 1_000_000, behind * 1000, muted * 1000
    versions = zip(column(batch, "api_key").to_pylist(), column(batch, "api_version").to_pylist(), strict=True)
    at_once = np.array([answers_at_once(*version) for version in versions], bool)
    held = np.where(~at_once & (muted >= throttle), throttle, 0)
    none, start = np.full(len(known), NO_TIME, np.int64), np.zeros(len(known), np.int64)
    part_columns = split(
        Marks(
            *(start, start, latency, duration),
            np.where(behind > 0, behind, none),
            *(none, none),
            np.where(muted > held, behind + muted - held, none),
        ),
        network=none,
        waits=_waits(batch),
        throttle_ns=throttle,
        at_once=at_once,
        timed=known,
    )
    own = {name: getattr(part_columns, name) for name in ("behind", "muted", "held", "wait", "broker", "may_wait")}
    return {**own, "duration": duration, "latency": latency, "transfer": duration - latency}, known


def _numbers(values: pa.Array) -> Ints:
    numbers: Ints = pc.fill_null(values, 0).cast(pa.int64()).to_numpy()
    return numbers


def _waits(batch: pa.RecordBatch) -> Waits:
    """The waits that requests asked for, as far as the rows have their bodies."""
    bodies = column(batch, "request_body")
    waiting = pc.and_(bodies.is_valid(), pc.is_in(column(batch, "api"), pa.array(list(waiting_apis()))))
    rows = np.flatnonzero(waiting.to_numpy(zero_copy_only=False))
    names = ("api_key", "throttle_time_ms", "error_code", "error_count")
    own = zip(*(column(batch, name).take(pa.array(rows)).to_pylist() for name in names), strict=True)
    texts, fetched = bodies.take(pa.array(rows)).to_pylist(), _fetched(batch)
    waits: list[Wait | None] = [None] * batch.num_rows
    for row, body, (key, throttle, error, errors) in zip(rows.tolist(), texts, own, strict=True):
        # From the response only these two are needed.
        response = {"throttle_time_ms": max(throttle or 0, 0), "error_code": error}
        waits[row] = wait_of(key, _body(body), response, fetched[row], errors or 0)
    return Waits.of(waits)


def _fetched(batch: pa.RecordBatch) -> list[int]:
    """Bytes of record batches in each exchange."""
    partitions = column(batch, "partitions")
    parents = pc.list_parent_indices(partitions)
    flat = pc.list_flatten(partitions)
    place = flat.type.get_field_index("bytes")
    sizes = [0] * batch.num_rows
    for row, size in zip(parents.to_pylist(), flat.flatten()[place].to_pylist(), strict=True):
        sizes[row] += size or 0
    return sizes


def _body(text: str) -> Mapping[str, Any] | None:
    """A body as in the tables; None if it is invalid."""
    try:
        body = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return body if isinstance(body, dict) else None
