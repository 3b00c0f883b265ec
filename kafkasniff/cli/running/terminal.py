"""Keyboard of a terminal under a full-screen view: single key presses; the terminal is restored at the end."""

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
"""How long the rest of a key's escape sequence may take; without one the key was Escape."""
MAX_READ: Final = 1024
"""Bytes read at a time: more than anybody types; longer pastes are not useful here."""

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
    """Names of the keys that send these bytes (`up`, `enter`, `escape` …); characters as they are.

    Unknown sequences and bytes are skipped.
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
    r"""Single key presses of a terminal, without echo; a context manager that restores the terminal.

    Ctrl-C still interrupts. Ctrl-Z and Ctrl-\ do nothing: they would leave a garbled screen.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._before: list[int | list[bytes | int]] | None = None
        self.gone = False
        """The terminal hung up."""

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self.descriptor)
        tty.setcbreak(self.descriptor)
        changed = termios.tcgetattr(self.descriptor)
        for key in (termios.VSUSP, termios.VQUIT):
            changed[6][key] = b"\x00"  # _POSIX_VDISABLE on Linux; on macOS it is 0xff, so there Ctrl-@ has the effect
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, changed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            # If the terminal went away, there is nothing to restore.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.descriptor, termios.TCSAFLUSH, self._before)

    def read(self) -> list[str]:
        """The keys pressed since the last call; call it when there is input."""
        try:
            data = os.read(self.descriptor, MAX_READ)
            if data.endswith(ESCAPE) and select.select([self.descriptor], [], [], ESCAPE_SECONDS)[0]:
                data += os.read(self.descriptor, MAX_READ)
        except OSError:
            data = b""
        self.gone = self.gone or not data
        return keys_of(data)
