"""A tree of predicates evaluated for many exchanges at once, by columns of known values.

The results are those of `closures.py`, as bounds: False < None < True. If a column is unknown, the result lies between
the bounds, and the caller has to use `closures.py` with the decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.filters.closures import holds_of
from kafkasniff.filters.fields import LATE
from kafkasniff.filters.tree import And, Compare, Moment, Not, Or, Predicate

FALSE, NONE, TRUE = range(3)
"""Results: ordered so that `and` is the minimum, `or` the maximum."""
_FEW: Final = 8
"""Values of a list that are compared one by one."""
_INT64: Final = -(1 << 63), (1 << 63) - 1

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class FieldColumn(NamedTuple):
    """Values of a field."""

    values: Ints | Sequence[Any]
    """Numbers, one per entry; with `which` distinct values of any type."""
    which: Ints | None = None
    """For each entry the index of its value; negative: no value."""
    rows: Ints | None = None
    """For each entry the exchange that it belongs to; None: one entry per exchange."""


class Bounds(NamedTuple):
    """Results for exchanges: each is between these two."""

    low: NDArray[np.int8]
    high: NDArray[np.int8]


class FilteredExchanges(Protocol):
    """The exchanges that a test is evaluated for."""

    start_ns: int | None
    """Time of the run's first packet."""

    def __len__(self) -> int:
        """Number of exchanges."""

    def columns(self, field: str, *, ended: bool) -> tuple[list[FieldColumn], Bools | None] | None:
        """The values of a field, and for which exchanges these are all (None: for all of them); None: none are known.

        `ended`: of the whole exchange, else of the request alone.
        """


ColumnTest = Callable[[FilteredExchanges, bool], Bounds]
"""Evaluated for exchanges of which only the request is known, or which have ended (True)."""


def column_test(predicate: Predicate) -> ColumnTest:
    """Compiles a predicate. Raises the exceptions of `closures.compiled`."""
    match predicate:
        case Compare():
            return _comparison(predicate)
        case Not(part):
            return _not(column_test(part))
        case And(parts):
            return _all(tuple(map(column_test, parts)), np.minimum)
        case Or(parts):
            return _all(tuple(map(column_test, parts)), np.maximum)


def _all(tests: tuple[ColumnTest, ...], join: np.ufunc) -> ColumnTest:
    def joined(asked: FilteredExchanges, ended: bool) -> Bounds:
        low, high = tests[0](asked, ended)
        for test in tests[1:]:
            one = test(asked, ended)
            low, high = join(low, one.low), join(high, one.high)
        return Bounds(low, high)

    return joined


def _not(test: ColumnTest) -> ColumnTest:
    def complement(asked: FilteredExchanges, ended: bool) -> Bounds:
        low, high = test(asked, ended)
        return Bounds(TRUE - high, TRUE - low)

    return complement


# -- comparisons -------------------------------------------------------------------------------------------------------


def _comparison(compare: Compare) -> ColumnTest:
    name, negates, moment = compare.field, compare.operator in ("!=", "not in", "!~"), compare.value
    is_late = name.partition(".")[0] in LATE
    fixed = None if isinstance(moment, Moment) else _Holds(compare.operator, compare.value)

    def test(asked: FilteredExchanges, ended: bool) -> Bounds:
        count = len(asked)
        holds = fixed
        if holds is None:
            assert isinstance(moment, Moment)
            wanted = moment.resolve(asked.start_ns)
            holds = None if wanted is None else _Holds(compare.operator, wanted)
        found = None if holds is None else asked.columns(name, ended=ended)
        if found is None or holds is None:
            return Bounds(np.full(count, FALSE, np.int8), np.full(count, TRUE, np.int8))
        columns, known = found
        has, any_holds = np.zeros(count, bool), np.zeros(count, bool)
        for column in columns:
            _note(column, holds, has, any_holds)
        otherwise = NONE if is_late and not ended else FALSE
        if negates:
            unless = np.full(count, NONE, np.int8) if otherwise else np.where(has, TRUE, FALSE)
            answer = np.where(any_holds, FALSE, unless).astype(np.int8)
        else:
            answer = np.where(any_holds, TRUE, otherwise).astype(np.int8)
        if known is None:
            return Bounds(answer, answer)
        # Further values do not change what one value has decided.
        known = known | any_holds
        return Bounds(np.where(known, answer, FALSE).astype(np.int8), np.where(known, answer, TRUE).astype(np.int8))

    return test


def _note(column: FieldColumn, holds: _Holds, has: Bools, any_holds: Bools) -> None:
    """Record which exchanges have a value in this column, and one for which the comparison holds."""
    if column.which is None:
        assert isinstance(column.values, np.ndarray)
        present = np.ones(len(column.values), bool)
        right = holds.numbers(column.values)
    else:
        present = column.which >= 0
        # The last element represents "no value".
        right = np.array([*map(holds.value, column.values), False], bool)[column.which]
        right &= present
    if column.rows is None:
        has |= present
        any_holds |= right
    else:
        has[column.rows[present]] = True
        any_holds[column.rows[right]] = True


class _Holds:
    """Whether a comparison holds for values, with the semantics of `closures.holds_of`."""

    def __init__(self, operator: str, wanted: Any) -> None:
        self.value = holds_of(operator, wanted)
        self._operator = operator
        self._wanted = wanted

    def numbers(self, values: Ints) -> Bools:
        """For each of many numbers."""
        match self._operator:
            case "exists":
                return np.ones(len(values), bool)
            case "==" | "!=":
                return _one_of(values, (self._wanted,))
            case "in" | "not in":
                return _one_of(values, self._wanted)
            case "<" | "<=" | ">" | ">=":
                return _ordered(values, self._operator, self._wanted)
        return np.zeros(len(values), bool)


def _one_of(values: Ints, wanted: Sequence[Any]) -> Bools:
    # True equals 1 in Python, not on the wire; and no integer equals a number with a fraction.
    whole = [int(one) for one in wanted if type(one) in (int, float) and one == floor(one)]
    whole = [one for one in whole if _INT64[0] <= one <= _INT64[1]]
    if len(whole) > _FEW:
        return np.isin(values, np.array(whole, np.int64))
    found = np.zeros(len(values), bool)
    for one in whole:
        found |= values == one
    return found


def _ordered(values: Ints, operator: str, wanted: float) -> Bools:
    """Integers are compared with integers: as floats they would lose digits."""
    # v < w as v <= ceil(w) - 1, v > w as v >= floor(w) + 1.
    if operator in ("<", "<="):
        most = ceil(wanted) - 1 if operator == "<" else floor(wanted)
        if most < _INT64[0]:
            return np.zeros(len(values), bool)
        found: Bools = values <= min(most, _INT64[1])
        return found
    least = floor(wanted) + 1 if operator == ">" else ceil(wanted)
    if least > _INT64[1]:
        return np.zeros(len(values), bool)
    found = values >= max(least, _INT64[0])
    return found
