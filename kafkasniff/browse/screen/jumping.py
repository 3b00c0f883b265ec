"""Jumps along something that the list does not show, such as a partition: a reading of its own finds the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.browse.following import Followed, FollowKind
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import ExchangeReading, Progress
from kafkasniff.filters import Predicate, all_of
from kafkasniff.filters.expression import parse_filter


class Trail(NamedTuple):
    """Rows of an index that have something in common."""

    of: Followed
    listed: ExchangeIndex
    rows: NDArray[np.bool_]
    """By place in the index."""
    size: int
    """Number of these rows."""

    def covers(self, kind: FollowKind, listed: ExchangeIndex, place: int) -> bool:
        """Whether it can be followed on from a row: the list is the same, and the row belongs to it."""
        is_listed = self.listed is listed and place < len(self.rows)
        return self.of.kind == kind and is_listed and bool(self.rows[place])

    def has(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which places have such rows; of those that were added since, it is unknown."""
        found: NDArray[np.bool_] = (places < len(self.rows)) & self.rows[np.minimum(places, len(self.rows) - 1)]
        return found

    @property
    def text(self) -> str:
        """What it is, and how many rows it has."""
        return f"{self.of.kind} {self.of.title}: {self.size:,}"


def find_trail(
    of: Followed,
    listed: ExchangeIndex,
    reading: ExchangeReading,
    predicate: Predicate | None,
    *,
    stopped: Callable[[], bool],
    progress: Progress,
) -> Trail:
    """The rows of an index, whose predicate is given, that share something. Raises CaptureError."""
    found = ExchangeIndex()
    reading.fill(found, all_of([predicate, parse_filter(of.expression)]), stopped=stopped, progress=progress)
    rows = listed.shared(found)
    return Trail(of, listed, rows, int(rows.sum()))
