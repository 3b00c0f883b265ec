"""Default number of processes of a command: by the size of its input and the available cores."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

__all__ = ["JOB_BYTES", "MAX_USUAL_JOBS", "usual_jobs"]

JOB_BYTES: Final = 64 << 20
"""Bytes of captures per process: starting one costs what it saves on some ten megabytes."""
MAX_USUAL_JOBS: Final = 8
"""Each process reads all captures and takes memory of its own."""


def usual_jobs(captures: Sequence[str]) -> int:
    """Number of processes for these captures; 1 if the size of one of them is unknown."""
    total = 0
    for capture in captures:
        try:
            status = os.stat(capture)
        except OSError:
            return 1  # opening it reports the error
        if not stat.S_ISREG(status.st_mode):
            return 1
        total += status.st_size
    return max(1, min(_cores(), total // JOB_BYTES, MAX_USUAL_JOBS))


def _cores() -> int:
    """Cores available to this process; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
