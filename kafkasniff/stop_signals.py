"""The signals that ask a run to end, the same in every process of it.

SIGHUP is one of them: a terminal or an ssh connection that closes sends it, and its default is to end a process at
once, with all that it has not written yet.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["HANGUP", "STOP_SIGNALS", "honoured_signals", "ignored_hangup", "left_to_parent"]

HANGUP: Final = getattr(signal, "SIGHUP", None)
"""None on Windows."""
STOP_SIGNALS: Final = tuple(one for one in (signal.SIGINT, signal.SIGTERM, HANGUP) if one is not None)


def honoured_signals() -> tuple[signal.Signals, ...]:
    """Those that this run obeys: without SIGHUP where whoever started it had it ignored, as nohup(1) does."""
    return tuple(one for one in STOP_SIGNALS if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN)


def left_to_parent() -> None:
    """Ignore, in a worker process, what a terminal sends to all its processes: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if HANGUP is not None:
        signal.signal(HANGUP, signal.SIG_IGN)


@contextlib.contextmanager
def ignored_hangup() -> Iterator[None]:
    """Programs that are started within the block ignore SIGHUP for good, this process only within the block.

    Outside of the main thread, which alone may change handlers, nothing changes.
    """
    if HANGUP is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        # None: a handler that was not set by Python, which cannot be set again.
        signal.signal(HANGUP, signal.SIG_DFL if before is None else before)
