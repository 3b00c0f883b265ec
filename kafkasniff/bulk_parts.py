"""Which part of what a connection yielded may be taken in bulk, and what goes in front of it and behind it.

A connection that begins or ends within a batch, or has a retransmission in it, yields a long stretch of plain data and
a few other items. Those go one by one, as does the beginning of the stretch for as long as it is not known what is
spoken: to cut it anywhere is what the border of a batch would do.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from kafkasniff.streams import Item, Run, Stretch

__all__ = ["FIRST_SEGMENTS", "divide", "in_parts"]

FIRST_SEGMENTS: Final = 8
"""Segments that are taken one by one before it is asked what is spoken; each time it is still not known, twice as
many."""
LEAST_SEGMENTS: Final = 16
"""Stretches of fewer segments are not worth the steps."""


def in_parts(items: list[Item], shared: list[int]) -> tuple[list[Item], Stretch | None, list[Item]]:
    """The items in front of the longest stretch of both streams, that stretch, and those behind.

    `shared`: the plan's `order`, which the stretch refers to. No stretch: all items are in front.
    """
    longest, where = LEAST_SEGMENTS - 1, -1
    for index, item in enumerate(items):
        if type(item) is Stretch and item.runs[0] is not None and item.runs[1] is not None:
            size = sum(run.last - run.first for run in item.runs if run is not None and run.order is shared)
            if size > longest:
                longest, where = size, index
    if where < 0:
        return items, None, []
    stretch = items[where]
    assert isinstance(stretch, Stretch)
    return items[:where], stretch, items[where + 1 :]


def divide(stretch: Stretch, count: int) -> tuple[Stretch, Stretch | None]:
    """The first segments of a stretch, about so many, and the rest of it."""
    orders = sorted(
        order
        for run in stretch.runs
        if run is not None
        for order in run.order[run.first : min(run.last, run.first + count)]
    )
    if len(orders) <= count:
        return stretch, None
    parts = [_divided(run, orders[count]) for run in stretch.runs]
    (one, one_rest), (other, other_rest) = parts
    if one_rest is None and other_rest is None:
        return stretch, None
    return Stretch((one, other)), Stretch((one_rest, other_rest))


def _divided(run: Run | None, order: int) -> tuple[Run | None, Run | None]:
    """The segments of a run before this order, and the others."""
    if run is None:
        return None, None
    border = bisect_left(run.order, order, run.first, run.last)
    return _part(run, run.first, border), _part(run, border, run.last)


def _part(run: Run, first: int, last: int) -> Run | None:
    if first == last:
        return None
    return Run(run.buffer, run.offset, run.length, run.end, run.packet, run.time, run.order, run.released, first, last)
