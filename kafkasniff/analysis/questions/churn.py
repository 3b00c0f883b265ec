"""Clients that keep opening new connections."""

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
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape

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
