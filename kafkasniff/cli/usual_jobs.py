"""How many processes a command takes where nobody says it: by the size of its input and the cores that it may use."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

__all__ = ["JOB_BYTES", "MAX_USUAL_JOBS", "usual_jobs"]

JOB_BYTES: Final = 64 << 20
"""Bytes of captures for each process: starting one costs what it saves on some ten megabytes."""
MAX_USUAL_JOBS: Final = 8
"""One process reads for all others, which are no faster than it from here on."""


def usual_jobs(captures: Sequence[str]) -> int:
    """Processes for these captures; 1 where one of them is no file whose size says how much is in it."""
    total = 0
    for capture in captures:
        try:
            status = os.stat(capture)
        except OSError:
            return 1  # what opens it says what is wrong
        if not stat.S_ISREG(status.st_mode):
            return 1
        total += status.st_size
    return max(1, min(_cores(), total // JOB_BYTES, MAX_USUAL_JOBS))


def _cores() -> int:
    """Cores that this process may use, which a container may have less of than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
