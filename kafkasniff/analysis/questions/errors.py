"""Error codes in responses: by API, code, topic and client, with times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    column,
    datetimes,
    only,
    partition_errors,
    repeated,
    table_of,
)
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.error_causes import causes_of
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError
from kafkasniff.kafka.schema.codes import error_name

_ERROR: Final = (("error_code", pa.int32()), ("topic", pa.string()))


class ErrorParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Errors`."""

    by: Annotated[tuple[Dimension, ...], Meta(description="Dimensions besides error code and topic.")] = (
        "api",
        "client",
    )


class Errors(Accumulator[ErrorParameters]):
    """How often each error code occurred, in how many exchanges, and when first and last.

    A code is shown with the topic that encloses it in the response. Codes other than those of partitions are read from
    the response's body; without that column (`--no-json`) only the first of them is known, without its topic, and the
    others count as code null. If there are only headers (`--no-bodies`), errors are unknown.
    """

    name: ClassVar[str] = "errors"
    summary: ClassVar[str] = "Errors by API, code, topic and client, with first and last time."
    essential: ClassVar[tuple[str, ...]] = ("error", "api", "errors", "client_id", "topic", "error_code")
    columns: ClassVar[Mapping[str, str]] = {
        "error_code": "without bodies, null except for a response's first",
        "error": "its name; null for an unknown code",
        "topic": "topic to which the response assigns the code, if any",
        "errors": "error codes, one for each affected partition",
        "exchanges": "exchanges with them",
    }
    parameters_type = ErrorParameters

    def check(self) -> None:
        """The topic is always shown."""
        if "topic" in self.parameters.by:
            raise UsageError("errors: the topic is always shown; --by names the other dimensions")
        self._dimensions = Dimensions(self.parameters.by)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "api_key", "error_code", "error_count", "partitions", "response_body")
        return {"exchanges": TableReading((*self._dimensions.reads, *own))}

    def shapes(self) -> Mapping[str, Shape]:
        measures: Any = (
            ("errors", pa.int64(), "sum"),
            ("exchanges", pa.int64(), "sum"),
            ("first", pa.int64(), "min"),
            ("last", pa.int64(), "max"),
        )
        return {"errors": Shape(keys=(*_ERROR, *self._dimensions.keys), measures=measures, weight="errors")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        found = error_codes(batch)
        rows = found.column("row").combine_chunks()
        keys = {name: array.take(rows) for name, array in self._dimensions.arrays(batch).items()}
        times_ns = column(batch, "time_ns").take(rows)
        self.parts["errors"].add(
            {
                **keys,
                "error_code": found.column("code"),
                "topic": found.column("topic"),
                "errors": found.column("times"),
                "exchanges": np.ones(len(found), np.int64),
                "first": times_ns,
                "last": times_ns,
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["errors"].table()
        codes = table.column("error_code")
        columns = {
            **self._dimensions.answer(table),
            **{name: table.column(name) for name in ("error_code", "topic", "errors", "exchanges")},
            "error": [None if code is None else error_name(code) for code in codes.to_pylist()],
            "first": datetimes(table.column("first")),
            "last": datetimes(table.column("last")),
        }
        kind = columns["first"].type
        fields = [
            ("error_code", pa.int32()),
            ("error", pa.string()),
            *self._dimensions.fields,
            ("topic", pa.string()),
            ("errors", pa.int64()),
            ("exchanges", pa.int64()),
            ("first", kind),
            ("last", kind),
        ]
        names = [name for name, _ in fields if name not in ("errors", "exchanges")]
        return table_of(columns, fields, [("errors", "descending"), *((name, "ascending") for name in names)])


def error_codes(batch: pa.RecordBatch) -> pa.Table:
    """How often (`times`) each exchange (`row`) has each `code` with a `topic`; in total, its `error_count`."""
    parts, missing = partition_errors(batch)
    names = column(parts, "topic")
    topics = pc.coalesce(pc.if_else(pc.equal(names, ""), None, names), column(parts, "topic_id"))
    counted = pa.table({"row": column(parts, "row"), "code": column(parts, "error_code"), "topic": topics})
    counted = counted.group_by(["row", "code", "topic"], use_threads=False).aggregate([([], "count_all")])
    counted = counted.rename_columns(["row", "code", "topic", "times"])
    rest = np.flatnonzero(missing > 0)
    if not len(rest):
        return counted
    counted = counted.filter(pa.array(missing[counted.column("row").to_numpy()] <= 0))
    found, number = _of_bodies(batch.take(pa.array(rest)))
    at, places = repeated(found, number)
    codes, topics_, times = ([one[field] for some in found for one in some] for field in range(3))
    inside = {
        "row": pa.array(rest[at]),
        "code": pa.array(codes, pa.int32()).take(pa.array(places)),
        "topic": pa.array(topics_, pa.string()).take(pa.array(places)),
        "times": pa.array(times, pa.int64()).take(pa.array(places)),
    }
    return pa.concat_tables([counted, pa.table(inside, schema=counted.schema)])


def _of_bodies(
    batch: pa.RecordBatch,
) -> tuple[list[list[tuple[int | None, str | None, int]]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Different codes, topics and times of exchanges, and which of them each exchange has."""
    causes, number = causes_of(batch)
    found: list[list[tuple[int | None, str | None, int]]] = [[] for _ in causes]
    places, rows = np.unique(number, return_index=True)
    columns = (column(batch, name).take(pa.array(rows)).to_pylist() for name in ("error_code", "error_count"))
    for place, code, count in zip(places.tolist(), *columns, strict=True):
        # A body that contradicts the count says nothing.
        some = [one for one in causes[place] if len(causes[place]) == count or one.partition]
        own = Counter[tuple[int | None, str | None]]((one.code, one.topic) for one in some)
        if code and own.total() < count and all(one != code for one, _ in own):
            own[code, None] += 1
        own[None, None] += max(count - own.total(), 0)
        found[place] = [(*key, times) for key, times in own.items() if times]
    return found, number
