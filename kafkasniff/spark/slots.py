"""Distributes the rows of a run to tasks of stage 2: by time; busy slots are divided among several tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["LARGE_PART", "SMALL_PART", "SlotPlan", "plan_slots"]

LARGE_PART: Final = 256 << 20
"""Approximate maximum of exchange bytes per task; each task writes a file per table."""
SMALL_PART: Final = 16 << 20
"""A smaller task is not worth starting."""
ROW_BYTES: Final = 512
"""Cost of a row in addition to its bytes."""


class SlotPlan(NamedTuple):
    """The parts for the rows of a slot: `parts` of them from `first` on, by exchange."""

    slot: int
    first: int
    parts: int


def plan_slots(sizes: Iterable[tuple[int, int, int]], parallelism: int) -> tuple[list[SlotPlan], int]:
    """The plan for (slot, bytes, rows), and the number of parts: small slots are combined, large ones divided."""
    costs = sorted((slot, size + ROW_BYTES * rows) for slot, size, rows in sizes)
    # Twice as many parts as can run at once, so that the last ones do not delay the end.
    most = min(max(sum(cost for _, cost in costs) // (2 * parallelism), SMALL_PART), LARGE_PART)
    plans: list[SlotPlan] = []
    part, used = 0, 0
    for slot, cost in costs:
        if used and used + cost > most:
            part, used = part + 1, 0
        parts = max(1, -(-cost // most)) if not used else 1
        plans.append(SlotPlan(slot, part, parts))
        if parts > 1:
            part, used = part + parts, 0
        else:
            used += cost
    return plans, part + (1 if used else 0) or 1
