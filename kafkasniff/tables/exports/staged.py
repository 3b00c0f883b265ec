"""The files of staged rows, in Arrow's stream format: one for each table, read back as views."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.exports.merge import in_order
from kafkasniff.tables.exports.staging_file import StagingFile
from kafkasniff.tables.rows.staged import DAY_NS, STAGED, UNDATED

__all__ = ["MappedFiles", "StagedFiles", "StagedTable"]

RELEASE_BATCHES: Final = 16
"""Staged batches whose keys are read before their pages are released."""

Days = NDArray[np.int64]


class StagedFiles:
    """Writes staged batches to a folder of its own: `TABLE/00000.arrow`. Raises OSError.

    Batches are sorted by date, then as the table is. A table has one file, however many dates there are.
    """

    def __init__(self, folder: ConfinedPath) -> None:
        self._folder = folder
        self._open: dict[str, tuple[StagingFile, pa.RecordBatchWriter]] = {}
        self.rows = 0

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows."""
        if len(batch):
            self.rows += len(batch)
            self.put(table, in_order(batch, table, _days(batch, table)))

    def put(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows without sorting them."""
        if table not in self._open:
            stream = StagingFile(self._folder.below(table, "00000.arrow").create())
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
                numbers, firsts = _numbers(days, chosen), np.zeros(1, np.int64)
            else:
                firsts = _starts(days)
                numbers = _numbers(days[firsts], chosen)
                if (numbers[1:] == numbers[:-1]).any():
                    # Several days in one part: all rows of the batch by part, then as the table is.
                    every = _numbers(days, chosen)
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


def _numbers(days: Days, chosen: Days) -> NDArray[np.int64]:
    """Parts in order of time: a chosen day has an odd number, the days between two of them have an even one."""
    at = np.searchsorted(chosen, days)
    is_chosen = np.append(chosen, -1)[at] == days if len(chosen) else np.zeros(len(days), np.bool_)
    is_chosen &= at < len(chosen)
    numbers: NDArray[np.int64] = 2 * at + is_chosen
    return numbers
