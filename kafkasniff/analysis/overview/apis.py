"""APIs: how often each was called, in which versions, with how many errors and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, in_any
from kafkasniff.analysis.overview.section import TEXT, Section, api_labels, errors_of, folded
from kafkasniff.analysis.partials import Shape

__all__ = ["COUNTS", "NOT_ANSWERED", "Apis", "exchange_counts"]

COUNTS: Final = (
    "exchanges",
    "requests",
    "responses",
    "errors",
    "with_errors",
    "unanswered",
    "lost",
    "request_bytes",
    "response_bytes",
)
"""What is counted of exchanges."""
NOT_ANSWERED: Final = ("unanswered", "open")
"""Status of exchanges whose response should be in the capture but is not. `lost` exchanges are not among them: their
responses may be in bytes missing from the capture.
"""


def exchange_counts(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """`COUNTS` of each row of `exchanges`, and its time as `first` and `last`."""
    request, response = column(batch, "request_size"), column(batch, "response_size")
    return {
        "exchanges": pa.array([1] * batch.num_rows, pa.int64()),
        "requests": pc.is_valid(request).cast(pa.int64()),
        "responses": pc.is_valid(response).cast(pa.int64()),
        **errors_of(batch),
        "unanswered": in_any(batch, "status", NOT_ANSWERED).cast(pa.int64()),
        "lost": in_any(batch, "status", ["lost"]).cast(pa.int64()),
        "request_bytes": pc.fill_null(request, 0),
        "response_bytes": pc.fill_null(response, 0),
        "first": column(batch, "time_ns"),
        "last": column(batch, "time_ns"),
    }


COUNTED: Final = ("time_ns", "status", "request_size", "response_size", "error_count")
"""The columns that `exchange_counts` needs."""
MEASURES: Final[Any] = (
    *((name, pa.int64(), "sum") for name in COUNTS),
    ("first", pa.int64(), "min"),
    ("last", pa.int64(), "max"),
)
HOW: Final[Any] = {name: how for name, _, how in MEASURES}


class Apis(Section):
    """Exchanges by API; a row of `result()` has the versions that were used, except null ones."""

    name: ClassVar[str] = "overview-apis"
    summary: ClassVar[str] = "APIs with their versions, errors and bytes."

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("api", "api_key", "api_version", *COUNTED))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("api", TEXT), ("api_version", pa.int32()))
        return {"apis": Shape(keys=keys, measures=MEASURES, weight="exchanges")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        keys = {"api": api_labels(batch), "api_version": column(batch, "api_version")}
        self.parts["apis"].add({**keys, **exchange_counts(batch)})

    def result(self) -> pa.Table:
        table = self.parts["apis"].table()
        found = folded(table, ["api"], HOW)
        versions: dict[str | None, list[int]] = {}
        for row in table.select(["api", "api_version"]).to_pylist():
            if row["api_version"] is not None:
                versions.setdefault(row["api"], []).append(row["api_version"])
        lists = [sorted(versions.get(api, [])) for api in found.column("api").to_pylist()]
        found = found.append_column("versions", pa.array(lists, pa.list_(pa.int32())))
        return found.sort_by([("exchanges", "descending"), ("api", "ascending")])
