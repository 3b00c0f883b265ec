"""Runs a command in a terminal of its own, whose screen is read and whose keys are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

WAIT_SECONDS: Final = 120.0


class Terminal:
    """`pid` runs in it."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self.shown = b""
        """All that was written to the screen."""

    @property
    def modes(self) -> list[Any]:
        """The terminal's line settings, such as echo."""
        return termios.tcgetattr(self._descriptor)

    def hang_up(self) -> None:
        """Close the terminal, as when an ssh connection ends: SIGHUP is sent, and nothing can be written any more."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._descriptor)
        os.close(null)

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def until(self, wanted: bytes) -> None:
        """Wait until this was written since the last call."""
        found, deadline = b"", time.monotonic() + WAIT_SECONDS
        while wanted not in found:
            assert time.monotonic() < deadline, (wanted, found[-3000:])
            if select.select([self._descriptor], [], [], 1.0)[0]:
                try:
                    data = os.read(self._descriptor, 1 << 16)
                except OSError:
                    data = b""
                assert data, (wanted, found[-3000:])
                found += data
                self.shown += data

    def drain(self, seconds: float) -> bytes:
        """What is written in some seconds."""
        found, deadline = b"", time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], left)[0]:
                found += os.read(self._descriptor, 1 << 16)
        return found

    def exit_code(self) -> int:
        """Wait for the end."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if select.select([self._descriptor], [], [], 0.1)[0]:
                try:
                    data = os.read(self._descriptor, 1 << 16)
                except OSError:
                    break
                if not data:
                    break
                self.shown += data
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(*arguments: str, environ: dict[str, str]) -> Iterator[Terminal]:
    """A terminal of 80×24 in which a command runs, until it ends; it is killed if it still runs at the end."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvpe(arguments[0], list(arguments), environ)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        yield Terminal(pid, descriptor)
    finally:
        try:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended, and was waited for
        os.close(descriptor)
