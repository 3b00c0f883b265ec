"""How well producers batch and compress: records and bytes per batch by topic, client and codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ratio, table_of
from kafkasniff.analysis.sql.question import SqlQuestion

_APIS: Final = {"produce": ("Produce",), "fetch": ("Fetch", "ShareFetch")}
_COUNTED: Final = ("exchanges", "batches", "records", "bytes")
_NAMES: Final = ("topic", "client_id", "compression")


class BatchingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Batching`."""

    direction: Annotated[
        Literal["produce", "fetch"], Meta(description="Batches that producers send, or that consumers receive.")
    ] = "produce"


class Batching(SqlQuestion[BatchingParameters]):
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

    def pieces(self) -> dict[str, str]:
        return {"apis": ", ".join(f"'{api}'" for api in _APIS[self.parameters.direction])}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = (*_COUNTED, "seen", "payload_bytes")
        return [*((name, pa.string()) for name in _NAMES), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
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
