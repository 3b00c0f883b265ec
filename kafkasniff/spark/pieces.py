"""Packets on their way to the shards: in pieces, each with packets of one shard, and in capture order again.

Spark handles every row one by one, in Java. As rows, packets cost more to shuffle and sort than to decode; a piece has
thousands of them, as columns, and is compressed before Java copies it. The task of a shard sorts its pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.shards import shard_of_rows
from kafkasniff.runtime.threads import Task, Threads
from kafkasniff.spark.packet_rows import bytes_of, packet_batches, payloads
from kafkasniff.spark.piece_store import PieceOnDisk
from kafkasniff.tcp.packets import COLUMNS, PacketBatch

__all__ = [
    "PIECES",
    "PIECE_SCHEMA",
    "PacketCutter",
    "RowCutter",
    "in_capture_order",
    "read_ahead",
    "read_piece",
    "rows_before",
]

PIECES: Final = {"shard": "int", "clock_ns": "bigint", "capture_index": "int", "number": "bigint", "data": "binary"}
"""Rows, with their types in Spark: a piece (`data`), and the place of its first packet."""
PIECE_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("clock_ns", pa.int64()),
        ("capture_index", pa.int32()),
        ("number", pa.int64()),
        ("data", pa.binary()),
    ]
)

PIECE_BYTES: Final = 4 << 20
"""Maximum payload of a piece, but for its last packet. The task of a shard holds as many pieces as there are captures
at the same time."""
CUT_BYTES: Final = 32 << 20
"""Bytes of packets that are collected before they are cut: few pieces are small then."""
MERGE_BYTES: Final = 8 << 20
"""Bytes of pieces that are merged at once. Larger batches cost less for each packet."""
AHEAD: Final = 2
"""Pieces that are decompressed before they are needed."""

_STORED: Final = tuple(name for name in COLUMNS if name not in {"order", "offset"})
"""Columns of a piece; payloads follow one another without gaps."""
_DIFFERENCES: Final = frozenset({"number", "time_ns"})
"""Columns stored as differences from row to row, which compress well."""

Rows = NDArray[np.int64]


class PacketCutter:
    """Cuts batches of packets into pieces of shards."""

    def __init__(self, shards: int, *, ports: Iterable[int] = (), captures_before: int = 0) -> None:
        """`ports`: only packets from or to one of them; `captures_before`: indices of captures continue from there."""
        self._shards = shards
        self._ports = np.array(sorted(set(ports)), np.int64)
        self._before = captures_before

    def cut(self, batches: Iterable[PacketBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `PIECES`; batches have clocks, and their packets are in capture order."""
        shares: dict[int, list[PacketBatch]] = {}
        size = 0
        for batch in batches:
            shard_of = shard_of_rows(batch, self._shards)
            if len(self._ports):
                shard_of[~(np.isin(batch.src_port, self._ports) | np.isin(batch.dst_port, self._ports))] = -1
            for shard in np.unique(shard_of[shard_of >= 0]).tolist():
                share = _taken(batch, np.flatnonzero(shard_of == shard))
                share.capture += self._before
                shares.setdefault(shard, []).append(share)
                size += share.nbytes
            if size >= CUT_BYTES:
                yield from _rows_of(shares)
                shares, size = {}, 0
        yield from _rows_of(shares)


class RowCutter:
    """The same for rows of the table `packets` with the columns `PIPELINE`; called by Spark."""

    def __init__(self, shards: int) -> None:
        self._cutter = PacketCutter(shards)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        return self._cutter.cut(_sorted(packet_batches(rows)) for rows in batches if len(rows))


def _rows_of(shares: dict[int, list[PacketBatch]]) -> Iterator[pa.RecordBatch]:
    for shard, batches in sorted(shares.items()):
        whole = _merged(batches)
        if (np.diff(whole.offset) < 0).any():
            whole = _taken(whole, np.arange(len(whole)))
        for piece in whole.parts(repeat((len(whole), PIECE_BYTES))):
            values = (shard, *_place(piece, 0), _dump(piece))
            arrays = [pa.array([value], field.type) for value, field in zip(values, PIECE_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=PIECE_SCHEMA)


def _taken(batch: PacketBatch, rows: Rows) -> PacketBatch:
    """Some rows of a batch, with a buffer that has only their payload."""
    buffer, offset = bytes_of(payloads(batch, rows))
    columns = {name: getattr(batch, name)[rows] for name in COLUMNS}
    assert batch.clock is not None
    return _batch({**columns, "offset": offset}, buffer, batch.clock[rows])


def _batch(columns: dict[str, NDArray[Any]], buffer: bytes, clock: NDArray[np.int64]) -> PacketBatch:
    count = len(clock)
    columns["order"] = np.arange(count, dtype=np.int64)
    return PacketBatch(columns, buffer, clock=clock, end_order=count, packets=count)


def _dump(piece: PacketBatch) -> bytes:
    assert piece.clock is not None
    columns = [_column(name, getattr(piece, name)) for name in _STORED]
    first = int(piece.offset[0])
    payload = memoryview(piece.buffer)[first : first + int(piece.length.sum(dtype=np.int64))]
    data = msgspec.msgpack.encode([*columns, (piece.clock - piece.time_ns).tobytes(), payload])
    return zstandard.compress(data, 1)


def _column(name: str, values: NDArray[Any]) -> bytes:
    return (np.diff(values, prepend=0) if name in _DIFFERENCES else values).astype(COLUMNS[name]).tobytes()


def read_piece(piece: bytes | PieceOnDisk, _thread: int = 0) -> PacketBatch:
    """The packets of a piece. Raises OSError."""
    data = piece.read() if isinstance(piece, PieceOnDisk) else piece
    *stored, lag, buffer = msgspec.msgpack.decode(zstandard.decompress(data), type=list[bytes])
    columns = {name: np.frombuffer(part, COLUMNS[name]) for name, part in zip(_STORED, stored, strict=True)}
    for name in _DIFFERENCES:
        columns[name] = np.cumsum(columns[name])
    ends = np.cumsum(columns["length"], dtype=np.int64)
    columns["offset"] = ends - columns["length"]
    return _batch(columns, buffer, np.frombuffer(lag, np.int64) + columns["time_ns"])


def read_ahead(pieces: Iterable[bytes | PieceOnDisk], threads: Threads) -> Iterator[PacketBatch]:
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
            cuts = [(one, rows_before(one, _place(piece, 0))) for one in waiting]
            before = [_part(one, 0, row) for one, row in cuts if row]
            waiting = [_part(one, row, len(one)) for one, row in cuts if row < len(one)]
            fresh = 0
            if before:
                yield _merged(before)
        waiting.append(piece)
        fresh += piece.nbytes
    if waiting:
        yield _merged(waiting)


def _place(batch: PacketBatch, row: int) -> Place:
    assert batch.clock is not None
    return Place(int(batch.clock[row]), int(batch.capture[row]), int(batch.number[row]))


def rows_before(batch: PacketBatch, place: Place) -> int:
    """The number of packets of a batch that precede a place."""
    assert batch.clock is not None
    here = batch.clock == place.clock
    earlier = (batch.clock < place.clock) | (here & (batch.capture < place.capture))
    here &= batch.capture == place.capture
    return int(np.count_nonzero(earlier | (here & (batch.number < place.number))))


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
