"""How well producers batch and compress: records and bytes per batch by topic, client and codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, exploded, in_any, named, only, ratio, record_bytes, table_of
from kafkasniff.analysis.partials import Shape

__all__ = ["Batching", "BatchingParameters"]

_APIS: Final = {"produce": ("Produce",), "fetch": ("Fetch", "ShareFetch")}
_COUNTED: Final = ("exchanges", "batches", "records", "bytes")
_NAMES: Final = ("topic", "client_id", "compression")


class BatchingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Batching`."""

    direction: Annotated[
        Literal["produce", "fetch"], Meta(description="Batches that producers send, or that consumers receive.")
    ] = "produce"


class Batching(Accumulator[BatchingParameters]):
    """Batches, records and bytes by topic, client and codec; the largest first.

    `--direction fetch` shows what consumers receive. Control batches are included. For uncompressed batches,
    `payload_ratio` is slightly below 1 because of the record format.
    """

    name: ClassVar[str] = "batching"
    summary: ClassVar[str] = "Records and bytes per batch, codecs and compression ratios, by topic and client."
    essential: ClassVar[tuple[str, ...]] = (
        "topic",
        "client_id",
        "batches",
        "records_per_batch",
        "bytes_per_batch",
        "compression",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "compression": "codec; `mixed` if one exchange has batches with different codecs for a partition",
        "exchanges": "topic-partitions in exchanges with batches",
        "records_per_batch": "mean number of records",
        "bytes_per_batch": "mean size",
        "payload_bytes": (
            "keys, values and headers of the records before compression; null unless all of them are in `records`"
        ),
        "payload_ratio": "payload divided by bytes on the wire: the compression ratio",
    }
    parameters_type = BatchingParameters

    def reads(self) -> Mapping[str, TableReading]:
        apis = _APIS[self.parameters.direction]
        return {
            "exchanges": TableReading(("connection_id", "api", "client_id", "partitions"), apis),
            "records": TableReading(
                ("connection_id", "api", "topic", "topic_id", "compression", "key", "value", "headers"), apis, True
            ),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("connection_id", pa.int64()), ("topic", pa.string()), ("compression", pa.string()))
        counted: Any = tuple((name, pa.int64(), "sum") for name in _COUNTED)
        payload: Any = tuple((name, pa.int64(), "sum") for name in ("seen", "payload_bytes"))
        return {
            "batches": Shape(keys=(*keys, ("client_id", pa.string())), measures=counted, weight="bytes"),
            "payload": Shape(keys=keys, measures=payload, weight="payload_bytes"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", _APIS[self.parameters.direction]))
        if table == "records":
            records = named(batch)
            self.parts["payload"].add(
                {
                    **{name: column(records, name) for name in ("connection_id", "topic", "compression")},
                    "seen": np.ones(batch.num_rows, np.int64),
                    "payload_bytes": record_bytes(batch),
                }
            )
            return
        rows = named(exploded(batch, ["connection_id", "client_id"]))
        rows = only(rows, pc.greater(column(rows, "batch_count"), 0))
        self.parts["batches"].add(
            {
                **{name: column(rows, name) for name in ("connection_id", "topic", "compression", "client_id")},
                "exchanges": np.ones(rows.num_rows, np.int64),
                "batches": column(rows, "batch_count"),
                "records": column(rows, "record_count"),
                "bytes": column(rows, "bytes"),
            }
        )

    def result(self) -> pa.Table:
        batches, payload = self.parts["batches"].table(), self.parts["payload"].table()
        where = ["connection_id", "topic", "compression"]
        # A connection normally has one client id; if it has two, the sender of a record is unknown.
        alone = batches.group_by(where).aggregate([("client_id", "count_distinct", pc.CountOptions(mode="all"))])
        alone = alone.filter(pc.equal(alone.column("client_id_count_distinct"), 1)).select(where)
        of_one = payload.join(alone, keys=where, join_type="left semi")
        joined = batches.join(of_one, keys=where, join_type="left outer")
        sums = [(name, "sum") for name in (*_COUNTED, "seen", "payload_bytes")]
        folded = joined.group_by(list(_NAMES)).aggregate(sums)
        columns: dict[str, Any] = {name: folded.column(name) for name in _NAMES}
        columns |= {name: folded.column(f"{name}_sum") for name, _ in sums}
        # Unless all records were captured, their bytes cannot be compared with those of the batches.
        whole = pc.equal(columns["seen"], columns["records"])
        columns["payload_bytes"] = pc.if_else(whole, columns["payload_bytes"], pa.scalar(None, pa.int64()))
        columns["records_per_batch"] = ratio(columns["records"], columns["batches"])
        columns["bytes_per_batch"] = ratio(columns["bytes"], columns["batches"])
        columns["payload_ratio"] = ratio(columns["payload_bytes"], columns["bytes"])
        fields = [
            *((name, pa.string()) for name in _NAMES),
            *((name, pa.int64()) for name in _COUNTED),
            ("records_per_batch", pa.float64()),
            ("bytes_per_batch", pa.float64()),
            ("payload_bytes", pa.int64()),
            ("payload_ratio", pa.float64()),
        ]
        return table_of(columns, fields, [("bytes", "descending"), *((name, "ascending") for name in _NAMES)])
