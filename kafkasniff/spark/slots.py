"""How the rows of a run are dealt out to the tasks of stage 2: by time, and a time of much traffic to several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["LARGE_PART", "SMALL_PART", "SlotPlan", "plan_slots"]

LARGE_PART: Final = 256 << 20
"""Bytes of exchanges that one task makes rows of at most, about; a file of each table comes of them."""
SMALL_PART: Final = 16 << 20
"""Below this a task is not worth its start."""
ROW_BYTES: Final = 512
"""What a row costs besides its bytes."""


class SlotPlan(NamedTuple):
    """To which parts the rows of a slot go: `ways` parts from `first` on, by exchange."""

    slot: int
    first: int
    ways: int


def plan_slots(sizes: Iterable[tuple[int, int, int]], parallelism: int) -> tuple[list[SlotPlan], int]:
    """The plan for (slot, bytes, rows), and the number of its parts: small slots together, large ones divided."""
    costs = sorted((slot, size + ROW_BYTES * rows) for slot, size, rows in sizes)
    # Twice as many as can run at once, so that the last ones do not keep everybody waiting.
    most = min(max(sum(cost for _, cost in costs) // (2 * parallelism), SMALL_PART), LARGE_PART)
    plans: list[SlotPlan] = []
    part, used = 0, 0
    for slot, cost in costs:
        if used and used + cost > most:
            part, used = part + 1, 0
        ways = max(1, -(-cost // most)) if not used else 1
        plans.append(SlotPlan(slot, part, ways))
        if ways > 1:
            part, used = part + ways, 0
        else:
            used += cost
    return plans, part + (1 if used else 0) or 1
