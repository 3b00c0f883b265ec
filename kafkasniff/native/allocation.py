"""Settings of the C library's allocator, for processes that only decode."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of glibc's `mallopt`."""

LARGEST_KEPT: Final = 32 << 20
"""Block size threshold in bytes, the highest that glibc accepts: batches of packets and their frames are smaller."""
KEPT: Final = 128 << 20
"""Free bytes at the heap's end above which they are returned to the kernel."""


def keep_freed_memory() -> None:
    """Reuse freed large blocks instead of mapping new ones; for glibc, a no-op elsewhere.

    Each batch needs buffers of some megabytes. glibc maps these anew each time, and the kernel clears every page at its
    first use, which took a seventh of the time of large batches. Arrow allocates there, too: its own pool would keep
    its freed memory from everybody else.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        # musl and macOS have none; Windows has no handle for the process.
        return
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    mallopt(_MMAP_THRESHOLD, LARGEST_KEPT)
    mallopt(_TRIM_THRESHOLD, KEPT)
    # Otherwise each thread has its own heap, and memory freed by one is unavailable to others.
    mallopt(_ARENA_MAX, 1)


def release_freed_memory() -> None:
    """Return the freed memory that glibc keeps to the kernel, in some milliseconds; a no-op elsewhere."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim.argtypes = (ctypes.c_size_t,)
    trim(0)
