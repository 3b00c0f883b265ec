"""A terminal taken over by a full-screen view: keys as they are pressed, the screen as it was when it is over."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import tty
from types import TracebackType
from typing import Final, Self

__all__ = ["Keyboard", "keys_of"]

ESCAPE: Final = b"\x1b"
ESCAPE_SECONDS: Final = 0.05
"""How long the rest of a key's sequence may take; without one it was the key Escape."""
MAX_READ: Final = 1024
"""Bytes read at a time: more than anybody types, less than a paste is worth."""

_SEQUENCES: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b[Z": "backtab",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
}
_SINGLE: Final = {
    0x09: "tab",
    0x0A: "enter",
    0x0D: "enter",
    0x1B: "escape",
    0x08: "backspace",
    0x7F: "backspace",
}


def keys_of(data: bytes) -> list[str]:
    """Names of the keys that send these bytes (`up`, `enter`, `escape` …), characters as they are.

    Sequences and bytes that are no key known are left out.
    """
    keys: list[str] = []
    place = 0
    while place < len(data):
        byte = data[place]
        if byte == ESCAPE[0] and place + 1 < len(data) and data[place + 1] in b"[O":
            # ECMA-48, section 5.4: a control sequence ends with a byte of 0x40-0x7E.
            end = place + 2
            while end < len(data) and not 0x40 <= data[end] <= 0x7E:
                end += 1
            name = _SEQUENCES.get(data[place : end + 1])
            if name is not None:
                keys.append(name)
            place = end + 1
            continue
        if byte in _SINGLE:
            keys.append(_SINGLE[byte])
        elif 0x20 <= byte < 0x7F:
            keys.append(chr(byte))
        place += 1
    return keys


class Keyboard:
    r"""Keys of a terminal, each as it is pressed and unseen; a context manager that puts the terminal back.

    Ctrl-C still interrupts. Ctrl-Z and Ctrl-\ do nothing: they would leave a screen in disorder.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._before: list[int | list[bytes | int]] | None = None
        self.gone = False
        """The terminal was hung up."""

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self.descriptor)
        tty.setcbreak(self.descriptor)
        changed = termios.tcgetattr(self.descriptor)
        for key in (termios.VSUSP, termios.VQUIT):
            changed[6][key] = b"\x00"  # _POSIX_VDISABLE on Linux; macOS has 0xff, where Ctrl-@ does it then
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, changed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            # Where the terminal went away there is nothing to put back.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.descriptor, termios.TCSAFLUSH, self._before)

    def read(self) -> list[str]:
        """The keys pressed since; to be called when there is something to read."""
        try:
            data = os.read(self.descriptor, MAX_READ)
            if data.endswith(ESCAPE) and select.select([self.descriptor], [], [], ESCAPE_SECONDS)[0]:
                data += os.read(self.descriptor, MAX_READ)
        except OSError:
            data = b""
        self.gone = self.gone or not data
        return keys_of(data)
