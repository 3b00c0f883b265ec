"""The files of staged rows, in Arrow's stream format: one for each table, read back as views.

Those that an earlier process staged may be damaged, or written by somebody else. Arrow trusts a file's metadata about
buffers, and their content: offsets beyond the data, indices beyond a dictionary, or text that is not UTF-8 could crash
the process or leak its memory. So `check_staged` validates every batch in full. Files that this process, or another
one of the same run, has staged are not validated.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.errors import KafkasniffError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.exports.merge import in_order
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import DAY_NS, STAGED, UNDATED, StagedParts

# -- a file ------------------------------------------------------------------------------------------------------------
#
# A file that is written once and soon read once; it bypasses the page cache as soon as it is large.
#
# Staged rows may be larger than their capture. In the page cache they would displace other data, and finding free pages
# costs processor time: 600 MB took 2.5 s in a virtual machine, and 0.15 s without the cache.

CACHED_BYTES: Final = 32 << 20
"""Bytes that are written through the page cache: short runs never wait for a disk."""
BLOCK_BYTES: Final = 2 << 20
"""Bytes of one write, from page-aligned memory."""

_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""0 if the system does not have it: then the page cache is used."""


class StagingFile:
    """Writes to `stream`, which is new, and closes it. Raises OSError, possibly for an earlier write.

    A thread writes one block while the next one is filled.
    """

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._handle = stream.fileno()
        self._block = mmap.mmap(-1, BLOCK_BYTES)
        self._spare: mmap.mmap | None = None
        self._used = 0
        self._before = 0
        """Bytes of earlier blocks."""
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def tell(self) -> int:
        """Bytes so far."""
        return self._before + self._used

    def write(self, data: bytes | pa.Buffer) -> int:
        """Take all of `data`."""
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            piece = view[start : start + BLOCK_BYTES - self._used]
            self._block[self._used : self._used + len(piece)] = piece
            self._used += len(piece)
            start += len(piece)
            if self._used == BLOCK_BYTES:
                self._hand_on()
        return len(view)

    def flush(self) -> None:
        """Do nothing: data is written when a block is full, and at the end."""

    def _hand_on(self) -> None:
        """Pass a full block to the thread once it has written the one before."""
        self._wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1)
            self._spare = mmap.mmap(-1, BLOCK_BYTES)
        if _DIRECT and self._before >= CACHED_BYTES > self._before - BLOCK_BYTES:
            self._set_direct(on=True)
        self._writing = self._writer.submit(self._put, memoryview(self._block))
        assert self._spare is not None
        self._block, self._spare = self._spare, self._block
        self._before += BLOCK_BYTES
        self._used = 0

    def _wait(self) -> None:
        if self._writing is not None:
            # A failed write is kept, so that nothing is written after the gap.
            self._writing.result()
            self._writing = None

    def _put(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._handle, data) :]
            except OSError as error:
                # Refused because of its alignment in memory or in the file, as after a partial write.
                if error.errno != errno.EINVAL or not self._set_direct(on=False):
                    raise

    def _set_direct(self, *, on: bool) -> bool:
        """Whether the mode was changed: file systems may refuse it."""
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        wanted = flags | _DIRECT if on else flags & ~_DIRECT
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETFL, wanted)
        except OSError:
            return False
        return wanted != flags

    def close(self) -> None:
        """Write the rest."""
        if self.closed:
            return
        self.closed = True
        try:
            self._wait()
            self._set_direct(on=False)
            self._put(memoryview(self._block)[: self._used])
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            self._stream.close()


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
