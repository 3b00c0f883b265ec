"""Error codes in responses: by API, code, topic and client, with times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    column,
    datetimes,
    failed_partitions,
    keys_of,
    only,
    partition_errors,
    repeated,
    table_of,
)
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis.entities import EntityPlan, plan_of
from kafkasniff.kafka.schema.errors import error_name

__all__ = ["ErrorParameters", "Errors", "error_codes"]

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


_Codes = list[tuple[int | None, str | None, int]]


def _of_bodies(batch: pa.RecordBatch) -> tuple[list[_Codes], np.ndarray[Any, np.dtype[np.int64]]]:
    """Different codes, topics and times of exchanges, and which of them each exchange has.

    Equal bodies are read once.
    """
    names = ("api_key", "error_code", "error_count", "response_body")
    bodies, number = keys_of(batch, names)
    found: list[_Codes] = []
    whole: list[bool] = []
    for api_key, _, count, body in zip(*(bodies.column(name).to_pylist() for name in names), strict=True):
        plan = None if api_key is None else plan_of(api_key, "response")
        inside = Counter(() if body is None else _codes_in(msgspec.json.decode(body), plan or EntityPlan()))
        whole.append(inside.total() == count)
        found.append([(*key, times) for key, times in inside.items()])
    rest = np.flatnonzero(~np.array(whole, np.bool_)[number])
    few = batch.take(pa.array(rest))
    columns = (column(few, name).to_pylist() for name in ("error_code", "error_count"))
    for row, partitions, code, count in zip(rest.tolist(), failed_partitions(few), *columns, strict=True):
        own = Counter[tuple[int | None, str | None]](
            (one["error_code"], one["topic"] or one["topic_id"]) for one in partitions
        )
        if code and all(one != code for one, _ in own):
            own[code, None] += 1
        own[None, None] += count - own.total()
        number[row] = len(found)
        found.append([(*key, times) for key, times in own.items() if times])
    return found, number


def _codes_in(body: Any, whole: EntityPlan) -> Iterator[tuple[int, str | None]]:
    """The error codes of a body that are not zero, each with the topic of its enclosing struct."""
    waiting: list[tuple[Any, EntityPlan, str | None]] = [(body, whole, None)]
    while waiting:
        node, plan, topic = waiting.pop()
        if isinstance(node, list):
            waiting += [(one, plan, topic) for one in node]
        elif isinstance(node, dict):
            name = node.get(plan.topic) if plan.topic else None
            name = name if isinstance(name, str) else node.get("_topic_name")
            topic = name if isinstance(name, str) else topic
            below = dict(plan.children)
            for field, value in node.items():
                # Fields that kafkasniff adds (`_value` …) repeat the wire's fields and are not part of the response.
                if field.startswith("_"):
                    continue
                if isinstance(value, int) and field.endswith("error_code"):
                    if value:
                        yield value, topic
                elif isinstance(value, dict | list):
                    waiting.append((value, below.get(field, EntityPlan()), topic))
