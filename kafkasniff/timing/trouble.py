"""Problems of a sender's packets, and how many of them a run remembers."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY, in_proportion

__all__ = ["MAX_REMEMBERED", "NO_TROUBLE", "Budget", "Trouble"]

MAX_REMEMBERED: Final = 1 << 22
"""Maximum number of retransmissions, late segments and closed windows that all connections of a run remember together,
some 40 bytes each. Fewer with less than 1 GiB of memory.
"""


class Trouble(NamedTuple):
    """Problems of one sender's packets in a time span."""

    again: int = 0
    """Retransmitted segments: lost after the capture point, or acknowledged too late."""
    late: int = 0
    """Segments that followed later ones: lost or reordered before the capture point."""
    late_ns: int = 0
    """For how long they were missing in total."""
    closed: int = 0
    """Windows of size 0: this end could accept no more data."""
    closed_ns: int = 0
    """How long they lasted within the span."""


class Budget:
    """How much all connections of a run together may still remember; `memory`: the process's budget in bytes."""

    __slots__ = ("left",)

    def __init__(self, memory: int = DEFAULT_MEMORY) -> None:
        self.left = in_proportion(MAX_REMEMBERED, memory)

    @classmethod
    def none(cls) -> Self:
        """Nothing is remembered, only counted."""
        budget = cls()
        budget.left = 0
        return budget


NO_TROUBLE: Final = Trouble()
