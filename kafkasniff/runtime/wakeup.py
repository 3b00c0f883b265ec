"""Waits that signals end.

A signal's handler in Python runs between two instructions of the main thread. If the signal comes just before that
thread waits in the system, or in another thread, only this ends the wait (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator

__all__ = ["wait_readable", "woken_by_signals"]


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
