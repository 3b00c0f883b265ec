"""Waiting for what takes as long as a busy machine makes it take: until it is so, and not for a time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from kafkasniff.capture.live import LiveSource

PATIENCE = 120
"""Seconds after which what was waited for is not going to happen: far beyond what a busy machine needs."""


def until(happened: Callable[[], object]) -> None:
    """Ask again and again until it is so; fails where it never is."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


@contextlib.contextmanager
def stopped_in_the_end(source: LiveSource) -> Iterator[None]:
    """Should the capture not end by itself, it is stopped, so that a test fails and does not hang."""
    timer = threading.Timer(PATIENCE, source.stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
