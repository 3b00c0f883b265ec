"""A command's environment: streams, terminals, clock, variables. It is injected, so that commands can be tested.

The exit codes are here too, because every command ends with one.
"""

from __future__ import annotations

import _thread
import contextlib
import enum
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import BinaryIO, Final, TextIO

from kafkasniff.runtime.threads import HANGUP, honoured_signals

COMPLETION: Final = "_KAFKASNIFF_COMPLETE"
"""The environment variable by which a shell asks for completions. Click chose the name."""


class Exit(enum.IntEnum):
    """The exit code of the process; if several apply, the first in this order."""

    INTERNAL = 70
    SIGTERM = 143
    SIGINT = 130
    SIGHUP = 129
    USAGE = 2
    UNAVAILABLE = 5
    """The output is not writable, or the kernel, privileges, Java, an extra or memory are missing."""
    CAPTURE = 3
    """A capture or interface cannot be opened."""
    FINDINGS = 1
    NOTHING = 1
    """The captures, read whole, have no Kafka message, or none that was asked for."""
    BROKEN = 4
    """A capture is structurally broken or truncated, or an interface went down; the readable part was processed."""
    OK = 0


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP; not an `Exception`, so that no error handler on the way catches it."""

    def __init__(self, signum: int, lost: Callable[[int], None] | None = None) -> None:
        """`lost` is called with the signal if nobody calls `accept` before the exception is gone."""
        super().__init__(signum)
        self.signum = signum
        self._lost = lost

    def accept(self) -> None:
        """To be called where the exception ends: it was not lost on the way."""
        self._lost = None

    def __del__(self) -> None:
        if self._lost is not None:
            self._lost(self.signum)

    @property
    def code(self) -> Exit:
        """The exit code of a command that was interrupted before its end."""
        # 128 + signal number, the convention of shells.
        return Exit(128 + self.signum)


REPEAT_SECONDS: Final = 0.01
"""When a signal is repeated whose exception was lost: after the callback that lost it."""


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into `Interrupted`, but not in the middle of an output line.

    Within `held()` a signal is deferred to the end of the block. A second one is not, so that a block that hangs (a
    full pipe that nobody reads) can be interrupted. SIGHUP never counts as a second one: when a terminal closes, both
    the shell and the kernel send it, and systemd sends it after SIGTERM (SendSIGHUP).

    An exception that a handler raises may be lost: Python drops it in destructors and in callbacks of imports, and some
    extension modules clear every exception. Its destructor notices that, and the signal is taken once more.
    """

    def __init__(self) -> None:
        self._asked = False
        self._held = False
        self._pending: int | None = None
        self._stop: Callable[[], None] | None = None
        self._installed = False
        self._repeating = threading.Lock()

    def _take(self, signum: int, _frame: FrameType | None) -> None:
        asked, self._asked = self._asked, True
        if asked and signum == HANGUP:
            return
        if self._stop is not None:
            stop, self._stop = self._stop, None
            stop()
            return
        if self._held and self._pending is None:
            self._pending = signum
            return
        raise Interrupted(signum, self._repeat)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals within the block; main thread only. An ignored SIGHUP (nohup) stays ignored."""
        before = {signum: signal.signal(signum, self._take) for signum in honoured_signals()}
        hook = sys.unraisablehook

        def dropped(found: sys.UnraisableHookArgs) -> None:
            if not isinstance(found.exc_value, Interrupted):
                hook(found)

        sys.unraisablehook = dropped
        self._installed = True
        try:
            yield
        finally:
            with self._repeating:
                self._installed = False
            sys.unraisablehook = hook
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _repeat(self, signum: int) -> None:
        """Take a signal once more, soon."""
        main = threading.main_thread().ident
        assert main is not None

        def repeat() -> None:
            time.sleep(REPEAT_SECONDS)
            with self._repeating:
                if self._installed:
                    self._asked = False
                    signal.pthread_kill(main, signum)

        # Not `threading.Thread`, one of whose locks the interrupted code may hold.
        _thread.start_new_thread(repeat, ())

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block the first signal calls `stop` instead: the usual end of a run without an end of its own."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Defer signals to the end of the block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            pending, self._pending = self._pending, None
        if pending is not None:
            raise Interrupted(pending, self._repeat)


class Environment:
    """Streams and their properties."""

    def __init__(
        self,
        *,
        stdin: BinaryIO,
        stdout: BinaryIO,
        stderr: TextIO,
        stdin_tty: bool = False,
        stdout_tty: bool = False,
        stderr_tty: bool = False,
        encoding: str = "utf-8",
        width: int | None = 120,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        owns_process: bool = False,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.stdin_tty = stdin_tty
        self.stdout_tty = stdout_tty
        self.stderr_tty = stderr_tty
        self.encoding = encoding
        """Encoding of text on stdout."""
        self._width = width
        """Width of the terminal, with an assumption for other outputs."""
        self.environ: Mapping[str, str] = {} if environ is None else environ
        self.clock = clock
        """Monotonic seconds."""
        self.owns_process = owns_process
        """The process exists for this run alone: nothing else in it needs the privileges that the run drops."""
        self.interrupts = Interrupts()
        self.verbosity = 0
        """Set by the running command; from 1 on an internal error shows its traceback."""

    @classmethod
    def of_process(cls) -> Environment:
        """The environment of this process."""
        return cls(
            stdin=sys.stdin.buffer if sys.stdin is not None else open(os.devnull, "rb"),
            stdout=sys.stdout.buffer if sys.stdout is not None else _closed_output(),
            stderr=sys.stderr if sys.stderr is not None else open(os.devnull, "w", encoding="utf-8"),
            stdin_tty=_is_tty(sys.stdin),
            stdout_tty=_is_tty(sys.stdout),
            stderr_tty=_is_tty(sys.stderr),
            encoding=sys.stdout.encoding if sys.stdout is not None else "utf-8",
            width=None,
            environ=os.environ,
            owns_process=True,
        )

    @property
    def width(self) -> int:
        """Width of the terminal in columns."""
        if self._width is None:
            import shutil

            self._width = shutil.get_terminal_size((120, 40)).columns
        return self._width

    def colour(self, wanted: str, *, to_stdout: bool = True) -> bool:
        """Whether to use colour: `auto` means on a terminal, unless NO_COLOR is set (https://no-color.org)."""
        if wanted != "auto":
            return wanted == "always"
        plain = self.environ.get("NO_COLOR") or self.environ.get("TERM") == "dumb"
        return to_stdout and self.stdout_tty and not plain

    def say(self, text: str) -> None:
        """Write a message on stderr, always one line, whatever names of files, topics or hosts it contains.

        Invisible characters are escaped even if stderr is not a terminal, since logs end up on terminals, too.
        """
        self.write_lines([f"kafkasniff: {text}"])

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines on stderr with invisible characters escaped."""
        from kafkasniff.text.printable import printable

        # If nobody reads stderr, nothing is lost.
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write("".join(f"{printable(line, backslashes=False)}\n" for line in lines))
            self.stderr.flush()


def _closed_output() -> BinaryIO:
    """Stands in for a stdout that was closed before the start: writing to it fails, as it should."""
    return open(os.devnull, "rb")  # read-only


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


EXIT_CODES: Final = (
    ("0", "Everything was read. Problems in streams do not change this, nor does a reader that closes the pipe."),
    (
        "1",
        "Findings or differences, from commands that look for them. Or nothing to work on: no Kafka message, or none "
        "that the filters, --port or the names given select; one line on stderr (even with -q) says what there is. If "
        "a capture is broken, this gives 4.",
    ),
    ("2", "Usage error."),
    ("3", "A capture or an interface cannot be opened."),
    (
        "4",
        "A capture file is structurally broken or truncated, or a captured interface went down and did not come back; "
        "the readable part was processed.",
    ),
    ("5", "The output cannot be written, or the native kernel, privileges, Java, an extra or memory are missing."),
    ("70", "Internal error: one line, with -v a traceback."),
    ("129, 130, 143", "Interrupted by SIGHUP, SIGINT or SIGTERM. A live capture that is stopped this way: 0."),
)
"""`environment.Exit`, described for people."""
EXIT_ORDER: Final = f"If several apply, the first in the order {', '.join(str(int(code)) for code in Exit if code)}."


# Keeps pandas out of the process: pyarrow imports it, if installed, as soon as it is given a Python list.
#
# No command needs it, and the import takes longer than a small export. Spark may need it.


class _Refusal:
    """A finder that pretends that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not imported by kafkasniff's command line", name=name)
        return None


_REFUSAL = _Refusal()


def refuse_pandas() -> None:
    """From here on `import pandas` fails, unless it was imported before."""
    if _REFUSAL not in sys.meta_path:
        sys.meta_path.insert(0, _REFUSAL)


def allow_pandas() -> None:
    """Undo `refuse_pandas`. Call it before pyarrow first looks for pandas, since it keeps the result."""
    if _REFUSAL in sys.meta_path:
        sys.meta_path.remove(_REFUSAL)
