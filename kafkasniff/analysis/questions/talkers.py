"""Top talkers: bytes and requests by client and address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import TIME, datetimes, ratio, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.sql.question import SqlQuestion
from kafkasniff.errors import UsageError

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
