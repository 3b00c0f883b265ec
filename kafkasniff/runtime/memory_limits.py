"""The memory of a process (`--memory`), and bounds that are in proportion to it.

What an inspector holds is measured in bytes (`MemoryBudget`). Caches besides it (fetch sessions, names, links of
`timing`) are bounded by number; these bounds apply to a budget of 1 GiB or more and are proportionally smaller below it
(`in_proportion`). Their oldest entries are dropped, never connections of the inspector.
"""

from __future__ import annotations

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
