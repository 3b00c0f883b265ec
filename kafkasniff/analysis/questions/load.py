"""Load of brokers: latencies, throttling, open requests, and who talks most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, datetimes, floor_divided, ratio, table_of
from kafkasniff.analysis.dimensions import BROKER_SQL, Dimension, Dimensions
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


_SUMS: Final = ("requests", "request_bytes", "response_bytes", "bytes", "records", "with_errors")


class TalkerParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Talkers`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions that identify a talker.")] = (
        "client",
        "address",
        "software",
    )
    top: Annotated[int, Meta(ge=0, description="Number of rows; 0: all.")] = 20


class Talkers(SqlQuestion[TalkerParameters]):
    """Exchanges and bytes of requests and responses, the largest first.

    Bytes are those of messages, without the overhead of TCP and lower layers.
    """

    name: ClassVar[str] = "talkers"
    summary: ClassVar[str] = "Top talkers: bytes and requests by client and address."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "bytes", "requests", "client_ip", "share")
    columns: ClassVar[Mapping[str, str]] = {
        "requests": "number of requests; orphan responses count in bytes only",
        "bytes": "bytes of both",
        "records": "produced and fetched",
        "with_errors": "exchanges whose response has an error code",
        "share": "share of the bytes of all talkers, 0 to 1",
    }
    parameters_type = TalkerParameters

    def check(self) -> None:
        """An exchange has one row here, but would have several by topic."""
        if not self.parameters.by or "topic" in self.parameters.by:
            raise UsageError("talkers: --by names at least one dimension, and not topic (see the question topic)")
        self._dimensions = Dimensions(self.parameters.by)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "request_size", "response_size", "record_count", "error_count")
        return {"exchanges": TableReading((*self._dimensions.reads, *own))}

    def pieces(self) -> dict[str, str]:
        return self._dimensions.pieces

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*self._dimensions.keys, *((name, pa.int64()) for name in (*_SUMS, "first_ns", "last_ns"))]

    def finish(self, found: pa.Table) -> pa.Table:
        whole = pc.sum(found.column("bytes")).as_py() or 0
        columns = {
            **self._dimensions.answer(found),
            **{name: found.column(name) for name in _SUMS},
            "share": ratio(found.column("bytes"), pa.array([whole] * found.num_rows, pa.int64())),
            "first": datetimes(found.column("first_ns")),
            "last": datetimes(found.column("last_ns")),
        }
        fields = [
            *self._dimensions.fields,
            *((name, pa.int64()) for name in _SUMS),
            ("share", pa.float64()),
            ("first", TIME),
            ("last", TIME),
        ]
        names = [(name, "ascending") for name, _ in self._dimensions.fields]
        return table_of(columns, fields, [("bytes", "descending"), *names], self.parameters.top)


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


_SHOWN: Final[Any] = (
    ("status", pa.string()),
    ("api", pa.string()),
    ("api_version", pa.int32()),
    ("correlation_id", pa.int32()),
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("client_port", pa.int32()),
    ("broker_id", pa.int32()),
)


class OutstandingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Outstanding`."""

    status: Annotated[
        tuple[Literal["open", "unanswered", "lost"], ...],
        Meta(description="open: the capture ended; unanswered: the connection ended; lost: perhaps in a gap."),
    ] = ("open", "unanswered")


class Outstanding(SqlQuestion[OutstandingParameters]):
    """Requests without a response, one row each, the longest waiting first."""

    name: ClassVar[str] = "outstanding"
    summary: ClassVar[str] = "Requests that were still open at the end, or never answered."
    essential: ClassVar[tuple[str, ...]] = ("age_us", "api", "client_id", "status", "exchange", "broker", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "time": "time of the request",
        "age_us": "from `time` to the last event of any exchange in the table",
        "status": "open, unanswered or lost",
    }
    parameters_type = OutstandingParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = (*ORDER, "duration_us", *(name for name, _ in _SHOWN), "broker_ip", "broker_port")
        return {"exchanges": TableReading(own)}

    def pieces(self) -> dict[str, str]:
        statuses = ", ".join(f"'{one}'" for one in self.parameters.status)
        return {"statuses": statuses, "shown": ", ".join(name for name, _ in _SHOWN), "broker": BROKER_SQL}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*((name, pa.int64()) for name in (*ORDER, "end_ns")), *_SHOWN, ("broker", pa.string())]

    def finish(self, found: pa.Table) -> pa.Table:
        columns = {name: found.column(name) for name in found.column_names}
        columns["time"] = datetimes(found.column("time_ns"))
        columns["age_us"] = floor_divided(pc.subtract(found.column("end_ns"), found.column("time_ns")), 1000)
        fields = [
            ("time", TIME),
            ("age_us", pa.int64()),
            *_SHOWN,
            ("broker", pa.string()),
            ("connection_id", pa.int64()),
            ("exchange_id", pa.int64()),
        ]
        order = [("time", "ascending"), ("connection_id", "ascending"), ("exchange_id", "ascending")]
        return table_of(columns, fields, order)
