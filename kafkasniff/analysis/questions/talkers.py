"""Top talkers: bytes and requests by client and address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import TIME, column, datetimes, integers, ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError

__all__ = ["TalkerParameters", "Talkers"]

MAX_TALKERS: Final = 1 << 18
_SUMS: Final = ("requests", "request_bytes", "response_bytes", "bytes", "records", "with_errors")


class TalkerParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Talkers`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions that identify a talker.")] = (
        "client",
        "address",
        "software",
    )
    top: Annotated[int, Meta(ge=0, description="Number of rows; 0: all.")] = 20


class Talkers(Accumulator[TalkerParameters]):
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

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        keys = self._dimensions.keys
        return {
            "talkers": Shape(keys=keys, measures=(*sums, *times), weight="bytes", bound=MAX_TALKERS),
            "all": Shape(keys=(("one", pa.int8()),), measures=(("bytes", pa.int64(), "sum"),)),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        request, response = (integers(column(batch, name)) for name in ("request_size", "response_size"))
        time = column(batch, "time_ns")
        ones = pc.is_valid(column(batch, "request_size")).cast(pa.int64())
        self.parts["all"].add({"one": pa.array([0] * batch.num_rows, pa.int8()), "bytes": request + response})
        self.parts["talkers"].add(
            {
                **self._dimensions.arrays(batch),
                "requests": ones,
                "request_bytes": request,
                "response_bytes": response,
                "bytes": request + response,
                "records": integers(column(batch, "record_count")),
                "with_errors": pc.greater(pc.fill_null(column(batch, "error_count"), 0), 0).cast(pa.int64()),
                "first": time,
                "last": time,
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["talkers"].table()
        whole = pc.sum(self.parts["all"].table().column("bytes")).as_py() or 0
        columns = {
            **self._dimensions.answer(table),
            **{name: table.column(name) for name in _SUMS},
            "share": ratio(table.column("bytes"), pa.array([whole] * table.num_rows, pa.int64())),
            "first": datetimes(table.column("first")),
            "last": datetimes(table.column("last")),
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
