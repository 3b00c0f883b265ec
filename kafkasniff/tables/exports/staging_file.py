"""A file that is written once and soon read once; it bypasses the page cache as soon as it is large.

Staged rows may be larger than their capture. In the page cache they would displace other data, and finding free pages
costs processor time: 600 MB took 2.5 s in a virtual machine, and 0.15 s without the cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Final

import pyarrow as pa

__all__ = ["CACHED_BYTES", "StagingFile"]

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
