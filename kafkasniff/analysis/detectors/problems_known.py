"""Problems by connection, and evidence that quotes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence
from kafkasniff.analysis.partials import Shape
from kafkasniff.text.printable import cut, printable

MAX_PROBLEMS: Final = 100_000
"""Maximum number of problems that are examined, the earliest."""
MAX_DETAIL: Final = 600
"""Maximum number of characters of a problem's detail. No text of kafkasniff is longer, so no cause is cut off."""
MAX_NOTE: Final = 120
REJECTED: Final = "connection-rejected"

PROBLEMS: Final = TableReading(("connection_id", "time_ns", "kind", "detail"))
_KEYS: Final = (
    ("time_ns", pa.int64()),
    ("connection_id", pa.int64()),
    ("kind", pa.string()),
    ("detail", pa.string()),
    ("ends", pa.string()),
)
_ORDER: Final = ("time_ns", "connection_id", "kind", "detail")
_BETWEEN: Final = re.compile(r"^the connection between \S+ and \S+?( is not Kafka)?: ")
"""How problems of connections begin; findings name the two ends in another way."""


def problems_shape() -> Shape:
    """For `Detector.shapes`: a row for each problem of a connection."""
    return Shape(keys=_KEYS, order=_ORDER, keep="earliest", bound=MAX_PROBLEMS)


def add_problems(detector: Accumulator[Any], batch: pa.RecordBatch, kinds: Sequence[str]) -> None:
    """Add rows of the table `problems` of these kinds to the partial answer `problems`."""
    batch = only(batch, pc.and_(in_any(batch, "kind", tuple(kinds)), pc.is_valid(column(batch, "connection_id"))))
    ends = pa.nulls(batch.num_rows, pa.string())
    if "_endpoints" in batch.schema.names:
        ends = column(batch, "_endpoints")
    columns = {name: column(batch, name) for name, _ in _KEYS if name not in ("ends", "detail")}
    detail = pc.utf8_slice_codeunits(column(batch, "detail"), 0, 2 * MAX_DETAIL)
    detector.parts["problems"].add({**columns, "detail": detail, "ends": ends})


def problems_by_time(detector: Accumulator[Any]) -> list[dict[str, Any]]:
    """The problems that were kept, the earliest first."""
    order = [(name, "ascending") for name in _ORDER]
    found: list[dict[str, Any]] = detector.parts["problems"].table().sort_by(order).to_pylist()
    return found


def cause_of(problem: dict[str, Any]) -> str:
    """A problem's detail without the ends of its connection, safe to print."""
    return cut(printable(_BETWEEN.sub("", problem["detail"])), MAX_DETAIL)


def problem_evidence(rows: Sequence[dict[str, Any]]) -> tuple[Evidence, ...]:
    """The connections of problems; the note adds what the first one, which the title names, lacks."""
    said = cause_of(rows[0])
    notes = ["" if (cause := cause_of(row)) == said else cut(cause, MAX_NOTE) for row in rows[:MAX_EVIDENCE]]
    return tuple(
        Evidence(row["connection_id"], None, row["time_ns"], note)
        for row, note in zip(rows[:MAX_EVIDENCE], notes, strict=True)
    )


def problem_times(rows: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """`first` and `last` for `Detector.finding`."""
    times = [row["time_ns"] for row in rows if row["time_ns"] is not None]
    return {"first": min(times, default=None), "last": max(times, default=None)}
