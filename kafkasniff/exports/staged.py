"""The files that staged rows wait in: Arrow's stream format, one for each table and date, read back as views."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.confined import ConfinedPath
from kafkasniff.exports.merge import in_order
from kafkasniff.rows.file_names import is_date
from kafkasniff.rows.staged import DAY_NS, STAGED, day_of

__all__ = ["OPEN_FILES", "MappedFiles", "StagedFiles", "read_staged", "staged_dates"]

OPEN_FILES: Final = 16
"""Files open at a time. Captures run forward in time, so more are open only where their clocks are wrong."""


class StagedFiles:
    """Writes staged batches below a folder that is its own: `TABLE/DATE/NNNNN.arrow`. Raises OSError."""

    def __init__(self, folder: ConfinedPath) -> None:
        self._folder = folder
        self._open: OrderedDict[tuple[str, str], tuple[BinaryIO, pa.RecordBatchWriter]] = OrderedDict()
        self._number = 0
        self.rows = 0

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Put rows where their dates are."""
        self.rows += len(batch)
        times = batch.column("_time_ns" if table == "records" else "time_ns")
        days = pc.fill_null(times, 0).to_numpy() // DAY_NS
        for day in np.unique(days).tolist():
            part = batch if len(days) and (days == day).all() else batch.filter(pa.array(days == day))
            self._writer(table, day_of(day)).write_batch(in_order(part, table))

    def _writer(self, table: str, date: str) -> pa.RecordBatchWriter:
        key = (table, date)
        found = self._open.get(key)
        if found is not None:
            self._open.move_to_end(key)
            return found[1]
        if len(self._open) >= OPEN_FILES:
            self._finish(*self._open.popitem(last=False)[1])
        stream = self._folder.below(table, date, f"{self._number:05}.arrow").create()
        self._number += 1
        writer = pa.ipc.new_stream(pa.PythonFile(stream, "w"), STAGED[table])
        self._open[key] = (stream, writer)
        return writer

    @staticmethod
    def _finish(stream: BinaryIO, writer: pa.RecordBatchWriter) -> None:
        writer.close()
        stream.close()

    def close(self) -> None:
        """Finish all files."""
        while self._open:
            self._finish(*self._open.popitem(last=False)[1])


def staged_dates(folders: list[ConfinedPath], table: str) -> list[str]:
    """The dates that have staged rows of a table, in order."""
    return sorted({date for folder in folders for date in (folder / table).names() if is_date(date)})


class MappedFiles:
    """Files as memory, of which no more is resident than was read since `release`."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []

    def view(self, path: ConfinedPath) -> pa.Buffer:
        """All of a file, which is not empty and does not change. Raises OSError."""
        with path.open_to_read() as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._maps.append(mapped)
        return pa.py_buffer(mapped)

    def release(self) -> None:
        """Let go of the pages that were read; what is read again comes from the kernel's cache, or from disk."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is not None:
            for mapped in self._maps:
                mapped.madvise(advice)


def read_staged(folders: list[ConfinedPath], table: str, date: str, files: MappedFiles) -> Iterator[pa.RecordBatch]:
    """The staged batches of a table and date, in the order in which they were written: views of the files."""
    for folder in folders:
        place = folder.below(table, date)
        for name in place.names():
            with pa.ipc.open_stream(pa.BufferReader(files.view(place / name))) as reader:
                yield from reader
