"""Lines of the list, and the places of their rows in the index.

An order has the places of the first lines; each line after them shows the row at its own place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LineJump", "Wanted", "line_of", "place_of", "places_of"]

Wanted = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Whether the rows at some places are wanted."""


def place_of(line: int, order: NDArray[np.int32]) -> int:
    """The place of the row in a line."""
    return int(order[line]) if line < len(order) else line


def places_of(lines: NDArray[np.int64], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """The places of the rows in lines."""
    places = lines.copy()
    is_sorted = lines < len(order)
    places[is_sorted] = order[lines[is_sorted]]
    return places


def line_of(place: int, order: NDArray[np.int32]) -> int:
    """The line of a row; rows that were added after sorting follow in order of reading."""
    return int(np.argmax(order == place)) if place < len(order) else place


class LineJump(NamedTuple):
    """A jump from a line to the next one (`way` 1) or previous one (-1) whose rows have something in common."""

    start: int
    order: NDArray[np.int32]
    along: str
    """What they have in common."""
    way: int
    end: int
    """Number of lines in this direction, with the first one."""
    wanted: Wanted
    missed: Callable[[], object] | None = None
    """Called if there is no such line."""

    def starts_at(self, line: int, order: NDArray[np.int32]) -> bool:
        """Whether the list is still as it was when the jump began."""
        return self.start == line and self.order is order

    def repeats(self, other: LineJump) -> bool:
        """Whether another one would find the same line."""
        return self.starts_at(other.start, other.order) and (self.along, self.way) == (other.along, other.way)

    def first(self, near: int, far: int) -> int | None:
        """The first line that is wanted, at least `near` and less than `far` lines away; None if there is none."""
        lines = self.start + self.way * np.arange(near, far, dtype=np.int64)
        found = np.flatnonzero(self.wanted(places_of(lines, self.order)))
        return int(lines[found[0]]) if len(found) else None
