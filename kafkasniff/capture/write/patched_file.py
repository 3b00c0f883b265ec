"""A file that appears complete under its name; until then, written data may be overwritten."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from kafkasniff.errors import OutputError
from kafkasniff.runtime.threads import ClosedAtExit

__all__ = ["FILE_MODE", "PatchedFile"]

FILE_MODE: Final = 0o600
"""Mode of created files: they hold captured data, which only their owner should read."""

KEPT: Final = 8 << 20
"""Bytes at the end that are kept in memory: mostly recent data is overwritten."""


class PatchedFile(ClosedAtExit):
    """Written to a temporary file, and renamed by `commit`; the context manager removes it otherwise.

    Raises OutputError if it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        target = Path(path)
        self._aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
        self._tail = bytearray()
        self._base = 0
        """Offset of the tail in the file: data before it is on the disk."""
        self._descriptor: int | None = None
        try:
            if target.exists() and not target.is_file():
                raise OutputError(f"cannot write {path}: it exists and is not a file")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._aside, flags, FILE_MODE)
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._base + len(self._tail)

    @property
    def settled(self) -> int:
        """Bytes that are on the disk; the rest is in memory."""
        return self._base

    @property
    def tail(self) -> bytearray:
        """The bytes in memory, which may be overwritten in place until the next `settle`."""
        return self._tail

    def append(self, data: bytes | bytearray) -> int:
        """Append; returns the offset of the first byte."""
        at = self.size
        self._tail += data
        return at

    def patch(self, at: int, data: bytes | bytearray) -> None:
        """Overwrite data at an offset; it must not cross the border between disk and memory."""
        if at >= self._base:
            self._tail[at - self._base : at - self._base + len(data)] = data
            return
        assert self._descriptor is not None
        try:
            if os.pwrite(self._descriptor, data, at) != len(data):
                raise OSError(0, "it was only partially written")
        except OSError as error:
            raise self._failed(error) from error

    def read(self, at: int, size: int) -> bytes:
        """The data at an offset."""
        if at >= self._base:
            return bytes(self._tail[at - self._base : at - self._base + size])
        assert self._descriptor is not None
        try:
            return os.pread(self._descriptor, size, at)
        except OSError as error:
            raise self._failed(error) from error

    def settle(self, *, everything: bool = False) -> None:
        """Write data in memory to the disk if it is large, or in any case."""
        if self._descriptor is None or not (everything or len(self._tail) > KEPT):
            return
        view = memoryview(self._tail)
        written = 0
        try:
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], self._base + written)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            view.release()
        self._base += len(self._tail)
        self._tail = bytearray()

    def commit(self) -> None:
        """The file is complete: give it its name."""
        self.settle(everything=True)
        assert self._descriptor is not None
        descriptor, self._descriptor = self._descriptor, None
        try:
            os.close(descriptor)
            os.replace(self._aside, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(self._aside)
            raise self._failed(error) from error

    def close(self) -> None:
        """Remove it unless it is complete."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._aside)

    def _failed(self, error: Exception) -> OutputError:
        reason = error.strerror if isinstance(error, OSError) else None
        return OutputError(f"cannot write {self.path}: {reason or error}")
