"""Columns of what the list shows of exchanges, as numbers in little memory, and their order.

They are made from messages or from columns of the native kernel; texts become codes, by a function that the index
provides. Each chunk is stored as distances from its smallest number, in as few bytes as fit. Sorting puts such numbers
and their places into words of 64 bits, which are sorted in place.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import distinct, version_of
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import PACKET_NUMBER, Exchange
from kafkasniff.native.columns import ExchangeColumns
from kafkasniff.native.feed import NONE
from kafkasniff.text.printable import WORDS, word

RUN: Final = 1000
"""Average length of sorted runs from which on they are merged."""
MICROSECOND: Final = 1000
"""Most captures have times in microseconds, in nanoseconds only some."""
BLOCK: Final = 1 << 16
"""Numbers that are made at a time."""
_WRAP: Final = (1 << 64) - 1
_HALF: Final = 1 << 63
_NARROW: Final = (1 << 32) - 1


class PackedColumn(NamedTuple):
    """A chunk of a column: each number is `base + step * value + slope * place`, or `missing` if the value is 0.

    Distances are computed modulo 2**64, so they cannot overflow, whatever times a capture claims.
    """

    values: NDArray[Any]
    base: int = 0
    step: int = 1
    missing: int | None = None
    """None: 0 is a number as any other."""
    slope: int = 0
    """Times in nanoseconds need 8 bytes, their distances from a steady rate mostly 4. With a slope, `step` is 1."""

    @property
    def has_numbers(self) -> bool:
        """Whether any number is not missing."""
        return len(self.values) > 0 and (self.missing is None or bool(self.values.any()))

    def at(self, place: int) -> int:
        """One number."""
        value = int(self.values[place])
        if self.missing is not None and value == 0:
            return self.missing
        number = self.base + self.step * value + self.slope * place
        return number if not self.slope else (number + _HALF & _WRAP) - _HALF

    def numbers(self) -> NDArray[np.int64]:
        """All numbers."""
        wide = self.values.astype(np.int64).view(np.uint64)
        if self.step != 1:
            wide *= np.uint64(self.step)
        wide += np.uint64(self.base & _WRAP)
        if self.slope:
            wide += _line(self.slope, len(wide))
        found = wide.view(np.int64)
        if self.missing is not None:
            found[self.values == 0] = self.missing
        return found

    def equal_to(self, number: int) -> NDArray[np.bool_]:
        """Which numbers are equal to one."""
        if self.slope:
            equal: NDArray[np.bool_] = self.numbers() == number
            return equal
        if self.missing == number:
            value = 0
        else:
            value, rest = divmod(number - self.base, self.step)
            limits = np.iinfo(self.values.dtype)
            if rest or not max(limits.min, 0 if self.missing is None else 1) <= value <= limits.max:
                return np.zeros(len(self.values), bool)
        found: NDArray[np.bool_] = self.values == value
        return found


def pack(numbers: NDArray[np.int64], missing: int | None) -> PackedColumn:
    """A column in as few bytes as its numbers need."""
    known = numbers if missing is None else numbers[numbers != missing]
    if not len(known):
        return PackedColumn(_same(0, len(numbers)), 0, 1, missing)
    low, high = int(known.min()), int(known.max())
    if low == high and len(known) == len(numbers):
        return PackedColumn(_same(1, len(numbers)), low - 1, 1, missing)
    far = numbers.view(np.uint64) - np.uint64(low & _WRAP)
    step = 1
    if high - low > np.iinfo(np.uint16).max:
        odd = far % np.uint64(MICROSECOND) > 0
        step = 1 if (odd if missing is None else odd & (numbers != missing)).any() else MICROSECOND
        far //= np.uint64(step)
        if (high - low) // step >= _NARROW:
            sloping = _sloping(numbers, missing)
            if sloping is not None:
                return sloping
    if missing is None:
        return PackedColumn(far.astype(np.min_scalar_type((high - low) // step)), low, step)
    far += np.uint64(1)
    far[numbers == missing] = 0
    return PackedColumn(far.astype(np.min_scalar_type((high - low) // step + 1)), low - step, step, missing)


def _line(slope: int, count: int) -> NDArray[np.uint64]:
    """What a slope adds to each row."""
    return np.arange(count, dtype=np.uint64) * np.uint64(slope & _WRAP)


def _sloping(numbers: NDArray[np.int64], missing: int | None) -> PackedColumn | None:
    """A column in 4 bytes per number, if they are that close to a steady rate. One of them is not missing."""
    is_known = np.ones(len(numbers), bool) if missing is None else numbers != missing
    first, last = np.flatnonzero(is_known)[[0, -1]].tolist()
    slope = (int(numbers[last]) - int(numbers[first])) // max(last - first, 1)
    if slope == 0:
        return None
    far = numbers.view(np.uint64) - _line(slope, len(numbers))
    start = far[first]
    # Modulo 2**64, as everywhere: whatever the distances are, the same numbers result from them.
    apart = (far - start).view(np.int64)
    low, high = int(apart[is_known].min()), int(apart[is_known].max())
    if high - low >= _NARROW:
        return None
    values = (apart - low + 1).astype(np.uint32)
    values[~is_known] = 0
    return PackedColumn(values, int(start) + low - 1, 1, missing, slope)


def _same(value: int, count: int) -> NDArray[np.uint8]:
    """An array that needs the memory of one number."""
    return np.broadcast_to(np.uint8(value), count)


def in_one_block(columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """The same columns in memory of their own, outside the heap.

    They stay until the end. Between the buffers of each batch, which come and go, they would fragment the heap.
    """
    stored = sorted(
        ((name, column) for name, column in columns.items() if column.values.strides != (0,)),
        key=lambda pair: -pair[1].values.itemsize,
    )
    block = mmap.mmap(
        -1, max(sum(packed_column.values.nbytes for _, packed_column in stored), 1), access=mmap.ACCESS_COPY
    )
    moved, at = dict(columns), 0
    for name, packed_column in stored:
        values = np.frombuffer(block, packed_column.values.dtype, len(packed_column.values), at)
        values[:] = packed_column.values
        moved[name] = packed_column._replace(values=values)
        at += values.nbytes
    return moved


def sort_keys(parts: Sequence[PackedColumn], ranks: NDArray[Any] | None = None) -> tuple[NDArray[np.uint64], int]:
    """A number per row that sorts as the column does, missing ones first, and the largest of them.

    `ranks`: the place of each number of the column in the order; None: the numbers themselves are in order.
    """
    keys = np.zeros(sum(len(part.values) for part in parts), np.uint64)
    if ranks is not None:
        first = 0
        for part in parts:
            keys[first : first + len(part.values)] = ranks[part.numbers()]
            first += len(part.values)
        return keys, int(ranks.max(initial=0))
    filled = [part for part in parts if part.has_numbers]
    low = min((_floor(part) for part in filled), default=0)
    coarse = all(part.step == MICROSECOND and (part.base - low) % MICROSECOND == 0 for part in filled)
    step = MICROSECOND if coarse else 1
    top, first = 0, 0
    for part in parts:
        mine = keys[first : first + len(part.values)]
        first += len(part.values)
        if part.has_numbers and part.slope:
            np.subtract(part.numbers().view(np.uint64), np.uint64(low & _WRAP), out=mine)
            mine[part.values == 0] = 0
            top = max(top, int(mine.max()))
        elif part.has_numbers:
            mine[:] = part.values
            mine *= np.uint64(part.step // step)
            mine += np.uint64((part.base - low) // step)
            if part.missing is not None:
                mine[part.values == 0] = 0
            top = max(top, int(mine.max()))
    return keys, top


def _floor(part: PackedColumn) -> int:
    """A number that all of a chunk exceed, except for missing ones, or that none exceeds if none can be missing."""
    if not part.slope:
        return part.base
    numbers = part.numbers()
    return int((numbers if part.missing is None else numbers[part.values != 0]).min()) - (part.missing is not None)


def _sort(keys: NDArray[np.uint64]) -> None:
    """Sort keys, which all differ, in place.

    Times are mostly in order, or in the opposite one. Merging such runs takes a hundredth of the time of sorting them
    anew, and hardly any memory if each run follows those before it.
    """
    falls = int(np.count_nonzero(keys[1:] < keys[:-1]))
    if RUN * (len(keys) - falls) < len(keys):
        _reverse(keys)
        falls = len(keys) - falls
    keys.sort(kind="stable" if RUN * falls < len(keys) else None)


def _reverse(keys: NDArray[np.uint64]) -> None:
    """Reverse keys in place."""
    count = len(keys)
    for first in range(0, count // 2, BLOCK):
        last = min(first + BLOCK, count // 2)
        left, right = keys[first:last], keys[count - last : count - first]
        moved = left.copy()
        left[:] = right[::-1]
        right[:] = moved[::-1]


def order_of(keys: NDArray[np.uint64], top: int, *, descending: bool) -> NDArray[np.int32]:
    """The places in order of their keys, of which `top` is the largest. Overwrites `keys`."""
    if descending:
        # Unlike reversing the result, this keeps the order of equal ones.
        np.subtract(np.uint64(top), keys, out=keys)
    bits = len(keys).bit_length()
    if top.bit_length() + bits > 64:
        return np.argsort(keys, kind="stable").astype(np.int32)
    # Takes less time and memory than argsort.
    keys <<= np.uint64(bits)
    for first in range(0, len(keys), BLOCK):
        part = keys[first : first + BLOCK]
        part |= np.arange(first, first + len(part), dtype=np.uint64)
    _sort(keys)
    keys &= np.uint64((1 << bits) - 1)
    # Into the first half of the same memory, which then shrinks.
    count, places = len(keys), keys.view(np.int32)
    for first in range(0, count, BLOCK):
        part = keys[first : first + BLOCK].astype(np.int32)
        places[first : first + len(part)] = part
    del places
    keys.resize((count + 1) // 2, refcheck=False)
    return keys.view(np.int32)[:count]


NUMBERS: Final = (
    "number", "packet", "connection", "exchange_id", "time", "latency", "request", "response", "problems", "others",
)  # fmt: skip
"""Columns of numbers."""
TEXTS: Final = ("client_id", "api", "subject", "error")
"""Columns of texts that are not the same for a whole connection."""
UNKNOWN: Final = -(1 << 63)
MISSING: Final = {"number": 0, "packet": 0, "time": UNKNOWN, "latency": UNKNOWN, "request": -1, "response": -1}
"""The numbers that mark missing values."""
MAX_PROBLEMS: Final = (1 << 16) - 1
"""Largest number of problems of an exchange that is shown."""

Block = dict[str, NDArray[np.int64]]
"""Values of `NUMBERS` and `TEXTS`, which are codes."""
_Code = Callable[[str], int]


def exchange_row(exchange: Exchange, code: _Code, subjects: Sequence[str] | None = None) -> tuple[int, ...] | None:
    """The values of an exchange, in the order of `NUMBERS` and `TEXTS`; None if neither message was seen.

    `subjects`: what it names; None: what its bodies name.
    """
    request, response = exchange.request, exchange.response
    seen = request if request is not None else response
    if seen is None:
        return None
    problems = len(exchange.problems) + sum(
        len(message.problems) for message in (request, response) if message is not None
    )
    errors = () if response is None else response.errors
    names = _subjects_of(exchange) if subjects is None else subjects
    ending = "" if exchange.status in {"answered", "no_response"} else exchange.status.replace("_", " ")
    return (
        exchange.exchange,
        seen.first_packet or 0,
        exchange.connection,
        exchange.exchange_id,
        UNKNOWN if seen.time_ns is None else seen.time_ns,
        UNKNOWN if exchange.latency_ns is None else exchange.latency_ns,
        -1 if request is None else request.size,
        -1 if response is None else response.size,
        min(problems, MAX_PROBLEMS),
        max(len(names) - 1, 0),
        code("" if seen.client_id is None else word(seen.client_id)),
        code(_api(seen.api, seen.api_key, seen.api_version)),
        code(word(names[0]) if names else ""),
        code(_error(errors[0].code) if errors else ending),
    )


def column_block(pair_columns: PairColumns, code: _Code) -> Block:
    """The values of answered exchanges without problems."""
    asked, answered, facts = pair_columns.asked, pair_columns.answered, pair_columns.facts
    rows = facts.columns.rows
    numbers = np.array([0 if owner is None else owner.number for owner in pair_columns.owners], np.int64)
    others, subject = _subjects(facts.columns)

    def name(index: int) -> str:
        return "" if index < 0 else WORDS[pair_columns.names[index]]

    return {
        "number": asked["number"].astype(np.int64),
        "packet": (asked["first_packet"] & PACKET_NUMBER).astype(np.int64),
        "connection": numbers[asked["connection"]],
        "exchange_id": asked["ordinal"].astype(np.int64),
        "time": asked["time"].astype(np.int64),
        "latency": answered["latency"].astype(np.int64),
        "request": asked["size"].astype(np.int64),
        "response": answered["size"].astype(np.int64),
        "problems": np.zeros(len(asked), np.int64),
        "others": others,
        "client_id": _codes(_without_none(pair_columns.client_id), name, code),
        "api": _codes(asked["code"].astype(np.int64), _api_of, code),
        "subject": _codes(_without_none(subject), name, code),
        "error": _codes(np.where(rows["codes"] == 0, 0, rows["code"].astype(np.int64)), _error, code),
    }


def _codes(values: NDArray[np.int64], text: Callable[[int], str], code: _Code) -> NDArray[np.int64]:
    """The code of the text of each value; texts are made once for equal values.

    By a table, which suits indices of names and numbers of 16 bits: `np.unique` takes ten times as long.
    """
    if not len(values):
        return values
    low = int(values.min())
    far = values - low
    different = distinct(far)
    table = np.zeros(different[-1] + 1, np.int64)
    table[different] = [code(text(low + one)) for one in different]
    return table[far]


def _without_none(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of names, -1 for no name."""
    return np.where(indices == NONE, -1, indices)


def _api(name: str | None, key: int | None, version: int | None) -> str:
    api = name or ("?" if key is None else f"API {key}")
    return api if version is None else f"{api} v{version}"


def _api_of(code: int) -> str:
    version = version_of(code)
    return _api(version.api, version.key, version.version)


def _error(code: int) -> str:
    return "" if code == 0 else error_name(code) or f"error {code}"


def _subjects_of(exchange: Exchange) -> list[str]:
    """The topics, and the group or transactional id if there is only one."""
    named = mentions(exchange.request, exchange.response)
    names = [*named.topics]
    for one in (named.groups, named.transactions):
        names += one if len(one) == 1 else ()
    return names


def _subjects(columns: ExchangeColumns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of `_subjects_of` each row except the first one, and the index of that one's name."""
    rows = columns.rows
    topics = rows["topics"].astype(np.int64)
    firsts = np.cumsum(topics) - topics
    # A last element for rows without topics.
    first = np.append(columns.topics, NONE).astype(np.int64)[np.where(topics > 0, firsts, len(columns.topics))]
    count = topics
    for one in (rows["group"].astype(np.int64), rows["transaction"].astype(np.int64)):
        first = np.where(first == NONE, one, first)
        count = count + (one != NONE)
    return np.maximum(count - 1, 0), first
