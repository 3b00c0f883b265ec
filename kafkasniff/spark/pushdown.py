"""Filters applied while packets are read, before their payloads are copied.

They have Spark's semantics: neither a comparison with null nor its negation is true.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.spark.tables import PACKETS

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["Condition", "condition_of", "keeper"]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_TYPES: Final = {"int": int, "bigint": int, "string": str}
"""Columns of other types are left to Spark."""


class Condition(msgspec.Struct, frozen=True):
    """Comparison of one column."""

    column: str
    operation: str
    """Name of Spark's filter class."""
    value: Any = None
    negated: bool = False


def condition_of(filter_: Filter) -> Condition | None:
    """The condition of a filter; None if it is left to Spark."""
    kind = type(filter_).__name__
    if kind == "Not":
        inner = condition_of(filter_.child)  # type: ignore[attr-defined]
        return None if inner is None else msgspec.structs.replace(inner, negated=not inner.negated)
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    wanted = _TYPES.get(PACKETS.get(path[0], "")) if len(path) == 1 else None
    if wanted is None:
        return None
    if kind in {"IsNull", "IsNotNull"}:
        return Condition(path[0], kind)
    value = getattr(filter_, "value", None)
    if kind == "In":
        values = tuple(value or ())
        return Condition(path[0], kind, values) if values and all(type(one) is wanted for one in values) else None
    return Condition(path[0], kind, value) if kind in _COMPARISONS and type(value) is wanted else None


def keeper(
    conditions: Iterable[Condition],
) -> tuple[Callable[[pa.RecordBatch], NDArray[np.bool_]] | None, tuple[str, ...]]:
    """A function that selects the rows that meet all conditions, and the columns that it needs; None: all rows do."""
    conditions = tuple(conditions)
    if not conditions:
        return None, ()

    def keep(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        return functools.reduce(operator.and_, (_met(condition, rows) for condition in conditions))

    return keep, tuple(dict.fromkeys(condition.column for condition in conditions))


def _met(condition: Condition, rows: pa.RecordBatch) -> NDArray[np.bool_]:
    column = rows.column(condition.column)
    match condition.operation:
        case "IsNull":
            found = column.is_null()
        case "IsNotNull":
            found = column.is_valid()
        case "In":
            known = pc.is_in(column, value_set=pa.array(condition.value, _wide(column)))
            found = pc.if_else(column.is_valid(), known, None)
        case _:
            found = _COMPARISONS[condition.operation](column, pa.scalar(condition.value, _wide(column)))
    if condition.negated:
        found = pc.invert(found)
    met: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return met


def _wide(column: pa.Array) -> pa.DataType:
    """A type that holds any constant that Spark compares the column with."""
    return pa.string() if pa.types.is_string(column.type) else pa.int64()
