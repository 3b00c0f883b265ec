"""A tree of predicates evaluated for many exchanges at once, by columns of known values.

The results are those of `closures.py`, as bounds: False < None < True. If a column is unknown, the result lies between
the bounds, and the caller has to use `closures.py` with the decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Any, Final, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from kafkasniff.filters.closures import holds_of
from kafkasniff.filters.fields import LATE
from kafkasniff.filters.patterns import required_text
from kafkasniff.filters.tree import And, Compare, Moment, Not, Or, Predicate

FALSE, NONE, TRUE = range(3)
"""Results: ordered so that `and` is the minimum, `or` the maximum."""
_FEW: Final = 8
"""Values of a list that are compared one by one."""
_INT64: Final = -(1 << 63), (1 << 63) - 1
_ESCAPES: Final = frozenset("\\x0123456789abcdef")
"""Characters of the form in which bytes are shown that are not UTF-8."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ByteStrings(Sequence[bytes]):
    """Values that lie in `data` one after the other, each from its offset to the next; searched all at once."""

    def __init__(self, data: bytes, offsets: NDArray[np.int32]) -> None:
        self._data = data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if place >= len(self):
            raise IndexError(place)
        return self._data[self._offsets[place] : self._offsets[place + 1]]

    def __iter__(self) -> Iterator[bytes]:
        borders: list[int] = self._offsets.tolist()
        return (self._data[begin:end] for begin, end in pairwise(borders))

    @property
    def are_text(self) -> bool:
        """Whether every value is UTF-8."""
        data = self._data
        if data.isascii():
            return True
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
        starts = self._offsets[:-1][np.diff(self._offsets) > 0]
        # Otherwise a character is divided between two values.
        return not (np.frombuffer(data, np.uint8)[starts] & 0xC0 == 0x80).any()

    def near(self, part: bytes) -> Iterator[int]:
        """The values that may contain a part: those in which an occurrence begins."""
        at = self._data.find(part)
        while at >= 0:
            index = int(np.searchsorted(self._offsets, at, side="right")) - 1
            yield index
            at = self._data.find(part, int(self._offsets[index + 1]))


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

    def columns(self, field: str, *, ended: bool) -> tuple[Iterable[FieldColumn], Bools | None] | None:
        """The values of a field, and for which exchanges these are all (None: for all of them); None: none are known.

        `ended`: of the whole exchange, else of the request alone. The mask is complete once all columns were taken.
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
            bounds = test(asked, ended)
            low, high = join(low, bounds.low), join(high, bounds.high)
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
        right = np.append(holds.each(column.values), False)[column.which]
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
        part, self._may_be_escaped = _required(operator, wanted)
        self._part = part.encode("utf-8", "surrogatepass")
        """What each value contains for which it holds; empty: unknown."""

    def each(self, values: Ints | Sequence[Any]) -> Bools:
        """For each of many values."""
        if not self._part or not isinstance(values, ByteStrings) or (self._may_be_escaped and not values.are_text):
            return np.fromiter(map(self.value, values), bool, len(values))
        found = np.zeros(len(values), bool)
        for index in values.near(self._part):
            found[index] = self.value(values[index])
        return found

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


def _required(operator: str, wanted: Any) -> tuple[str, bool]:
    """Text in every value for which a comparison holds (empty: unknown), and whether an escaped byte may contain it."""
    if not isinstance(wanted, str):
        return "", False
    match operator:
        case "=~" | "!~":
            part = required_text(wanted)
            return part, not _ESCAPES.isdisjoint(part)
        case "==" | "!=" | "contains" | "startswith" | "endswith":
            return wanted, "\\x" in wanted
    return "", False


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
