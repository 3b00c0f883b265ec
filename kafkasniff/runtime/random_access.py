"""Files that are read at any place: on this machine, and in object stores."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import BinaryIO, Final, Protocol

__all__ = ["LocalFile", "RandomFile", "RemoteFile"]

BLOCK_BYTES: Final = 1 << 20
"""Remote files are read in blocks of this size, which takes a store about as long as a few bytes."""
MAX_BLOCKS: Final = 64
"""Blocks that are kept: pages of columns are read soon after their headers."""


class RandomFile(Protocol):
    """An open file. Reads raise OSError."""

    size: int
    """In bytes."""

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset; returns how many bytes were read, which may be fewer."""

    def close(self) -> None:
        """Nothing more will be read."""


class LocalFile:
    """A file of this machine."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""
        return os.pread(self._file.fileno(), size, offset)

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset."""
        return os.preadv(self._file.fileno(), [target], offset)

    def close(self) -> None:
        """Nothing more will be read."""
        self._file.close()


class RemoteFile:
    """A file that is read in blocks; the last ones are kept. Any thread may read."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        """`fetch`: reads the bytes between two offsets, and raises OSError."""
        self.size = size
        self._fetch = fetch
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._lock = Lock()

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        with self._lock:
            data = b"".join(self._range(first, last))
        start = offset - first * BLOCK_BYTES
        return data[start : start + end - offset]

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset."""
        data = self.read(len(target), offset)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing more will be read."""
        self._blocks.clear()

    def _range(self, first: int, last: int) -> list[bytes]:
        """Blocks, of which all that are missing are fetched together."""
        missing = [number for number in range(first, last + 1) if number not in self._blocks]
        fetched: dict[int, bytes] = {}
        if missing:
            start = missing[0] * BLOCK_BYTES
            end = min((missing[-1] + 1) * BLOCK_BYTES, self.size)
            data = self._fetch(start, end)
            if len(data) != end - start:
                raise OSError(f"{len(data)} bytes instead of {end - start} were read")
            for number in range(missing[0], missing[-1] + 1):
                place = number * BLOCK_BYTES - start
                fetched[number] = data[place : place + BLOCK_BYTES]
        blocks = [fetched[number] if number in fetched else self._blocks[number] for number in range(first, last + 1)]
        for number, block in zip(range(first, last + 1), blocks, strict=True):
            self._blocks[number] = block
            self._blocks.move_to_end(number)
        while len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)
        return blocks
