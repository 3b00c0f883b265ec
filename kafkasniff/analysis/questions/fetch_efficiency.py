"""Efficiency of consumers: empty fetches, bytes and records per fetch by client and topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any, integers, only, per_topic, ratio, table_of
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError

__all__ = ["FetchEfficiency", "FetchEfficiencyParameters"]

_APIS: Final = ("Fetch", "ShareFetch")
_SUMS: Final = ("fetches", "empty", "failed", "bytes", "records", "waited_us")


class FetchEfficiencyParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `FetchEfficiency`."""

    by: Annotated[
        tuple[Literal["client", "topic"], ...],
        Meta(description="By client alone, a fetch is empty if no topic had data; by topic, if this topic had none."),
    ] = ("client", "topic")


class FetchEfficiency(Accumulator[FetchEfficiencyParameters]):
    """Answered fetches, how many of them returned nothing, and the data of the others.

    Many empty fetches with a short wait are a busy loop: a consumer at the end of its partitions normally waits for
    `fetch.max.wait.ms` each time. A fetch counts for each topic of its request or session (KIP-227; in sessions of more
    than 100 topics, of request and response), with `--by client` once.
    """

    name: ClassVar[str] = "fetch-efficiency"
    summary: ClassVar[str] = "Empty fetches, bytes and records per fetch, by client and topic."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "topic", "fetches", "empty", "failed", "bytes", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "topic": "null for fetches without a known topic, such as one that closes its session",
        "fetches": "answered fetches",
        "empty": "fetches without a record batch of this topic",
        "failed": "fetches whose response has an error code; not counted as empty",
        "empty_ratio": "empty fetches divided by all",
        "bytes_per_fetch": "mean over fetches with data",
        "records_per_fetch": "mean over fetches with data",
        "empty_wait_us": "mean latency of empty fetches",
    }
    parameters_type = FetchEfficiencyParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("fetch-efficiency: --by names client, topic or both")
        self._names = tuple(name for name in ("client", "topic") if name in self.parameters.by)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", "client_id", "client_ip", "topics", "partitions", "error_count", "latency_us")
        return {"exchanges": TableReading(own, _APIS)}

    def _keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        client = (("client_id", pa.string()), ("client_ip", pa.string())) if "client" in self._names else ()
        return (*client, ("topic", pa.string())) if "topic" in self._names else client

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        return {"fetches": Shape(keys=self._keys(), measures=sums, weight="fetches")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        mask = pc.and_(in_any(batch, "api", _APIS), in_any(batch, "status", ["answered"]))
        # Without an error count the response could not be read, and its contents are unknown.
        batch = only(batch, pc.and_(mask, pc.is_valid(column(batch, "error_count"))))
        rows = per_topic(batch)
        if "topic" in self._names:
            # A fetch without a known topic has a row, too.
            missing = np.setdiff1d(np.arange(batch.num_rows), integers(rows.column("row")))
            rows = pa.concat_tables([rows, pa.table({"row": missing})], promote_options="default")
        else:
            every = pa.table({"row": np.arange(batch.num_rows)})
            rows = pa.concat_tables([rows.drop_columns("topic"), every], promote_options="default")
            rows = rows.group_by("row").aggregate([("bytes", "sum"), ("record_count", "sum")])
            rows = rows.rename_columns(["row", "bytes", "record_count"])
        # Without the lists, which would be copied for each topic.
        fetches = batch.select(["client_id", "client_ip", "error_count", "latency_us"])
        fetches = fetches.take(rows.column("row").combine_chunks())
        size, records = integers(rows.column("bytes")), integers(rows.column("record_count"))
        failed = integers(column(fetches, "error_count")) > 0
        empty = (size == 0) & ~failed
        keys = {name: column(fetches, name) for name in ("client_id", "client_ip") if "client" in self._names}
        if "topic" in self._names:
            keys["topic"] = rows.column("topic")
        self.parts["fetches"].add(
            {
                **keys,
                "fetches": np.ones(len(size), np.int64),
                "empty": empty.astype(np.int64),
                "failed": failed.astype(np.int64),
                "bytes": size,
                "records": records,
                "waited_us": np.where(empty, integers(column(fetches, "latency_us")), 0),
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["fetches"].table()
        columns: dict[str, Any] = {name: table.column(name) for name in (*(name for name, _ in self._keys()), *_SUMS)}
        brought = pc.subtract(pc.subtract(columns["fetches"], columns["empty"]), columns["failed"])
        columns["empty_ratio"] = ratio(columns["empty"], columns["fetches"])
        columns["bytes_per_fetch"] = ratio(columns["bytes"], brought)
        columns["records_per_fetch"] = ratio(columns["records"], brought)
        columns["empty_wait_us"] = ratio(columns["waited_us"], columns["empty"])
        fields = [
            *self._keys(),
            *((name, pa.int64()) for name in ("fetches", "empty", "failed", "bytes", "records")),
            *(
                (name, pa.float64())
                for name in ("empty_ratio", "bytes_per_fetch", "records_per_fetch", "empty_wait_us")
            ),
        ]
        names = [(name, "ascending") for name, _ in self._keys()]
        return table_of(columns, fields, [("fetches", "descending"), *names])
