"""Requests without a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, datetimes, floor_divided, table_of
from kafkasniff.analysis.dimensions import BROKER_SQL
from kafkasniff.analysis.sql.question import SqlQuestion

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
