"""The memory of a process (`--memory`), bounds that are in proportion to it, and settings of the C library's allocator.

What an inspector holds is measured in bytes (`MemoryBudget`). Caches besides it (fetch sessions, names, links of
`timing`) are bounded by number; these bounds apply to a budget of 1 GiB or more and are proportionally smaller below it
(`in_proportion`). Their oldest entries are dropped, never connections of the inspector.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from kafkasniff.errors import UsageError

DEFAULT_MEMORY: Final = 1 << 30
"""The budget of a process, in bytes (`--memory`)."""
MIN_MEMORY: Final = 128 << 20
"""The smallest budget: less would drop state that ordinary traffic needs."""


def checked_memory(size: int | None) -> int:
    """A budget in bytes as given. Raises UsageError if it is too small."""
    if size is None:
        return DEFAULT_MEMORY
    if size < MIN_MEMORY:
        raise UsageError(f"memory: {size:,} bytes are not enough, use at least {size_text(MIN_MEMORY)}")
    return size


def in_proportion(bound: int, memory: int) -> int:
    """A bound by number for a budget of `memory` bytes; `bound` itself for `DEFAULT_MEMORY` or more."""
    return max(min(bound, bound * memory // DEFAULT_MEMORY), 1)


def size_text(count: int) -> str:
    """A number of bytes for people."""
    return f"{count >> 30} GiB" if count >= 1 << 30 and not count % (1 << 30) else f"{count / (1 << 20):,.4g} MiB"


# -- allocator of the C library ----------------------------------------------------------------------------------------


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
