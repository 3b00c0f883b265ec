"""Staged rows: their files, in Arrow's stream format, one for each table, read back as views; and their final order.

Those that an earlier process staged may be damaged, or written by somebody else. Arrow trusts a file's metadata about
buffers, and their content: offsets beyond the data, indices beyond a dictionary, or text that is not UTF-8 could crash
the process or leak its memory. So `check_staged` validates every batch in full. Files that this process, or another
one of the same run, has staged are not validated.
"""

from __future__ import annotations

import mmap
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import BinaryIO, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.errors import KafkasniffError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import DAY_NS, SORT_KEYS, STAGED, UNDATED, StagedParts

# -- order -------------------------------------------------------------------------------------------------------------
#
# Each staged batch is sorted, and all together are merged a window at a time.
#
# Memory holds one window, whatever the number of rows: batches are views of files that the kernel pages in and out.
# Batches follow each other in time, so most rows come before those of all other batches, and need no sorting.

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


# -- files of a table --------------------------------------------------------------------------------------------------

RELEASE_BATCHES: Final = 16
"""Staged batches whose keys are read before their pages are released."""

Days = NDArray[np.int64]


class StagedFiles:
    """Writes staged batches to a folder of its own: `TABLE/00000.arrow`. Raises OSError.

    Batches are sorted by date, then as the table is. A table has one file, however many dates there are.
    """

    def __init__(self, folder: ConfinedPath) -> None:
        self._folder = folder
        self._open: dict[str, tuple[BinaryIO, pa.RecordBatchWriter]] = {}
        self.rows = 0

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows."""
        if len(batch):
            self.rows += len(batch)
            self.put(table, in_order(batch, table, _days(batch, table)))

    def put(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows without sorting them."""
        if table not in self._open:
            stream = self._folder.below(table, "00000.arrow").create()
            self._open[table] = stream, pa.ipc.new_stream(pa.PythonFile(stream, "w"), STAGED[table])
        self._open[table][1].write_batch(batch)

    def close(self) -> None:
        """Finish all files."""
        while self._open:
            stream, writer = self._open.popitem()[1]
            writer.close()
            stream.close()


class MappedFiles:
    """Files as memory. Only pages read since the last `release` are resident."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []

    def view(self, path: ConfinedPath) -> pa.Buffer:
        """The whole of a file, which is not empty and does not change. Raises OSError."""
        with path.open_to_read() as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._maps.append(mapped)
        return pa.py_buffer(mapped)

    def release(self) -> None:
        """Release the pages that were read. Later reads come from the page cache or from disk."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is not None:
            for mapped in self._maps:
                mapped.madvise(advice)

    def released(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, for a consumer that reads little of each; pages are released in between."""
        for number, batch in enumerate(batches):
            if number % RELEASE_BATCHES == 0:
                self.release()
            yield batch
        self.release()


class StagedTable:
    """The staged rows of a table, in the order in which their batches were written: views of files."""

    def __init__(self, folders: list[ConfinedPath], table: str) -> None:
        self._table = table
        self.files = MappedFiles()
        self._batches = [batch for folder in folders for batch in self._read(folder)]

    def _read(self, folder: ConfinedPath) -> Iterator[pa.RecordBatch]:
        place = folder / self._table
        for name in place.names():
            with pa.ipc.open_stream(pa.BufferReader(self.files.view(place / name))) as reader:
                yield from reader

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that were not staged."""
        if len(batch):
            self._batches.append(in_order(batch, self._table, _days(batch, self._table)))

    def days(self, only: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None) -> Counter[int]:
        """Number of rows of each day; `only` filters the rows of a batch."""
        found: Counter[int] = Counter()
        for whole in self.files.released(self._batches):
            batch = whole if only is None else only(whole)
            days = _days(batch, self._table)
            if days is None:
                found[_only_day(batch, self._table)] += len(batch)
            else:
                numbers, counts = np.unique(days, return_counts=True)
                found.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        return +found

    def parts(self, own: Collection[int], rest: ConfinedPath) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """(day, sorted batches) of the days in `own`, in order of time; the rows between them come under UNDATED.

        `rest`: a folder that does not exist yet, for rows that have to be sorted again. Raises OSError.
        """
        chosen = np.array(sorted(own), np.int64)
        edges: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        batches = list(self._batches)
        mixed = []
        sorted_files = StagedFiles(rest)
        for index, batch in enumerate(self.files.released(self._batches)):
            days = _days(batch, self._table)
            if days is None:
                days = np.array([_only_day(batch, self._table)], np.int64)
                numbers, firsts = _part_numbers(days, chosen), np.zeros(1, np.int64)
            else:
                firsts = _starts(days)
                numbers = _part_numbers(days[firsts], chosen)
                if (numbers[1:] == numbers[:-1]).any():
                    # Several days in one part: all rows of the batch by part, then as the table is.
                    every = _part_numbers(days, chosen)
                    sorted_files.put(self._table, in_order(batch, self._table, every))
                    mixed.append(index)
                    every = np.sort(every)
                    firsts = _starts(every)
                    numbers = every[firsts]
            edges.append((numbers, np.append(firsts, len(batch))))
        sorted_files.close()
        for index, batch in zip(mixed, self._read(rest), strict=True):
            batches[index] = batch
        for number in sorted({number for numbers, _ in edges for number in numbers.tolist()}):
            found = []
            for batch, (numbers, bounds) in zip(batches, edges, strict=True):
                at = int(np.searchsorted(numbers, number))
                if at < len(numbers) and numbers[at] == number:
                    found.append(batch.slice(bounds[at], bounds[at + 1] - bounds[at]))
            yield (int(chosen[number // 2]) if number % 2 else UNDATED), found


def _times(batch: pa.RecordBatch, table: str) -> pa.Array:
    times = batch.column("_time_ns" if table == "records" else "time_ns")
    return pc.fill_null(times, UNDATED) if times.null_count else times


def _days(batch: pa.RecordBatch, table: str) -> Days | None:
    """The day of each row; None if all rows have the same, or there are none."""
    times = _times(batch, table).to_numpy()
    if not len(times) or times.min() // DAY_NS == times.max() // DAY_NS:
        return None
    days: Days = times // DAY_NS
    return days


def _only_day(batch: pa.RecordBatch, table: str) -> int:
    return _times(batch, table)[0].as_py() // DAY_NS if len(batch) else UNDATED


def _starts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of values that differ from the one before."""
    return np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))


def _part_numbers(days: Days, chosen: Days) -> NDArray[np.int64]:
    """Parts in order of time: a chosen day has an odd number, the days between two of them have an even one."""
    at = np.searchsorted(chosen, days)
    is_chosen = np.append(chosen, -1)[at] == days if len(chosen) else np.zeros(len(days), np.bool_)
    is_chosen &= at < len(chosen)
    numbers: NDArray[np.int64] = 2 * at + is_chosen
    return numbers


# -- validation ------------------------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"\d{5}\.arrow", re.ASCII)
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""End of a stream of Arrow (Columnar format, "IPC Streaming Format")."""
_RECORD_BATCH: Final = 3
_DICTIONARY_BATCH: Final = 2
"""`MessageHeader` of Arrow's Message.fbs."""
_NEVER_NULL: Final = {"exchanges": ("topics", "partitions", "problems")}


class DamagedRunError(KafkasniffError):
    """The files of an interrupted run cannot be used: the run has to be repeated from its start."""


def check_staged(folders: Iterable[ConfinedPath], rows: int) -> None:
    """Raises DamagedRunError unless folders hold only staged rows, `rows` of them in total."""
    found = 0
    for folder in folders:
        for table in folder.names():
            for name in (folder / table).names():
                path = folder.below(table, name)
                if table not in TABLE_NAMES or not _NAME.fullmatch(name):
                    raise DamagedRunError(f"{path} is not a file of staged rows")
                try:
                    found += _rows_of(path, table)
                except (OSError, ValueError, pa.ArrowException, msgspec.MsgspecError) as error:
                    raise DamagedRunError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    if found != rows:
        raise DamagedRunError(f"{found} rows are staged, not {rows}")


def _rows_of(path: ConfinedPath, table: str) -> int:
    """Number of rows of a file, all of which are valid. Raises ValueError, Arrow's and msgspec's exceptions."""
    files = MappedFiles()
    content = files.view(path)
    if len(content) < len(_END) or content[-len(_END) :].to_pybytes() != _END:
        raise ValueError("its end is missing")
    # Compressed buffers state their size, and Arrow would allocate that much memory. We write none.
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(content)):
        if _is_compressed(message.metadata):
            raise ValueError("it is compressed")
    rows = 0
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        if not reader.schema.equals(STAGED[table]):
            raise ValueError(f"its columns are not those of {table}")
        for batch in reader:
            batch.validate(full=True)
            for column in _NEVER_NULL.get(table, ()):
                if batch.column(column).null_count:
                    raise ValueError(f"{column} is null")
            if table == "exchanges":
                _check_pending(batch)
            rows += len(batch)
            files.release()
    return rows


def _check_pending(batch: pa.RecordBatch) -> None:
    waiting = batch.select(["_pending", "request_body", "response_body"]).filter(batch.column("_pending").is_valid())
    for data, *bodies in zip(*(column.to_pylist() for column in waiting.columns), strict=True):
        if msgspec.msgpack.decode(data, type=StagedParts).bodies:
            for body in bodies:
                if body is not None:
                    orjson.loads(body)


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the body of a message is compressed, by the flatbuffer that describes it."""
    flat = memoryview(metadata)

    def number(at: int, size: int) -> int:
        if not 0 <= at <= len(flat) - size:
            raise ValueError("its metadata are damaged")
        return int.from_bytes(flat[at : at + size], "little")

    def field(table: int, index: int) -> int:
        """Position of a field in a table; 0 if the table lacks it."""
        places = table - int.from_bytes(number(table, 4).to_bytes(4, "little"), "little", signed=True)
        slot = 4 + 2 * index
        if slot >= number(places, 2):
            return 0
        offset = number(places + slot, 2)
        return table + offset if offset else 0

    def below(table: int, index: int) -> int:
        at = field(table, index)
        if not at:
            raise ValueError("its metadata are damaged")
        return at + number(at, 4)

    message = number(0, 4)
    kind = field(message, 1)
    found = number(kind, 1) if kind else 0
    if found not in {_RECORD_BATCH, _DICTIONARY_BATCH}:
        return False
    batch = below(message, 2)
    if found == _DICTIONARY_BATCH:
        batch = below(batch, 1)
    return field(batch, 3) != 0
