"""Clients and brokers that stand out: connection churn, metadata storms, slow brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    TIME,
    column,
    datetimes,
    first_of_each,
    floor_divided,
    in_any,
    integers,
    only,
    ratio,
    table_of,
)
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.waits import WAIT_COLUMNS, may_have_waited, with_sender, work_us

_SUMS: Final = ("opened", "short", "reset", "without_requests", "requests")


class ChurnParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Churn`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which connections are counted.")] = 60_000_000_000
    short: Annotated[Duration, Meta(ge=0, description="A connection that lasted at most this long is short.")] = (
        1_000_000_000
    )
    at_least: Annotated[
        int, Meta(ge=1, description="Show only spans with at least this many connections of a client.")
    ] = 1


class Churn(Accumulator[ChurnParameters]):
    """Kafka connections by client and the time span in which they began, the most frequent first.

    `short`, `reset` and `without_requests` count connections that ended soon, by RST, or without a request: clients
    that are refused, probes of load balancers, and programs that create a client for each message. If a client uses
    several ids on a connection, the first counts.
    """

    name: ClassVar[str] = "churn"
    summary: ClassVar[str] = "Connections per client over time, and how short they were."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "opened", "short", "client_ip", "time")
    columns: ClassVar[Mapping[str, str]] = {
        "client_id": "the first one on the connection",
        "opened": "Kafka connections that began in the span",
        "short": "those that ended within `--short`",
        "reset": "connections ended by RST",
        "without_requests": "connections without a request",
        "mean_life_us": "mean duration of the connections",
    }
    parameters_type = ChurnParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "end_time_ns", "client_ip", "client_ids", "verdict", "ended", "requests")
        return {"connections": TableReading(own)}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("span", pa.int64()), ("client_ip", pa.string()), ("client_id", pa.string()))
        sums: Any = tuple((name, pa.int64(), "sum") for name in (*_SUMS, "lived_us"))
        return {"connections": Shape(keys=keys, measures=sums, weight="opened")}

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        time = column(batch, "time_ns")
        lived = pc.subtract(column(batch, "end_time_ns"), time)
        # How long those that are open at the end of the capture last is unknown.
        ended = in_any(batch, "ended", ["fin", "rst"])
        short = pc.and_(ended, pc.fill_null(pc.less_equal(lived, self.parameters.short), False))
        requests = integers(column(batch, "requests"))
        self.parts["connections"].add(
            {
                "span": floor_divided(time, self.parameters.every),
                "client_ip": column(batch, "client_ip"),
                "client_id": first_of_each(column(batch, "client_ids")),
                "opened": np.ones(batch.num_rows, np.int64),
                "short": short.cast(pa.int64()),
                "reset": in_any(batch, "ended", ["rst"]).cast(pa.int64()),
                "without_requests": (requests == 0).astype(np.int64),
                "requests": requests,
                "lived_us": floor_divided(lived, 1000),
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["connections"].table()
        table = table.filter(pc.greater_equal(table.column("opened"), self.parameters.at_least))
        columns = {name: table.column(name) for name in ("client_ip", "client_id", *_SUMS)}
        columns["time"] = datetimes(pc.multiply(table.column("span"), self.parameters.every))
        columns["mean_life_us"] = ratio(table.column("lived_us"), table.column("opened"))
        fields = [
            ("time", TIME),
            ("client_ip", pa.string()),
            ("client_id", pa.string()),
            *((name, pa.int64()) for name in _SUMS),
            ("mean_life_us", pa.float64()),
        ]
        names = ("time", "client_ip", "client_id")
        return table_of(columns, fields, [("opened", "descending"), *((name, "ascending") for name in names)])


_STORM_SUMS: Final = ("requests", "all_topics", "response_bytes", "errors")


class MetadataStormParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `MetadataStorms`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which requests are counted.")] = 10_000_000_000
    at_least: Annotated[int, Meta(ge=1, description="This many requests of a client in a span are a storm.")] = 10


class MetadataStorms(Accumulator[MetadataStormParameters]):
    """Time spans in which a client sent many Metadata requests, the most frequent first.

    Clients normally send one at start, every five minutes, and when a leader has changed. Responses with all topics of
    the cluster are large.
    """

    name: ClassVar[str] = "metadata-storms"
    summary: ClassVar[str] = "Clients that request metadata too often."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "time", "requests", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "requests": "number of Metadata requests",
        "all_topics": "those for all topics of the cluster; known only with bodies",
        "errors": "responses with an error code",
    }
    parameters_type = MetadataStormParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            "api",
            "api_version",
            "time_ns",
            "client_id",
            "client_ip",
            "response_size",
            "error_count",
            "request_body",
        )
        return {"exchanges": TableReading(own, ("Metadata",))}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _STORM_SUMS)
        keys = (("span", pa.int64()), ("client_id", pa.string()), ("client_ip", pa.string()))
        return {"spans": Shape(keys=keys, measures=sums, weight="requests")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ["Metadata"]))
        # `topics` is the first field of the body, in every version.
        body = column(batch, "request_body")
        none = pc.and_(pc.starts_with(body, '{"topics":[]'), pc.equal(column(batch, "api_version"), 0))
        every = pc.or_(pc.starts_with(body, '{"topics":null'), none)
        errors = integers(column(batch, "error_count")) > 0
        self.parts["spans"].add(
            {
                "span": floor_divided(column(batch, "time_ns"), self.parameters.every),
                **{name: column(batch, name) for name in ("client_id", "client_ip")},
                "requests": pa.array([1] * batch.num_rows, pa.int64()),
                "all_topics": every.cast(pa.int64()),
                "response_bytes": column(batch, "response_size"),
                "errors": pa.array(errors).cast(pa.int64()),
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["spans"].table()
        table = table.filter(pc.greater_equal(table.column("requests"), self.parameters.at_least))
        columns = {name: table.column(name) for name in ("client_id", "client_ip", *_STORM_SUMS)}
        columns["time"] = datetimes(pc.multiply(table.column("span"), self.parameters.every))
        names = ("time", "client_id", "client_ip")
        fields = [
            ("time", TIME),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            *((name, pa.int64()) for name in _STORM_SUMS),
        ]
        return table_of(columns, fields, [("requests", "descending"), *((name, "ascending") for name in names)])


_QUANTILES: Final = {"p50_us": 0.5, "p99_us": 0.99}


class SlowBrokerParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `SlowBrokers`."""

    factor: Annotated[float, Meta(gt=0, description="This many times the median of its peers is slow.")] = 2.0
    at_least: Annotated[
        int, Meta(ge=1, description="Minimum number of responses of a broker to an API; fewer are not judged.")
    ] = 20


class SlowBrokers(Accumulator[SlowBrokerParameters]):
    """For each API the median latency of each broker compared with the median of the other brokers' medians.

    The slowest relative to its peers comes first. Exchanges in which the broker waited as requested, or may have, are
    skipped; time spent waiting for earlier requests and quotas is subtracted. Fetches of replicas and of the KRaft
    quorum are compared separately from those of clients. A broker without peers, or with too few responses, has neither
    ratio nor verdict.
    """

    name: ClassVar[str] = "slow-brokers"
    summary: ClassVar[str] = "Brokers that are slower than their peers, API by API."
    essential: ClassVar[tuple[str, ...]] = ("api", "broker", "p50_us", "peers_p50_us", "ratio", "slow")
    columns: ClassVar[Mapping[str, str]] = {
        "api": "name; `replica Fetch` and `quorum Fetch` are separate from `Fetch`, by sender",
        "count": "number of responses",
        "peers_p50_us": "median of the other brokers; null if none of them is judged",
        "ratio": "this broker's median divided by theirs",
        "slow": "whether `ratio` is at least `--factor`",
    }
    parameters_type = SlowBrokerParameters

    def check(self) -> None:
        """Brokers are shown by number and address."""
        self._dimensions = Dimensions(("api", "broker"))

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._dimensions.reads, "latency_us", *WAIT_COLUMNS))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(self._dimensions.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(may_have_waited(batch))))
        keys = {**self._dimensions.arrays(batch), "api": with_sender(batch)}
        self.parts["latencies"].add(distribution_rows(keys, pa.array(work_us(batch))))

    def result(self) -> pa.Table:
        keys, found = distributions(self.parts["latencies"], self._dimensions.names, _QUANTILES)
        columns: dict[str, Any] = {**self._dimensions.answer(keys), "count": found["count"]}
        columns |= {name: found[name] for name in _QUANTILES}
        # Brokers of another cluster are not peers.
        judged: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
        names = (keys.column(name).to_pylist() for name in ("broker", "api"))
        rows = zip(*names, found["count"].to_pylist(), found["p50_us"].to_pylist(), strict=True)
        for row, (broker, api, count, median) in enumerate(rows):
            if count >= self.parameters.at_least:
                judged.setdefault((self.clusters.group(broker), api), []).append((median, row))
        peers: list[int | None] = [None] * keys.num_rows
        for brokers in judged.values():
            brokers.sort()
            medians = [median for median, _ in brokers]
            for index, (_, row) in enumerate(brokers):
                # The lower middle element of the list without this one.
                middle = (len(medians) - 2) // 2
                if len(medians) > 1:
                    peers[row] = medians[middle if middle < index else middle + 1]
        ratios = [
            None if other is None or other <= 0 else median / other
            for median, other in zip(found["p50_us"].to_pylist(), peers, strict=True)
        ]
        slow = [None if one is None else one >= self.parameters.factor for one in ratios]
        columns |= {"peers_p50_us": peers, "ratio": ratios, "slow": slow}
        fields = [
            *self._dimensions.fields,
            ("count", pa.int64()),
            ("p50_us", pa.int64()),
            ("p99_us", pa.int64()),
            ("peers_p50_us", pa.int64()),
            ("ratio", pa.float64()),
            ("slow", pa.bool_()),
        ]
        order = [(name, "ascending") for name, _ in self._dimensions.fields]
        return table_of(columns, fields, [("ratio", "descending"), *order])
