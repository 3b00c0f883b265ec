"""The view of `--top`: a thread that reads keys and draws, so that a slow terminal cannot block the capture.

The capturing thread makes a snapshot of the model on request and hands it over; nothing else is shared.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import termios
import threading
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.console import Console, ConsoleDimensions
from rich.live import Live

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError
from kafkasniff.live.screen import screen
from kafkasniff.live.snapshot import Snapshot
from kafkasniff.live.state import ViewState, press

# Single key presses of a terminal under a full-screen view; the terminal is restored at the end.

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
    index = 0
    while index < len(data):
        byte = data[index]
        if byte == ESCAPE[0] and index + 1 < len(data) and data[index + 1] in b"[O":
            # ECMA-48, section 5.4: a control sequence ends with a byte of 0x40-0x7E.
            end = index + 2
            while end < len(data) and not 0x40 <= data[end] <= 0x7E:
                end += 1
            name = _SEQUENCES.get(data[index : end + 1])
            if name is not None:
                keys.append(name)
            index = end + 1
            continue
        if byte in _SINGLE:
            keys.append(_SINGLE[byte])
        elif 0x20 <= byte < 0x7F:
            keys.append(chr(byte))
        index += 1
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


SNAPSHOT_SECONDS: Final = 0.5
"""Seconds between snapshots: numbers that change faster cannot be read."""
DRAW_SECONDS: Final = 0.25
"""Minimum seconds between drawings, whatever keys are pressed."""
LEAVE_SECONDS: Final = 2.0
"""How long to wait at the end for a terminal that no longer accepts output."""
UNKNOWN_SIZE: Final = (80, 24)
"""Size of a terminal that does not report one (a serial line)."""
MAX_SAID: Final = 100
"""Lines for stderr that are held while the screen is in use, and shown afterwards."""


def require_terminal(environment: Environment) -> None:
    """Raises UsageError if there is no terminal to draw on and to read keys from."""
    if not (environment.stdin_tty and environment.stdout_tty):
        raise UsageError("--top needs a terminal for keys and screen")
    if environment.environ.get("TERM") == "dumb":
        raise UsageError("--top needs a terminal that can move the cursor (TERM is dumb)")


class TopView:
    """Takes over the terminal within its block; calls `stop` when the user quits."""

    def __init__(self, environment: Environment, stop: Callable[[], None]) -> None:
        self._environment = environment
        self._stop = stop
        self._output = environment.stdout.fileno()
        self._console = Console(
            # Leave it open: it is the process's stdout. Characters that the terminal cannot show are not an error.
            file=open(self._output, "w", encoding=environment.encoding, errors="replace", closefd=False),  # noqa: SIM115
            force_terminal=True,
            color_system="standard",
            no_color=not environment.colour("auto"),
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._keyboard = Keyboard(environment.stdin.fileno())
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)
        self._snapshot = Snapshot()
        self._frozen: Snapshot | None = None
        """The snapshot shown while paused."""
        self._state = ViewState()
        self._due = 0.0
        self._asked: int | None = None
        self._leaving = False
        self._error: BaseException | None = None
        self._stderr = environment.stderr

    def __enter__(self) -> Self:
        self._keyboard.__enter__()
        # Messages on stderr would garble the screen; hold them until it is restored.
        self._environment.stderr = io.StringIO()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leaving = True
        self._wake()
        self._thread.join(LEAVE_SECONDS)
        self._keyboard.__exit__(kind, error, traceback)
        said = self._environment.stderr
        self._environment.stderr = self._stderr
        if isinstance(said, io.StringIO):
            with contextlib.suppress(OSError, ValueError):
                self._stderr.writelines(said.getvalue().splitlines(keepends=True)[-MAX_SAID:])
                self._stderr.flush()
        if not self._thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
        if error is None and self._error is not None:
            raise self._error

    @property
    def threshold_ns(self) -> int:
        """The waiting time above which exchanges are highlighted."""
        return self._state.threshold_ns

    @property
    def focus(self) -> int | None:
        """The connection that is shown in detail."""
        return self._state.focus

    def wants(self) -> bool:
        """Whether a new snapshot would be shown. Cheap: called after every batch."""
        return self._environment.clock() >= self._due or self._asked != self._state.focus

    def offer(self, snapshot: Snapshot, focus: int | None) -> None:
        """Show a snapshot from now on; `focus`: the connection that it has details of."""
        self._due = self._environment.clock() + SNAPSHOT_SECONDS
        self._asked = focus
        self._snapshot = snapshot
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes the reader as well
            os.write(self._wake_write, b"x")

    # -- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # A terminal that went away is not an error: nobody watches any more.
            with (
                contextlib.suppress(OSError),
                Live(
                    console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
                ) as live,
            ):
                self._show(live)
                # When enlarged, some terminals keep old text in the new lines.
                self._console.clear()
        except BaseException as error:  # reported when the view ends
            self._error = error
        finally:
            self._stop()

    def _show(self, live: Live) -> None:
        drawn_at = -DRAW_SECONDS
        stale = True
        while not self._leaving:
            now = self._environment.clock()
            if stale and now - drawn_at >= DRAW_SECONDS:
                drawn_at, stale = now, False
                self._draw(live)
            wait = max(drawn_at + DRAW_SECONDS - now, 0) if stale else 2 * DRAW_SECONDS
            ready, _, _ = select.select([self._keyboard.descriptor, self._wake_read], [], [], wait)
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                stale = True
            if self._keyboard.descriptor in ready:
                for key in self._keyboard.read():
                    self._pressed(key)
                stale = True
                if self._state.over or self._keyboard.gone:
                    return
            elif not ready:
                stale = True  # the terminal may have been resized

    def _shown(self) -> Snapshot:
        latest = self._snapshot
        if self._frozen is None:
            return latest
        # While paused the tables do not change, but the user may look at another connection.
        return msgspec.structs.replace(self._frozen, detail=latest.detail)

    def _pressed(self, key: str) -> None:
        before = self._state
        self._state = press(before, key, self._shown())
        if self._state.paused != before.paused:
            self._frozen = self._snapshot if self._state.paused else None

    def _draw(self, live: Live) -> None:
        # The size of the terminal drawn on; rich would look at the process's streams and environment.
        width, height = os.get_terminal_size(self._output)
        if (width, height) == (0, 0):
            width, height = UNKNOWN_SIZE
        self._console.size = ConsoleDimensions(width, height)
        live.update(screen(self._shown(), self._state, width, height), refresh=True)
