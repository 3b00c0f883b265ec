"""Wait for a condition rather than for a time: a busy machine takes as long as it takes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from kafkasniff.capture.live.live import LiveSource

PATIENCE = 120
"""Seconds after which what was waited for is not going to happen: far beyond what a busy machine needs."""


def until(happened: Callable[[], object]) -> None:
    """Ask again until the condition holds; fail if it never does."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


@contextlib.contextmanager
def stopped_eventually(source: LiveSource) -> Iterator[None]:
    """Stop the capture if it does not end by itself, so that a test fails and does not hang."""
    timer = threading.Timer(PATIENCE, source.stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
