"""Error codes in responses: by API, code, topic and client, with times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, datetimes, failed_partitions, only, table_of
from kafkasniff.analysis.dimensions import Dimension, Dimensions
from kafkasniff.analysis.error_causes import MAX_KEPT_BODY
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
        found: list[tuple[int, int | None, str | None, int]] = []
        # Errors are rare, so they are handled one by one.
        for row, codes in enumerate(error_codes(batch)):
            found += [(row, one, topic, times) for (one, topic), times in codes.items()]
        rows = pa.array([row for row, *_ in found], pa.int64())
        keys = {name: array.take(rows) for name, array in self._dimensions.arrays(batch).items()}
        times_ns = column(batch, "time_ns").take(rows)
        self.parts["errors"].add(
            {
                **keys,
                "error_code": pa.array([code for _, code, _, _ in found], pa.int32()),
                "topic": pa.array([topic for _, _, topic, _ in found], pa.string()),
                "errors": pa.array([times for *_, times in found], pa.int64()),
                "exchanges": pa.array([1] * len(found), pa.int64()),
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


def error_codes(batch: pa.RecordBatch) -> Iterator[Mapping[tuple[int | None, str | None], int]]:
    """How often each response has each (code, topic); in total, its `error_count`."""
    names = ("api_key", "error_code", "error_count", "response_body")
    columns = (column(batch, name).to_pylist() for name in names)
    for partitions, api_key, code, count, body in zip(failed_partitions(batch), *columns, strict=True):
        found = Counter((one["error_code"], one["topic"] or one["topic_id"]) for one in partitions)
        missing = count - found.total()
        if missing > 0 and body is not None:
            inside = (_kept if len(body) <= MAX_KEPT_BODY else _read)(api_key, body)
            if inside.total() == count:
                yield inside
                continue
        if missing > 0 and code and all(one != code for one, _ in found):
            found[code, None] += 1
            missing -= 1
        if missing > 0:
            found[None, None] += missing
        yield found


def _read(api_key: int | None, body: str) -> Counter[tuple[int | None, str | None]]:
    plan = None if api_key is None else plan_of(api_key, "response")
    return Counter(_codes_in(msgspec.json.decode(body), plan or EntityPlan()))


_kept: Final = lru_cache(maxsize=1 << 12)(_read)


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
