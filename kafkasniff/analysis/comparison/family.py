"""Decides when two numbers differ: by enough, and significantly, however many numbers are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from kafkasniff.analysis.comparison.answer import Change
from kafkasniff.analysis.comparison.inference import Estimate, holm, probability

__all__ = ["MIN_EXCHANGES", "MIN_SPANS", "Family", "Thresholds"]

MIN_SPANS: Final = 5
"""Minimum number of spans of equal weight on both sides; with fewer, the spread between spans is hardly known (t with 4
degrees of freedom).
"""
MIN_EXCHANGES: Final = 20
"""Minimum number of exchanges or batches on both sides for comparing a mean, a share or a percentile."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria of a difference."""

    min_change: Annotated[float, Meta(ge=0)] = 0.1
    """Minimum relative change of a number."""
    significance: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    """Probability of any false difference in one list if nothing has changed."""
    min_count: Annotated[int, Meta(ge=1)] = 1
    """How often something that exists on one side only must have been seen there."""

    def one_sided(self, before: int, after: int) -> bool:
        """Whether something with these counts is on one side only, and frequent enough."""
        return (before == 0) != (after == 0) and max(before, after) >= self.min_count

    def matters(self, before: float, after: float) -> bool:
        """Whether a number has changed by enough; from 0 every change is enough."""
        return before != after and abs(after - before) >= self.min_change * abs(before)


class Family:
    """The tests of one list, which are corrected together."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._found: list[tuple[float, Callable[[float], object]]] = []

    def test(self, p: float, settle: Callable[[float], object]) -> None:
        """Add a p value; `settle` is called with the corrected one."""
        self._found.append((p, settle))

    def change(self, before: Estimate | None, after: Estimate | None, *, count: int | None = None) -> Change:
        """A number on both sides; `settle` fills in `p` and `differs`.

        `count`: exchanges on the side that has fewer of them, if relevant.
        """
        values = [None if one is None else one.value for one in (before, after)]
        made = Change(values[0], values[1], None, None, False)
        if before is None or after is None:
            return made
        if before.value:
            made.change = after.value / before.value - 1
        if min(before.spans, after.spans) < MIN_SPANS or (count is not None and count < MIN_EXCHANGES):
            return made
        matters = self._thresholds.matters(before.value, after.value)

        def settle(p: float) -> None:
            made.p, made.differs = p, matters and p < self._thresholds.significance

        self.test(probability(before, after), settle)
        return made

    def settle(self) -> None:
        """Called after the last test of the list."""
        corrected = holm([p for p, _ in self._found])
        for (_, settle), p in zip(self._found, corrected, strict=True):
            settle(p)
