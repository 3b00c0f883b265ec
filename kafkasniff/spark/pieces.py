"""Packets on their way to the shards: in pieces, each with packets of one shard, and in capture order again.

Spark handles every row one by one, in Java. As rows, packets cost more to shuffle and sort than to decode; a piece has
thousands of them, as columns, which are compressed before Java copies them. The task of a shard sorts its pieces.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.inspector import shard_of_rows
from kafkasniff.packets import COLUMNS, PACKET_BYTES, PacketBatch
from kafkasniff.runtime.threads import ClosedAtExit, Task, Threads
from kafkasniff.spark.options import arrow_schema
from kafkasniff.spark.packet_rows import packet_batches, payloads
from kafkasniff.spark.tasks import own_folder

# -- places ------------------------------------------------------------------------------------------------------------


def place_of(batch: PacketBatch, row: int) -> Place:
    """The place of a packet."""
    assert batch.clock is not None
    return Place(int(batch.clock[row]), int(batch.capture[row]), int(batch.number[row]))


def rows_before(batch: PacketBatch, place: Place) -> int:
    """The number of packets of a batch that precede a place."""
    assert batch.clock is not None
    here = batch.clock == place.clock
    earlier = (batch.clock < place.clock) | (here & (batch.capture < place.capture))
    here &= batch.capture == place.capture
    return int(np.count_nonzero(earlier | (here & (batch.number < place.number))))


# -- bytes of a piece --------------------------------------------------------------------------------------------------
#
# The bytes of a piece: columns of its packets, and their payloads, both compressed. What cannot get smaller, such as
# compressed record batches, costs 0.3 s of CPU time for each GB.

ZSTD_LEVEL: Final = -5
"""The level at which tasks compress what they hand to Spark. Level 1 writes a fifth less, but takes twice the time."""

_LENGTH_BYTES: Final = 4


def packed(columns: Sequence[bytes], payload: memoryview, compress: Callable[[Any], bytes]) -> tuple[bytes, ...]:
    """The bytes of a piece, in parts."""
    head = compress(msgspec.msgpack.encode(columns))
    return len(head).to_bytes(_LENGTH_BYTES, "little"), head, compress(payload)


def unpacked(data: bytes | pa.Buffer) -> tuple[list[bytes], bytes]:
    """The columns and the payloads of a piece."""
    view = memoryview(data)
    decompress = zstandard.ZstdDecompressor().decompress
    end = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    columns = msgspec.msgpack.decode(decompress(view[_LENGTH_BYTES:end]), type=list[bytes])
    return columns, decompress(view[end:])


# -- cutting and merging -----------------------------------------------------------------------------------------------

PIECES: Final = {
    "shard": "int",
    "clock_ns": "bigint",
    "capture_index": "int",
    "number": "bigint",
    "data": "binary",
}
"""Rows, with their types in Spark: a piece (`data`) of a shard, and the place of its first packet."""
PIECE_SCHEMA: Final = arrow_schema(PIECES)

PIECE_BYTES: Final = 4 << 20
"""Maximum payload of a piece, but for its last packet. The task of a shard holds as many pieces as there are captures
at the same time."""
CUT_BYTES: Final = 24 << 20
"""Bytes of packets that are collected before they are cut: few pieces are small then. Larger blocks of memory would be
mapped anew each time (`runtime.memory_limits`)."""
MOST_OF_OWN: Final = 2
"""If the buffer of a batch is more than this many times as large as its packets, their payloads are copied from it."""
MERGE_BYTES: Final = 8 << 20
"""Bytes of pieces that are merged at once. Larger batches cost less for each packet."""
BATCH_BYTES: Final = 8 << 20
"""Bytes of pieces that are handed to Spark at once."""
AHEAD: Final = 2
"""Pieces that are decompressed before they are needed."""

_STORED: Final = tuple(name for name in COLUMNS if name not in {"order", "offset"})
"""Columns of a piece; payloads follow one another without gaps."""
_DIFFERENCES: Final = frozenset({"number", "time_ns"})
"""Columns stored as differences from row to row, which compress well."""

Rows = NDArray[np.int64]
_Row = tuple[Any, ...]
"""Values of `PIECES`, the last of them (`data`) in parts that follow one another."""


class PacketCutter:
    """Cuts batches of packets into pieces of shards."""

    def __init__(self, shards: int, *, ports: Iterable[int] = (), captures_before: int = 0) -> None:
        """`ports`: only packets from or to one of them; `captures_before`: indices of captures continue from there."""
        self._shards = shards
        self._ports = np.array(sorted(set(ports)), np.int64)
        self._before = captures_before

    def cut(self, batches: Iterable[PacketBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `PIECES`; batches have clocks, and their packets are in capture order."""
        waiting: list[PacketBatch] = []
        size = 0
        for batch in batches:
            wanted = self._wanted(batch)
            if len(wanted):
                waiting.append(wanted)
                size += wanted.nbytes
            if size >= CUT_BYTES:
                yield from _rows_of(self._pieces(waiting))
                size = 0
        if waiting:
            yield from _rows_of(self._pieces(waiting))

    def _wanted(self, batch: PacketBatch) -> PacketBatch:
        """The packets that are wanted, without most of the bytes between their payloads."""
        rows = np.arange(len(batch))
        if len(self._ports):
            rows = np.flatnonzero(np.isin(batch.src_port, self._ports) | np.isin(batch.dst_port, self._ports))
        # Otherwise packets of other protocols would count as the bytes of pieces.
        own = int(batch.length.sum(dtype=np.int64)) + PACKET_BYTES * len(batch)
        if len(rows) == len(batch) and len(batch.buffer) <= MOST_OF_OWN * own:
            return batch
        columns = {name: getattr(batch, name).take(rows) for name in COLUMNS}
        buffer = bytes(_joined_payloads(batch, rows))
        columns["offset"] = np.cumsum(columns["length"], dtype=np.int64) - columns["length"]
        assert batch.clock is not None
        return _batch(columns, buffer, batch.clock.take(rows))

    def _pieces(self, batches: list[PacketBatch]) -> Iterator[_Row]:
        """Values of `PIECES`; takes the batches out of the list.

        Columns are put in order of shards as wholes: with hundreds of shards, each has few packets of a batch.
        """
        whole = _merged(batches)
        batches.clear()
        assert whole.clock is not None
        shard = shard_of_rows(whole, self._shards).astype(np.min_scalar_type(self._shards))
        # Stable, so that the packets of a shard stay in capture order.
        rows = np.argsort(shard, kind="stable")
        shard, clock = shard.take(rows), whole.clock.take(rows)
        columns = {name: getattr(whole, name).take(rows) for name in _STORED}
        columns["capture"] += self._before
        payload = _joined_payloads(whole, rows)
        del whole
        ends = np.cumsum(columns["length"], dtype=np.int64)
        stops = _stops(shard, ends)
        starts = [0, *stops[:-1]]
        borders = [0, *ends.take(np.array(stops) - 1).tolist()]
        places = [values.take(starts).tolist() for values in (shard, clock, columns["capture"], columns["number"])]
        lag = clock - columns["time_ns"]
        for name in _DIFFERENCES:
            values = columns[name]
            columns[name] = np.diff(values, prepend=0)
            columns[name][starts] = values[starts]
        stored = [*columns.values(), lag]
        compress = zstandard.ZstdCompressor(ZSTD_LEVEL).compress
        for start, stop, border, *place in zip(starts, stops, pairwise(borders), *places, strict=True):
            data = packed([values[start:stop].tobytes() for values in stored], payload[slice(*border)], compress)
            yield (*place, data)


class RowCutter:
    """The same for rows of the table `packets` with the columns `PIPELINE`; called by Spark."""

    def __init__(self, shards: int) -> None:
        self._cutter = PacketCutter(shards)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        return self._cutter.cut(_sorted(packet_batches(rows)) for rows in batches if len(rows))


def _rows_of(pieces: Iterable[_Row]) -> Iterator[pa.RecordBatch]:
    waiting: list[_Row] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += sum(map(len, piece[-1]))
        if size >= BATCH_BYTES:
            yield _row_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _row_batch(waiting)


def _row_batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    *columns, data = zip(*rows, strict=True)
    *fields, _ = PIECE_SCHEMA
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    ends = np.cumsum([0, *(sum(map(len, parts)) for parts in data)], dtype=np.int32)
    # Joined at once: otherwise each byte would be copied twice.
    whole = pa.py_buffer(b"".join(chain.from_iterable(data)))
    arrays.append(pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), whole]))
    return pa.RecordBatch.from_arrays(arrays, schema=PIECE_SCHEMA)


def _stops(shard: NDArray[Any], ends: NDArray[np.int64]) -> list[int]:
    """Where pieces end: after the last packet of a shard, or after the one that reaches `PIECE_BYTES`.

    `ends`: where payloads end if they follow one another.
    """
    found: list[int] = []
    start = 0
    for stop in [*(np.flatnonzero(shard[1:] != shard[:-1]) + 1).tolist(), len(shard)]:
        while start < stop:
            begin = int(ends[start - 1]) if start else 0
            start = min(start + int(np.searchsorted(ends[start:stop], begin + PIECE_BYTES)) + 1, stop)
            found.append(start)
    return found


def _joined_payloads(batch: PacketBatch, rows: Rows) -> memoryview:
    """The payloads of these rows, one after the other."""
    column = payloads(batch, rows)
    _, borders, data = column.buffers()
    if data is None or not len(column):
        return memoryview(b"")
    first, last = np.frombuffer(borders, np.int32)[[column.offset, column.offset + len(column)]].tolist()
    return memoryview(data)[first:last]


def _batch(columns: dict[str, NDArray[Any]], buffer: bytes, clock: NDArray[np.int64]) -> PacketBatch:
    count = len(clock)
    columns["order"] = np.arange(count, dtype=np.int64)
    return PacketBatch(columns, buffer, clock=clock, end_order=count, packets=count)


def read_piece(piece: Piece, _thread: int = 0) -> PacketBatch:
    """The packets of a piece. Raises OSError."""
    (*stored, lag), buffer = unpacked(piece.read() if isinstance(piece, PieceOnDisk) else piece)
    columns = {name: np.frombuffer(part, COLUMNS[name]) for name, part in zip(_STORED, stored, strict=True)}
    for name in _DIFFERENCES:
        columns[name] = np.cumsum(columns[name])
    ends = np.cumsum(columns["length"], dtype=np.int64)
    columns["offset"] = ends - columns["length"]
    return _batch(columns, buffer, np.frombuffer(lag, np.int64) + columns["time_ns"])


def read_ahead(pieces: Iterable[Piece], threads: Threads) -> Iterator[PacketBatch]:
    """The packets of pieces; `threads` decompress the next ones. Raises OSError."""
    begun: deque[Task[PacketBatch]] = deque()
    for piece in pieces:
        begun.append(threads.begin(partial(read_piece, piece)))
        if len(begun) > AHEAD:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def in_capture_order(pieces: Iterable[PacketBatch]) -> Iterator[PacketBatch]:
    """The packets of pieces, which come in order of their first packets, in batches."""
    waiting: list[PacketBatch] = []
    fresh = 0
    for piece in pieces:
        if fresh >= MERGE_BYTES:
            # All that precedes this piece has come.
            cuts = [(packet_batch, rows_before(packet_batch, place_of(piece, 0))) for packet_batch in waiting]
            before = [_part(packet_batch, 0, row) for packet_batch, row in cuts if row]
            waiting = [
                _part(packet_batch, row, len(packet_batch)) for packet_batch, row in cuts if row < len(packet_batch)
            ]
            fresh = 0
            if before:
                yield _merged(before)
        waiting.append(piece)
        fresh += piece.nbytes
    if waiting:
        yield _merged(waiting)


def _part(batch: PacketBatch, start: int, stop: int) -> PacketBatch:
    """Some rows of a piece, in which payloads follow one another."""
    if stop - start == len(batch):
        return batch
    assert batch.clock is not None
    columns = {name: getattr(batch, name)[start:stop] for name in COLUMNS}
    first, last = int(batch.offset[start]), int(batch.offset[stop - 1] + batch.length[stop - 1])
    columns["offset"] = columns["offset"] - first
    return _batch(columns, batch.buffer[first:last], batch.clock[start:stop])


def _merged(batches: Sequence[PacketBatch]) -> PacketBatch:
    """The packets of one or more batches, in capture order."""
    if len(batches) == 1:
        return batches[0]
    whole = PacketBatch.joined(batches)
    assert whole.clock is not None
    return _sorted(_batch({name: getattr(whole, name) for name in COLUMNS}, whole.buffer, whole.clock))


def _sorted(batch: PacketBatch) -> PacketBatch:
    """The packets in capture order; payloads stay where they are."""
    assert batch.clock is not None
    order = np.lexsort((batch.number, batch.capture, batch.clock))
    if (order[1:] > order[:-1]).all():
        return batch
    return _batch({name: getattr(batch, name)[order] for name in COLUMNS}, batch.buffer, batch.clock[order])


def values_of(column: pa.Array) -> Iterator[pa.Buffer]:
    """The values of a binary column without nulls, as views; scalars would have copies, made while threads wait."""
    if not len(column):
        return
    _, offsets, data = column.buffers()
    borders = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    for start, stop in pairwise(borders.tolist()):
        yield data.slice(start, stop - start) if stop > start else pa.py_buffer(b"")


# -- pieces in order ---------------------------------------------------------------------------------------------------
#
# The pieces of a shard, in order of their first packets.
#
# Spark could sort them, but Java copies each piece three more times for that, and also writes those of a large shard to
# disk. Java took 4 to 7 s of CPU more with 2 GB, most of them in one connection.

BEGIN_INDEX: Final = -1
"""`capture_index` of the row with a shard's beginning."""

HELD_BYTES: Final = 64 << 20
"""Bytes of pieces that stay in memory; further ones wait in a file of the task."""


class PieceOnDisk(msgspec.Struct, frozen=True):
    """A piece in the file of a store, which is open as long as the store is."""

    file: int
    start: int
    size: int

    def read(self) -> bytes:
        """Its bytes; several threads may read. Raises OSError."""
        data = os.pread(self.file, self.size, self.start)
        if len(data) < self.size:
            raise OSError("the file of pieces is shorter than what was written to it")
        return data


Piece: TypeAlias = bytes | PieceOnDisk
"""The bytes of a piece, or where they are."""


class PieceStore(ClosedAtExit):
    """Keeps the pieces of a shard (`PIECES`), which come in any order; a context manager that deletes its file."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._pieces: list[tuple[Place, Piece]] = []
        self._file: BinaryIO | None = None
        self._read_from = -1
        """Another descriptor of the file."""
        self._held = self._written = 0

    def take(self, rows: Iterable[pa.RecordBatch]) -> tuple[int, bytes]:
        """Take all rows of a shard; returns its number and its beginning (`connections.ShardBegin`). Raises OSError."""
        begin: tuple[int, bytes] | None = None
        for batch in rows:
            places = zip(*(batch.column(name).to_pylist() for name in PIECE_SCHEMA.names[:-1]), strict=True)
            for (shard, *place), data in zip(places, values_of(batch.column("data")), strict=True):
                at = Place(*place)
                if at.capture == BEGIN_INDEX:
                    begin = shard, data.to_pybytes()
                else:
                    self._pieces.append((at, self._kept(data)))
        assert begin is not None
        return begin

    def in_order(self) -> Iterator[Piece]:
        """The pieces, each of which is released once it was given."""
        if self._file is not None:
            self._file.flush()
        # No two packets have the same place.
        self._pieces.sort(key=itemgetter(0), reverse=True)
        while self._pieces:
            yield self._pieces.pop()[1]

    def close(self) -> None:
        """Delete the file."""
        self._pieces.clear()
        self._stack.close()

    def _kept(self, data: pa.Buffer) -> Piece:
        if self._held + data.size <= HELD_BYTES:
            self._held += data.size
            # A view would keep all rows that came with it.
            copied: bytes = data.to_pybytes()
            return copied
        if self._file is None:
            path = self._stack.enter_context(own_folder()) / "pieces"
            self._file = self._stack.enter_context(path.create())
            self._read_from = self._stack.enter_context(path.open_to_read()).fileno()
        self._file.write(data)
        piece = PieceOnDisk(self._read_from, self._written, data.size)
        self._written += data.size
        return piece
