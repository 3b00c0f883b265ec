"""Clients that request metadata too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import TIME, column, datetimes, floor_divided, in_any, integers, only, table_of
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape

_SUMS = ("requests", "all_topics", "response_bytes", "errors")


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
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
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
        columns = {name: table.column(name) for name in ("client_id", "client_ip", *_SUMS)}
        columns["time"] = datetimes(pc.multiply(table.column("span"), self.parameters.every))
        names = ("time", "client_id", "client_ip")
        fields = [
            ("time", TIME),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            *((name, pa.int64()) for name in _SUMS),
        ]
        return table_of(columns, fields, [("requests", "descending"), *((name, "ascending") for name in names)])
