"""A file that appears whole under its name, and what was written to it may be written over until then."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, Self

from kafkasniff.errors import OutputError

__all__ = ["FILE_MODE", "PatchedFile"]

FILE_MODE: Final = 0o600
"""Of files created: they hold what was said on the wire, which is their owner's business."""

KEPT: Final = 8 << 20
"""Bytes at the end that are kept in memory: what is written over is written lately, as a rule."""


class PatchedFile:
    """Written beside its place, and renamed by `commit`; a context manager that takes it away without that.

    Raises OutputError where it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        target = Path(path)
        self._aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
        self._tail = bytearray()
        self._base = 0
        """Offset of the tail in the file: what is before it is on the disk."""
        self._descriptor: int | None = None
        try:
            if target.exists() and not target.is_file():
                raise OutputError(f"cannot write {path}: there is something else than a file")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._aside, flags, FILE_MODE)
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._base + len(self._tail)

    @property
    def settled(self) -> int:
        """Bytes that are on the disk; what follows is in memory."""
        return self._base

    def append(self, data: bytes | bytearray) -> int:
        """Write behind the end; the offset of the first byte."""
        at = self.size
        self._tail += data
        return at

    def patch(self, at: int, data: bytes) -> None:
        """Write over what is there at an offset; it lies on one side of what is on the disk."""
        if at >= self._base:
            self._tail[at - self._base : at - self._base + len(data)] = data
            return
        assert self._descriptor is not None
        try:
            if os.pwrite(self._descriptor, data, at) != len(data):
                raise OSError(0, "it was written in part only")
        except OSError as error:
            raise self._failed(error) from error

    def read(self, at: int, size: int) -> bytes:
        """What is there at an offset."""
        if at >= self._base:
            return bytes(self._tail[at - self._base : at - self._base + size])
        assert self._descriptor is not None
        try:
            return os.pread(self._descriptor, size, at)
        except OSError as error:
            raise self._failed(error) from error

    def settle(self, *, everything: bool = False) -> None:
        """Put what is in memory on the disk where that is much, or in any case."""
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
        """The file is whole: it has its name now."""
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
        """Take it away unless it is whole."""
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
