"""Requests without a response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    TIME,
    broker_endpoint,
    column,
    datetimes,
    floor_divided,
    in_any,
    only,
    order_columns,
    table_of,
)
from kafkasniff.analysis.partials import Shape

__all__ = ["Outstanding", "OutstandingParameters"]

MAX_LISTED: Final = 100_000
"""Maximum number of requests that are listed, those that have waited longest."""
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


class Outstanding(Accumulator[OutstandingParameters]):
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

    def shapes(self) -> Mapping[str, Shape]:
        order = tuple((name, pa.int64()) for name in ORDER)
        return {
            "requests": Shape(
                keys=(*order, *_SHOWN, ("broker", pa.string())), order=ORDER, keep="earliest", bound=MAX_LISTED
            ),
            "end": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),)),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        lasted = pc.multiply(pc.fill_null(column(batch, "duration_us"), 0), 1000)
        end = pc.add(column(batch, "time_ns"), pc.max_element_wise(lasted, pa.scalar(0, pa.int64())))
        self.parts["end"].add({"one": np.zeros(batch.num_rows, np.int8), "end_ns": end})
        batch = only(batch, in_any(batch, "status", self.parameters.status))
        shown = {name: column(batch, name) for name, _ in _SHOWN}
        self.parts["requests"].add({**order_columns(batch), **shown, "broker": broker_endpoint(batch)})

    def result(self) -> pa.Table:
        table = self.parts["requests"].table()
        end = pc.max(self.parts["end"].table().column("end_ns"))
        columns = {name: table.column(name) for name in table.column_names}
        columns["time"] = datetimes(table.column("time_ns"))
        columns["age_us"] = floor_divided(pc.subtract(end, table.column("time_ns")), 1000)
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
