"""Partial answers as tables that can be merged in any order: the state of every analysis.

A `Partials` holds rows that are grouped by key columns and folded by sums, minima, maxima, or the last value. All of
these are commutative and associative, so the answer does not depend on how the rows were cut into batches, on the order
of the batches, or on the tree in which partial answers were merged.

Memory is bounded (`Shape.bound`). `Shape.keep` defines what happens above the bound:

- `coarsens`: buckets of a histogram are merged in pairs, all of them alike, as often as necessary: the same result in
  every order of updates. Only if that does not suffice are groups dropped.
- `heaviest`: the groups with the least weight are dropped and counted. A group that reappears is too low by at most
  `Lost.undercount` (the idea of Misra and Gries' frequent items). Only here does the answer depend on the order of
  updates, within that error, and only above the bound. It has to: a group that is light so far may become the
  heaviest, so what is dropped depends on what has come. Independent of the order would be a choice that ignores
  weights (`sampled`), which would miss the heaviest groups, or memory for all groups.
- `earliest`: the first rows by `Shape.order` stay: the same rows in every order of updates. A measure in `order`
  must be one that only falls when rows are folded (`min`, or `first`).
- `sampled`: rows stay whose hash ends in enough zero bits: the same sample in every order of updates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PENDING_ROWS: Final = 1 << 17
"""Number of rows that wait to be folded together: folding each small batch alone would have a fixed cost each time."""
FEW_ROWS: Final = 1 << 12
"""Fewer rows than this wait unfolded: most batches bring a detector only a few."""
ENCODED_ROWS: Final = 1 << 8
"""From this number of rows on, dictionaries of texts are folded as numbers before they become texts."""
MAX_SAMPLE_LEVEL: Final = 62
MAX_COARSE_LEVEL: Final = 7
"""Buckets are merged until there is one for each power of two (`percentiles`)."""

How = Literal["sum", "min", "max", "first", "last"]
_LAST_PLACE: Final = (1 << 63) - 1
"""In the place of null, which is last."""
_OF_ROWS: Final = {"first": "min", "last": "max"}
"""What is taken from the row with the lowest or highest place in the order."""


class Shape(msgspec.Struct, frozen=True):
    """Definition of the rows of a `Partials`, and of how rows with equal keys are combined."""

    keys: tuple[tuple[str, pa.DataType], ...]
    measures: tuple[tuple[str, pa.DataType, How], ...] = ()
    """Columns that are folded. Without keys all rows stay as they are."""
    order: tuple[str, ...] = ()
    """Columns that define `first`, `last` and `earliest`; they are keys or measures themselves."""
    keep: Literal["heaviest", "earliest", "sampled"] = "heaviest"
    weight: str | None = None
    """Measure that makes groups heavy (`heaviest`); None: each row weighs 1."""
    group: tuple[str, ...] | None = None
    """Keys whose rows are dropped together (`heaviest`), or of which `each` rows stay; None: all keys."""
    each: int = 0
    """Number of rows that stay per `group`, the first by `order`; 0: all."""
    sample: str | None = None
    """Key that holds a 64-bit hash (`sampled`)."""
    coarsens: str | None = None
    """Key that holds a number of `percentiles.bucket_of`; its buckets become wider before groups are dropped."""
    without_zero: str | None = None
    """Measure without meaning at 0: such rows are dropped."""
    bound: int = 1 << 19
    """Maximum number of rows."""

    @property
    def schema(self) -> pa.Schema:
        """Keys, then measures."""
        return _empty(self.keys, self.measures).schema


class Lost(msgspec.Struct):
    """What a bound has dropped."""

    rows: int = 0
    """Folded rows that were dropped. A row that reappears and is dropped again counts twice, so except for whether it
    is 0, the number depends on the batches."""
    weight: int = 0
    """Their total weight (`heaviest`)."""
    undercount: int = 0
    """By how much the weight of a remaining group may be too low (`heaviest`)."""
    level: int = 0
    """One of 2**level rows was examined (`sampled`), or 2**level buckets became one (`coarsens`)."""


class Partials:
    """Rows of one shape. `add` and `merge` fold in more, `table()` returns all of them."""

    def __init__(self, shape: Shape, lost: Lost | None = None) -> None:
        """`lost` is what was dropped of the rows to come."""
        self.shape = shape
        self._lost = Lost() if lost is None else Lost(*msgspec.structs.astuple(lost))
        self._folded = _empty(shape.keys, shape.measures)
        self._schema = shape.schema
        self._folds_encoded = (
            bool(shape.keys)
            and not shape.each
            and (not shape.measures or any(how != "first" for _, _, how in shape.measures))
        )
        """Only then are texts never sorted."""
        self._reduces = True
        """The last time, folding left half of the rows or fewer: otherwise rows wait until there are many."""
        self._pending: list[pa.Table] = []
        self._waiting = 0
        self._few: list[pa.Table] = []
        self._few_rows = 0

    @property
    def lost(self) -> Lost:
        """What the bound has dropped of the rows so far."""
        self.table()
        return self._lost

    def add(self, columns: dict[str, Any]) -> None:
        """Fold in rows, given as one array for each column of the shape (Arrow, NumPy or a list), equally long."""
        count = len(columns[self._schema.names[0]])
        if not count:
            return
        encoded = self._reduces and count >= ENCODED_ROWS and self._folds_encoded
        arrays = [
            # Texts of the order are sorted.
            _array(columns[field.name], field.type, encoded=encoded and field.name not in self.shape.order)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(arrays, names=self._schema.names)
        if table.schema != self._schema:
            table = self._fold_if_useful(table).cast(self._schema)
        self._few.append(table)
        self._few_rows += table.num_rows
        if self._few_rows >= min(FEW_ROWS, self.shape.bound):
            rows = pa.concat_tables(self._few)
            self._few, self._few_rows = [], 0
            self._take(self._fold_if_useful(rows))

    def merge(self, other: Partials) -> None:
        """Fold in another's rows. Raises ValueError if the shapes differ."""
        if other._schema != self._schema:
            raise ValueError("partial answers of different shapes cannot be merged")
        table, lost = other.table(), other.lost
        self._lost.rows += lost.rows
        self._lost.weight += lost.weight
        self._lost.undercount += lost.undercount
        if lost.level > self._lost.level:
            self._lost.level = lost.level
            # Pending rows follow when they are folded.
            if self._folded.num_rows:
                self._folded = self._fold(self._folded)
        self._take(table)

    def table(self) -> pa.Table:
        """All rows, folded, in no meaningful order."""
        if self._pending or self._few:
            rows = pa.concat_tables([self._folded, *self._pending, *self._few])
            folded = self._fold(rows)
            self._reduces = 2 * folded.num_rows <= rows.num_rows
            self._pending, self._waiting, self._few, self._few_rows = [], 0, [], 0
            self._folded = self._bounded(folded).combine_chunks()
        return self._folded

    def _fold_if_useful(self, table: pa.Table) -> pa.Table:
        if not self._reduces:
            return table
        folded = self._fold(table)
        self._reduces = 2 * folded.num_rows <= table.num_rows
        return folded

    def _take(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        self._pending.append(table)
        self._waiting += table.num_rows
        # At most twice the bound is held; a bound below PENDING_ROWS is kept more tightly.
        if self._waiting >= min(PENDING_ROWS, self.shape.bound):
            self.table()

    def _fold(self, table: pa.Table) -> pa.Table:
        shape = self.shape
        if self._lost.level:
            table = self._sampled(table) if shape.coarsens is None else self._coarser(table)
        names = [name for name, _ in shape.keys]
        if not names or (table.num_rows == 1 and shape.without_zero is None):
            return table
        if shape.each and not shape.measures:
            return self._first_of_each(table)
        if shape.measures and all(how == "first" for _, _, how in shape.measures):
            if shape.each and shape.order[0] in names:
                table, _ = self._candidates(table)
            folded = self._firsts(table)
            return self._first_of_each(folded) if shape.each else folded
        wanted: list[tuple[str, str]] = [(name, how) for name, _, how in shape.measures if how not in _OF_ROWS]
        rows, order = table, None
        if len(wanted) < len(shape.measures):
            # Only the first or last row of each key is copied.
            order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in shape.order])
            rank = np.empty(table.num_rows, np.int64)
            rank[order.to_numpy()] = np.arange(table.num_rows)
            rows = table.append_column("__rank", pa.array(rank))
            wanted += [("__rank", how) for how in _OF_ROWS.values()]
        found = rows.group_by(names, use_threads=False).aggregate(wanted)
        columns = [found.column(name) for name in names]
        for name, kind, how in shape.measures:
            if order is not None and how in _OF_ROWS:
                columns.append(table.column(name).take(order.take(found.column(f"__rank_{_OF_ROWS[how]}"))))
            else:
                columns.append(found.column(f"{name}_{how}").cast(kind))
        folded = pa.Table.from_arrays(columns, names=self._schema.names)
        if shape.without_zero is not None:
            folded = folded.filter(pc.not_equal(folded.column(shape.without_zero), 0))
        return self._first_of_each(folded) if shape.each else folded

    def _firsts(self, table: pa.Table) -> pa.Table:
        """The first row of each key; nothing of the others needs to be combined."""
        names = [name for name, _ in self.shape.keys]
        order = self._by_order(table)
        rows = table.select(names).take(order).append_column("__row", order)
        # Rows stay in order.
        firsts = rows.group_by(names, use_threads=False).aggregate([("__row", "first")])
        return table.take(firsts.column("__row_first"))

    def _first_of_each(self, table: pa.Table) -> pa.Table:
        """The first different rows of each group."""
        table, numbers = self._candidates(table)
        rest = self._places_in_group()
        # Numbers are sorted and compared, not the texts of groups.
        rows = pa.table({"__group": numbers, **{name: table[name] for name in rest}}).combine_chunks()
        places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in rows.column_names])
        rows = rows.take(places)
        begins = _differ(rows["__group"])
        different = np.logical_or.reduce([begins, *(_differ(rows[name]) for name in rest)])
        places, begins = places.filter(pa.array(different)), begins[different]
        within = np.arange(len(begins)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        return table.take(places.filter(pa.array(within < self.shape.each)))

    def _candidates(self, table: pa.Table) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
        """The rows that may be among the first of their groups, and the numbers of their groups.

        Mostly, the first column of the order shows that a row is not.
        """
        numbers = _numbers(table, list(self.shape.group or [name for name, _ in self.shape.keys]))
        rest = self._places_in_group()
        if not rest or not pa.types.is_integer(table.schema.field(rest[0]).type):
            return table, numbers
        first = pc.fill_null(table[rest[0]].cast(pa.int64()), _LAST_PLACE).to_numpy()
        order = np.lexsort((first, numbers))
        few = order[_ranks(numbers[order], first[order]) < self.shape.each]
        return table.take(pa.array(few)), numbers[few]

    def _places_in_group(self) -> list[str]:
        """`_places` without the keys of groups."""
        group = self.shape.group or [name for name, _ in self.shape.keys]
        return [name for name in self._places() if name not in group]

    def _by_order(self, table: pa.Table) -> pa.Array:
        """The places of rows by `Shape.order`."""
        return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in self._places()])

    def _places(self) -> dict[str, None]:
        """`Shape.order`, then the other keys, so that the same rows stay if several are equally early."""
        return dict.fromkeys((*self.shape.order, *(name for name, _ in self.shape.keys)))

    def _bounded(self, table: pa.Table) -> pa.Table:
        while (
            self.shape.coarsens is not None
            and table.num_rows > self.shape.bound
            and self._lost.level < MAX_COARSE_LEVEL
        ):
            self._lost.level += 1
            table = self._fold(table)
        if table.num_rows <= self.shape.bound:
            return table
        return {"heaviest": self._heaviest, "earliest": self._earliest, "sampled": self._resampled}[self.shape.keep](
            table
        )

    def _earliest(self, table: pa.Table) -> pa.Table:
        self._lost.rows += table.num_rows - self.shape.bound
        return table.take(self._by_order(table).slice(0, self.shape.bound))

    def _resampled(self, table: pa.Table) -> pa.Table:
        while table.num_rows > self.shape.bound and self._lost.level < MAX_SAMPLE_LEVEL:
            self._lost.level += 1
            table = self._sampled(table)
        return table

    def _sampled(self, table: pa.Table) -> pa.Table:
        assert self.shape.sample is not None
        low = pc.bit_wise_and(table.column(self.shape.sample), pa.scalar((1 << self._lost.level) - 1, pa.int64()))
        return table.filter(pc.equal(low, 0))

    def _coarser(self, table: pa.Table) -> pa.Table:
        """Rows whose buckets have the width of the level; it may be called again at the same level."""
        name = self.shape.coarsens
        assert name is not None
        mask = pa.scalar(-1 << self._lost.level, pa.int64())
        buckets = table.column(name)
        cut = pc.bit_wise_and(pc.abs(buckets), mask)
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pc.multiply(cut, pc.sign(buckets)))

    def _heaviest(self, table: pa.Table) -> pa.Table:
        shape = self.shape
        names = list(shape.group or [name for name, _ in shape.keys])
        weights = table.column(shape.weight) if shape.weight else pa.array(np.ones(table.num_rows, np.int64))
        whole = table.select(names).append_column("__weight", weights)
        whole = whole.append_column("__row", pa.array(np.arange(table.num_rows)))
        groups = whole.group_by(names, use_threads=False).aggregate([("__weight", "sum"), ("__row", "list")])
        # Including the keys, so that equally heavy groups are dropped in the same order everywhere.
        keys = [("__weight_sum", "descending"), *((name, "ascending") for name in names)]
        groups = groups.take(pc.sort_indices(groups, sort_keys=keys))
        sizes = pc.list_value_length(groups.column("__row_list")).to_numpy()
        # Down to half of the bound; otherwise every further batch would have to be cut again.
        kept = int(np.searchsorted(np.cumsum(sizes), shape.bound // 2, side="right"))
        cut = groups.column("__weight_sum").slice(kept)
        self._lost.rows += int(sizes[kept:].sum())
        self._lost.weight += pc.sum(cut).as_py() or 0
        self._lost.undercount += pc.max(cut).as_py() or 0
        return table.take(pc.list_flatten(groups.column("__row_list").slice(0, kept)))

    def dump(self) -> tuple[bytes, list[int]]:
        """Rows as an Arrow stream, and the numbers of `lost`."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_table(self.table())
        return sink.getvalue().to_pybytes(), list(msgspec.structs.astuple(self._lost))

    def load(self, rows: bytes, lost: list[int]) -> None:
        """Replace the contents with those from `dump`. Raises ValueError if it is damaged or has another shape."""
        try:
            with pa.ipc.open_stream(rows) as reader:
                table = reader.read_all()
            # Otherwise, offsets that lead out of a buffer would be followed.
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"a damaged partial answer: {error}") from None
        if table.schema != self._schema:
            raise ValueError("a partial answer of another shape or version")
        if len(lost) != len(Lost.__struct_fields__) or min(lost) < 0 or lost[-1] > MAX_SAMPLE_LEVEL:
            raise ValueError("a damaged partial answer")
        self._lost = Lost(*lost)
        self._folded, self._pending, self._waiting, self._few, self._few_rows = table, [], 0, [], 0


@functools.lru_cache(maxsize=2_000)
def _empty(keys: tuple[tuple[str, pa.DataType], ...], measures: tuple[tuple[str, pa.DataType, How], ...]) -> pa.Table:
    """No rows of keys and measures: made once, since a run has hundreds of partial answers, most of them empty."""
    return pa.schema([*keys, *((name, kind) for name, kind, _ in measures)]).empty_table()


def _numbers(table: pa.Table, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each row, the same for equal values of some columns."""
    rows = table.select(names).append_column("__row", pa.array(np.arange(table.num_rows)))
    lists = rows.group_by(names, use_threads=False).aggregate([("__row", "list")])["__row_list"].combine_chunks()
    numbers = np.empty(table.num_rows, np.int64)
    numbers[pc.list_flatten(lists).to_numpy()] = pc.list_parent_indices(lists).to_numpy()
    return numbers


def _ranks(
    groups: np.ndarray[Any, np.dtype[np.int64]], values: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many different smaller values the group of each value has; both sorted, by group first."""
    begins = np.append(True, groups[1:] != groups[:-1])
    rank = np.cumsum(np.append(True, values[1:] != values[:-1]) | begins)
    ranks: np.ndarray[Any, np.dtype[np.int64]] = rank - rank[begins][np.cumsum(begins) - 1]
    return ranks


def _differ(values: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each value differs from the one before; nulls are equal."""
    after, before = values.slice(1), values.slice(0, max(len(values) - 1, 0))
    same = pc.fill_null(pc.equal(after, before), False)
    if values.null_count:
        same = pc.or_(same, pc.and_(pc.is_null(after), pc.is_null(before)))
    differ = np.ones(len(values), np.bool_)
    differ[1:] = ~same.to_numpy()
    return differ


def _array(values: Any, kind: pa.DataType, *, encoded: bool) -> pa.Array | pa.ChunkedArray:
    """`encoded`: dictionaries stay."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values)
    if values.type == kind or (encoded and isinstance(values, pa.DictionaryArray)):
        return values
    return values.cast(kind)
