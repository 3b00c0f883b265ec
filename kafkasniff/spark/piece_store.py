"""The pieces of a shard, in order of their first packets.

Spark could sort them, but Java copies each piece three more times for that, and also writes those of a large shard to
disk. Java took 4 to 7 s of CPU more with 2 GB, most of them in one connection.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa

from kafkasniff.runtime.closing import ClosedAtExit
from kafkasniff.spark.shard_rows import values_of
from kafkasniff.spark.task_files import own_folder

__all__ = ["BEGIN_INDEX", "PieceOnDisk", "PieceStore"]

BEGIN_INDEX: Final = -1
"""`capture_index` of the row with a shard's beginning."""

HELD_BYTES: Final = 32 << 20
"""Bytes of pieces that stay in memory; further ones wait in a file of the task."""
_PLACE: Final = ("clock_ns", "capture_index", "number")
"""Columns with the place of a piece's first packet."""


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


class PieceStore(ClosedAtExit):
    """Takes the rows of a shard (`pieces.PIECES`) in any order; a context manager that deletes its file."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._pieces: list[tuple[int, int, int, bytes | PieceOnDisk]] = []
        self._file: BinaryIO | None = None
        self._read_from = -1
        """Another descriptor of the file."""
        self._held = self._written = 0
        self.begin: bytes | None = None
        """The shard's beginning (`connections.ShardBegin`), once its row has come."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows. Raises OSError."""
        places = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
        for (clock, capture, number), data in zip(places, values_of(batch.column("data")), strict=True):
            if capture == BEGIN_INDEX:
                self.begin = data.to_pybytes()
            else:
                self._pieces.append((clock, capture, number, self._kept(data)))

    def in_order(self) -> Iterator[bytes | PieceOnDisk]:
        """The pieces, each of which is released once it was given; call it once, after all rows. Raises OSError."""
        if self._file is not None:
            self._file.flush()
        # No two packets have the same place.
        self._pieces.sort(key=lambda piece: piece[:3], reverse=True)
        while self._pieces:
            yield self._pieces.pop()[3]

    def close(self) -> None:
        """Delete the file."""
        self._pieces.clear()
        self._stack.close()

    def _kept(self, data: pa.Buffer) -> bytes | PieceOnDisk:
        self._held += data.size
        if self._held <= HELD_BYTES:
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
