"""The signals that end a run, the same in every process of it.

SIGHUP is one of them: it is sent when a terminal or an ssh connection closes, and by default ends a process
immediately, with all its buffered output.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["ENDS_WITH_STDIN", "HANGUP", "STOP_SIGNALS", "honoured_signals", "ignored_hangup", "left_to_parent"]

ENDS_WITH_STDIN: Final = "KAFKASNIFF_ENDS_WITH_STDIN"
"""The environment variable that has a process that captures end when its stdin, a pipe, closes: its parent is gone."""
HANGUP: Final = getattr(signal, "SIGHUP", None)
"""None on Windows."""
STOP_SIGNALS: Final = tuple(one for one in (signal.SIGINT, signal.SIGTERM, HANGUP) if one is not None)


def honoured_signals() -> tuple[signal.Signals, ...]:
    """The signals that this run obeys: without SIGHUP if its parent ignored it, as nohup(1) does."""
    return tuple(one for one in STOP_SIGNALS if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN)


def left_to_parent() -> None:
    """Ignore, in a worker process, what a terminal or service sends to all processes: the first one ends the others."""
    for signum in STOP_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


@contextlib.contextmanager
def ignored_hangup() -> Iterator[None]:
    """Programs started within the block ignore SIGHUP permanently, this process only within the block.

    Outside of the main thread, which alone may change handlers, nothing changes.
    """
    if HANGUP is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        # None: a handler that was not set by Python and cannot be restored.
        signal.signal(HANGUP, signal.SIG_DFL if before is None else before)
