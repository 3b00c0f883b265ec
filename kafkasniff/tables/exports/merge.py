"""Staged rows in their final order: each staged batch is sorted, and all together are merged a window at a time.

Memory holds one window, whatever the number of rows: batches are views of files that the kernel pages in and out.
Batches follow each other in time, so most rows come before those of all other batches, and need no sorting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.tables.rows.staged import SORT_KEYS

WINDOW_ROWS: Final = 65_536
WINDOW_BYTES: Final = 4 << 20
"""Approximate rows and bytes of a window. Rows that are sorted are copied three times; each batch among them
contributes at least one."""
AROUND_BYTES: Final = 64 << 10
"""Bytes of a mapped file that the kernel maps around a page that is read."""
TOUCHED_BYTES: Final = 4 << 20
"""Approximate bytes of mapped files that are read before `release` is called."""

_NULL: Final = -(2**63)

Key = tuple[int, ...]


def in_order(batch: pa.RecordBatch, table: str, first: NDArray[np.int64] | None = None) -> pa.RecordBatch:
    """The rows of a staged batch in the order of the table; rows with equal keys keep their order.

    `first`: a key that takes precedence over all others.
    """
    keys = [_numbers(batch.column(name)) for name in SORT_KEYS[table]]
    order = _order(keys if first is None else [first, *keys])
    return batch if order is None else batch.take(pa.array(order))


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    """A key as numbers with the same order as its values within this batch, null first."""
    if pa.types.is_string(column.type):
        column = column.dictionary_encode()
    if pa.types.is_dictionary(column.type):
        ranks = np.argsort(np.argsort(np.array(column.dictionary.to_pylist() or [""], object)))
        codes = pc.fill_null(column.indices, -1).to_numpy()
        return np.where(codes < 0, -1, ranks[codes]).astype(np.int64)
    # Without nulls this is a view, which costs no memory.
    values = column.cast(pa.int64())
    numbers: NDArray[np.int64] = (pc.fill_null(values, _NULL) if values.null_count else values).to_numpy()
    return numbers


def _order(keys: list[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """The order of rows by keys; None if they are in order.

    Rows of one exchange are consecutive. Such runs are sorted instead of rows, because there are far fewer.
    """
    rows = len(keys[0])
    if rows < 2 or _is_sorted(keys):
        return None
    *outer, last = keys
    new = np.zeros(rows - 1, np.bool_)
    for key in outer:
        new |= key[1:] != key[:-1]
    new |= last[1:] < last[:-1]
    starts = np.concatenate(([0], np.flatnonzero(new) + 1))
    order = np.lexsort([key[starts] for key in reversed(keys)])
    stops = np.append(starts[1:], rows)
    same = np.ones(len(order) - 1, np.bool_)
    for key in outer:
        same &= key[starts[order[1:]]] == key[starts[order[:-1]]]
    if (same & (last[stops[order[:-1]] - 1] > last[starts[order[1:]]])).any():
        # Runs of the same exchange that overlap.
        whole: NDArray[np.int64] = np.lexsort(list(reversed(keys)))
        return whole
    counts = (stops - starts)[order]
    ends = np.cumsum(counts)
    rearranged: NDArray[np.int64] = (
        np.arange(rows) - np.repeat(ends - counts, counts) + np.repeat(starts[order], counts)
    )
    return rearranged


def _is_sorted(keys: list[NDArray[np.int64]]) -> bool:
    rises, same = np.zeros(len(keys[0]) - 1, np.bool_), np.ones(len(keys[0]) - 1, np.bool_)
    for key in keys:
        rises |= same & (key[1:] > key[:-1])
        same &= key[1:] == key[:-1]
    return bool((rises | same).all())


class _Segment:
    """Rows of one staged batch that have the same API (in tables with that column), sorted."""

    __slots__ = ("_keys", "batch", "first", "high", "low", "row_bytes")

    def __init__(self, batch: pa.RecordBatch, keys: list[NDArray[np.int64]], low: int, high: int, size: float) -> None:
        self.batch = batch
        self._keys = keys
        self.low = low
        self.high = high
        self.row_bytes = size
        self.first = self.key(low)

    def key(self, row: int) -> Key:
        return tuple(int(column[row]) for column in self._keys)

    def before(self, key: Key) -> int:
        """The index of the first row that is not less than a key."""
        return bisect_left(range(self.high), key, lo=self.low, key=self.key)

    def up_to(self, key: Key) -> int:
        """The index after the last row that is not greater than a key."""
        return bisect_right(range(self.high), key, lo=self.low, key=self.key)

    def take(self, stop: int) -> pa.RecordBatch | None:
        """The rows before an index, which are removed; None if there are none."""
        start, self.low = self.low, stop
        return self.batch.slice(start, stop - start) if stop > start else None


def merged(
    batches: Iterable[pa.RecordBatch],
    table: str,
    window_bytes: int | None = None,
    release: Callable[[], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows of sorted staged batches in the order of the table, in windows of `WINDOW_BYTES` or less.

    `release` is called after batches were read, within windows too: their pages may be released.
    """
    names = SORT_KEYS[table]
    most = window_bytes or WINDOW_BYTES
    by_api: dict[str | None, list[_Segment]] = {}
    for batch in batches:
        if not len(batch):
            continue
        size = batch.nbytes / len(batch)
        keys = [_numbers(batch.column(name)) for name in names if name not in _TEXTS]
        if names[0] == "api":
            for api, low, high in _apis(batch.column("api")):
                by_api.setdefault(api, []).append(_Segment(batch, keys, low, high, size))
        else:
            by_api.setdefault(None, []).append(_Segment(batch, keys, 0, len(batch), size))
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for api in sorted(by_api, key=lambda name: (name is not None, name or "")):
        for piece in _pieces(by_api.pop(api), table, most, release):
            bytes_ = piece.nbytes
            if waiting and (rows + len(piece) > WINDOW_ROWS or size + bytes_ > most):
                yield together(waiting, release)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += len(piece)
            size += bytes_
    if waiting:
        yield together(waiting, release)


_TEXTS: Final = frozenset({"api", "kind", "detail"})
"""Text keys: segments are not merged by them, but each window is sorted by them."""


def _apis(column: pa.Array) -> Iterator[tuple[str | None, int, int]]:
    """(API, first row, row after the last) of a column in which equal values are consecutive."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()
    names = encoded.dictionary.to_pylist()
    starts = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1, [len(codes)])).tolist()
    for low, high in pairwise(starts):
        yield (None if codes[low] < 0 else names[codes[low]]), low, high


def _pieces(
    segments: list[_Segment], table: str, most: int, release: Callable[[], None] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of segments in order, at most a window at a time."""
    # Ties keep the order of the batches, which is that of staging.
    waiting = deque(sorted(segments, key=lambda segment: segment.first))
    active: list[_Segment] = []
    while waiting or active:
        if not active:
            active.append(waiting.popleft())
        share = min(WINDOW_ROWS, most / max(segment.row_bytes for segment in active)) / len(active)
        step = max(int(share), 1)
        pivot = min(segment.key(min(segment.low + step, segment.high) - 1) for segment in active)
        if waiting and waiting[0].first <= pivot:
            alone = active[0].take(active[0].before(waiting[0].first)) if len(active) == 1 else None
            if alone is None:
                active.append(waiting.popleft())
                continue
            parts = [alone]
        else:
            parts = [part for segment in active if (part := segment.take(segment.up_to(pivot))) is not None]
        active = [segment for segment in active if segment.low < segment.high]
        yield parts[0] if len(parts) == 1 else in_order(together(parts, release), table)


def together(parts: list[pa.RecordBatch], release: Callable[[], None] | None = None) -> pa.RecordBatch:
    """The concatenated rows of one or more batches, a column at a time.

    `release`: called after about `TOUCHED_BYTES`. A column of many small parts of mapped files makes far more of them
    resident than it reads.
    """
    if len(parts) == 1:
        return parts[0]
    columns = []
    touched = 0
    for number in range(len(parts[0].schema)):
        column = [part.column(number) for part in parts]
        columns.append(pa.concat_arrays(column))
        touched += len(parts) * len(column[0].buffers()) * AROUND_BYTES
        if release is not None and touched >= TOUCHED_BYTES:
            release()
            touched = 0
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
