"""Wait for a condition rather than for a time: a busy machine takes as long as it takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kafkasniff.capture.live.live import LiveSource

PATIENCE = 120
"""Seconds after which what was waited for is not going to happen: far beyond what a busy machine needs."""


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
