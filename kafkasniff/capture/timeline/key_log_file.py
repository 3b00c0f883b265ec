"""A key log in a file, which may grow while it is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from kafkasniff.errors import UsageError
from kafkasniff.tls.keylog import KeyLog

MAX_KEY_LOG: Final = 256 << 20
"""Maximum size in bytes of a key log that is read at once: a million connections of TLS 1.3."""

_CHUNK: Final = 1 << 20


def open_key_log(path: str | os.PathLike[str], *, grows: bool = False) -> KeyLog:
    """The key log in a file. `grows`: it is being written, is read continuously, and need not exist yet.

    Raises UsageError if it cannot be read.
    """
    try:
        file = _KeyLogFile(Path(path), grows=grows)
        return KeyLog(file.more, name=f"key log {os.fspath(path)}", grows=grows)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"cannot read the key log {os.fspath(path)}: {reason or error}") from error


class _KeyLogFile:
    """The file; opened once, so that a process that has dropped its privileges can continue to read it."""

    def __init__(self, path: Path, *, grows: bool) -> None:
        self._path = path
        self._grows = grows
        self._read = 0
        self._stream: BinaryIO | None = None
        try:
            self._open()
        except FileNotFoundError:
            if not grows:
                raise

    def _open(self) -> None:
        mode = self._path.stat().st_mode
        if self._grows and not stat.S_ISREG(mode):
            raise ValueError("only a regular file can be followed while it grows")  # opening a pipe would block
        self._stream = self._path.open("rb")

    def more(self) -> bytes:
        """New bytes. Raises OSError and ValueError, unless it grows: then there is nothing for now."""
        if not self._grows:
            assert self._stream is not None
            data = self._stream.read(_CHUNK)
            self._read += len(data)
            if self._read > MAX_KEY_LOG:
                raise ValueError(f"it is longer than {MAX_KEY_LOG >> 20} MiB")
            if not data:
                self._stream.close()
            return data
        try:
            if self._stream is None or self._is_other(self._stream):
                self._open()
            assert self._stream is not None
            return self._stream.read(_CHUNK)
        except (OSError, ValueError):
            return b""

    def _is_other(self, stream: BinaryIO) -> bool:
        """Whether the path now leads to another file, or the file was truncated."""
        try:
            now = self._path.stat()
        except OSError:
            return False
        opened = os.fstat(stream.fileno())
        if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino) or now.st_size < stream.tell():
            stream.close()
            self._stream = None
            return True
        return False
