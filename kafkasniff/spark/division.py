"""Distributes the rows of shards to the tasks of stage 2.

Most shards are neither small nor large: their rows stay in the task that reads them from disk. Only rows of small
shards, which are put together, of large ones, which are divided, and those in fetch sessions are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["LARGE_PART", "SMALL_PART", "ShardPlan", "ShardSize", "plan_parts"]

LARGE_PART: Final = 512 << 20
"""Approximate maximum of staged bytes per task; each task writes a file per table and day."""
SMALL_PART: Final = 16 << 20
"""A smaller task is not worth starting."""


class ShardSize(NamedTuple):
    """The staged bytes of a shard."""

    shard: int
    size: int
    in_session: int
    """Those of them that are shuffled in any case."""


class ShardPlan(NamedTuple):
    """The parts for the shuffled rows of a shard: `parts` of them from `first` on, block by block."""

    shard: int
    first: int
    parts: int
    stays: bool
    """Only rows in fetch sessions are shuffled."""


def plan_parts(sizes: Sequence[ShardSize], parallelism: int) -> tuple[list[ShardPlan], int]:
    """The plan for all shards, and the number of parts of their shuffled rows."""
    total = sum(size for _, size, _ in sizes)
    # A task with a little more than its share delays the end less than a shuffle does.
    most = min(max(total * 5 // (4 * parallelism), SMALL_PART), LARGE_PART)
    # Twice as many parts as can run at once, so that the last ones do not delay the end.
    wanted = min(max(total // (2 * parallelism), SMALL_PART), LARGE_PART)
    alone = sum(size > 0 for _, size, _ in sizes) < 2
    plans: list[ShardPlan] = []
    part = used = 0
    for shard, size, in_session in sizes:
        stays = size <= most and (size >= SMALL_PART or alone)
        cost = in_session if stays else size
        if used and used + cost > wanted:
            part, used = part + 1, 0
        parts = max(1, -(-cost // wanted)) if not used else 1
        plans.append(ShardPlan(shard, part, parts, stays))
        if parts > 1:
            part, used = part + parts, 0
        else:
            used += cost
    return plans, part + (1 if used else 0)
