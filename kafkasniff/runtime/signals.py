"""The signals that end a run, the same in every process of it, and waits that they end.

SIGHUP is one of them: it is sent when a terminal or an ssh connection closes, and by default ends a process
immediately, with all its buffered output.

A signal's handler in Python runs between two instructions of the main thread. If the signal comes just before that
thread waits in the system, or in another thread, only `signal.set_wakeup_fd` ends the wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Final

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


@contextlib.contextmanager
def woken_by_signals(descriptor: int) -> Iterator[None]:
    """Have every signal write to this descriptor within the block.

    Does nothing outside the main thread, and if someone else has asked for such writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)


def wait_readable(descriptor: int) -> None:
    """Wait until there is data, or the end of it. Raises what handlers of signals raise."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if waiting.poll(0):
        return
    wake_read, wake_write = os.pipe()
    try:
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        waiting.register(wake_read, select.POLLIN)
        with woken_by_signals(wake_write):
            while descriptor not in dict(waiting.poll()):
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
    finally:
        os.close(wake_read)
        os.close(wake_write)
