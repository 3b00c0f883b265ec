"""Checks a worker for the native kernel: a worker without one decodes in Python, and reports that once."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable

from kafkasniff.native import kernel, kernel_note

__all__ = ["check_kernel", "slow_tasks"]


@functools.cache
def check_kernel() -> str | None:
    """Why this process has no native kernel; None if it has one. Logs the reason to stderr, once."""
    if kernel() is not None:
        return None
    note = kernel_note()
    print(f"kafkasniff: {note}; this worker decodes in Python, which is slower", file=sys.stderr, flush=True)
    return note


def slow_tasks(notes: Iterable[str | None]) -> tuple[str, ...]:
    """Notices for a run whose tasks returned these results of `check_kernel`."""
    found = list(notes)
    counts = Counter(note for note in found if note is not None)
    return tuple(
        f"{count} of {len(found)} tasks decoded in Python, which is slower ({note})"
        for note, count in sorted(counts.items())
    )
