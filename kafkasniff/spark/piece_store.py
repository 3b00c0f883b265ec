"""The pieces of a shard, in order of their first packets.

Spark could sort them, but Java copies each piece three more times for that, and also writes those of a large shard to
disk. Java took 4 to 7 s of CPU more with 2 GB, most of them in one connection.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final, TypeAlias

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.model import NO_TIME
from kafkasniff.runtime.threads import ClosedAtExit
from kafkasniff.spark.shard_rows import values_of
from kafkasniff.spark.task_files import own_folder

__all__ = ["BEGIN_INDEX", "COUNT_INDEX", "Piece", "PieceOnDisk", "PieceStore"]

BEGIN_INDEX: Final = -1
"""`capture_index` of the row with a shard's beginning."""
COUNT_INDEX: Final = -2
"""`capture_index` of rows with the number of pieces that a part has for a shard."""

HELD_BYTES: Final = 32 << 20
"""Bytes of pieces that stay in memory; further ones wait in a file of the task."""
_COLUMNS: Final = ("shard", "part", "piece", "clock_ns", "capture_index", "number")


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


Piece: TypeAlias = bytes | pa.Buffer | PieceOnDisk
"""The bytes of a piece, or where they are. A buffer is a view of rows that have just come."""


class _PartProgress(msgspec.Struct):
    """Which pieces of a part have arrived."""

    reached: Place
    """All missing pieces are after this place, or begin there."""
    next: int = 0
    """The first missing piece."""
    later: dict[int, Place] = {}
    """Places of the pieces after it that have arrived."""
    count: int | None = None
    """The number of pieces, once it is known."""


class PieceStore(ClosedAtExit):
    """Takes the rows of a shard (`pieces.PIECES`) in any order; a context manager that deletes its file.

    A piece is given out once no missing piece can precede it. If rows arrive in order of parts, as they do on a single
    machine, few pieces have to wait.
    """

    def __init__(self, earliest: Sequence[Place] = ()) -> None:
        """`earliest`: for each part, a lower bound of the places of its packets; ascending.

        Without it, pieces are given out after all rows have arrived.
        """
        self._earliest = earliest
        self._open = {part: _PartProgress(place) for part, place in enumerate(earliest)}
        """Parts with missing pieces."""
        self._stack = contextlib.ExitStack()
        self._pieces: list[tuple[Place, bytes | PieceOnDisk]] = []
        """A heap."""
        self._file: BinaryIO | None = None
        self._read_from = -1
        """Another descriptor of the file."""
        self._held = self._written = 0
        self._begin: tuple[int, bytes] | None = None
        self._limit = Place(NO_TIME, 0, 0)
        """Pieces up to here were given out."""

    def beginning(self, rows: Iterator[pa.RecordBatch]) -> tuple[int, bytes]:
        """The task's number, and its beginning (`connections.ShardBegin`); takes rows up to the one that has it.

        Raises OSError.
        """
        while self._begin is None:
            self._keep(self._take(next(rows)))
        return self._begin

    def in_order(self, rows: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """The pieces of these rows and of those taken before, each of which is released once it was given.

        Raises OSError.
        """
        for batch in rows:
            fresh = self._take(batch)
            if self._open:
                self._limit = self._reached()
                ready = sorted(one for one in fresh if one[0] <= self._limit)
                self._keep(one for one in fresh if one[0] > self._limit)
                yield from (piece for _, piece in heapq.merge(self._given(self._limit), ready))
            else:
                self._keep(fresh)
        yield from (piece for _, piece in self._given(None))

    def close(self) -> None:
        """Delete the file."""
        self._pieces.clear()
        self._stack.close()

    def _reached(self) -> Place:
        """All missing pieces are after this place, or begin there."""
        found: Place | None = None
        for part, progress in self._open.items():
            if found is not None and found <= self._earliest[part]:
                break
            found = progress.reached if found is None else min(found, progress.reached)
        assert found is not None
        return found

    def _given(self, limit: Place | None) -> Iterator[tuple[Place, bytes | PieceOnDisk]]:
        """The kept pieces up to a place, or all."""
        if self._file is not None:
            self._file.flush()
        # No two packets have the same place.
        while self._pieces and (limit is None or self._pieces[0][0] <= limit):
            at, piece = heapq.heappop(self._pieces)
            if isinstance(piece, bytes):
                self._held -= len(piece)
            yield at, piece

    def _take(self, batch: pa.RecordBatch) -> list[tuple[Place, pa.Buffer]]:
        """The pieces of rows, with their places."""
        found: list[tuple[Place, pa.Buffer]] = []
        columns = zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
        for (task, part, piece, *place), data in zip(columns, values_of(batch.column("data")), strict=True):
            at = Place(*place)
            if at.capture == BEGIN_INDEX:
                self._begin = task, data.to_pybytes()
                continue
            if at.capture != COUNT_INDEX:
                assert at >= self._limit
                found.append((at, data))
            progress = self._open.get(part)
            if progress is None:
                continue
            if at.capture == COUNT_INDEX:
                progress.count = piece
            else:
                progress.later[piece] = at
                while progress.next in progress.later:
                    progress.reached = progress.later.pop(progress.next)
                    progress.next += 1
            if progress.next == progress.count:
                del self._open[part]
        return found

    def _keep(self, pieces: Iterable[tuple[Place, pa.Buffer]]) -> None:
        for at, data in pieces:
            heapq.heappush(self._pieces, (at, self._kept(data)))

    def _kept(self, data: pa.Buffer) -> bytes | PieceOnDisk:
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
