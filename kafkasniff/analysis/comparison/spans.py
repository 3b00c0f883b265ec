"""Counts by time spans, for captures whose duration is unknown in advance.

Spans are 2**level nanoseconds long and begin at multiples of that since 1970. The level is the lowest that needs at
most `MAX_SPANS` of them from the first time to the last, so it only rises while rows arrive, and two spans become one
exactly. So the counts depend on the rows alone, not on their order or batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.partials import Lost, Partials, Shape

__all__ = ["MAX_SPANS", "SPAN", "SideSpans", "Spanned"]

MAX_SPANS: Final = 30
"""Schmeiser (1982): more than 30 batches hardly improve precision, and they are less independent."""
SPAN: Final = "span"

Integers = npt.NDArray[np.int64]


class SideSpans:
    """The spans of one side of a comparison."""

    def __init__(self) -> None:
        self.first: int | None = None
        """Nanoseconds since 1970, as `last`."""
        self.last: int | None = None
        self.level = 0

    def take(self, times: Integers) -> None:
        """Note that there are rows of these times."""
        if not len(times):
            return
        first, last = int(times.min()), int(times.max())
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        while (self.last >> self.level) - (self.first >> self.level) >= MAX_SPANS:
            self.level += 1

    @property
    def count(self) -> int:
        """Number of spans from the first to the last."""
        if self.first is None or self.last is None:
            return 0
        return (self.last >> self.level) - (self.first >> self.level) + 1

    @property
    def start(self) -> int:
        """The number of the first."""
        return 0 if self.first is None else self.first >> self.level

    def seconds(self) -> npt.NDArray[np.float64]:
        """How much of each span lies between the first and the last time."""
        if self.first is None or self.last is None:
            return np.zeros(0)
        edges = [(self.start + number) << self.level for number in range(self.count + 1)]
        edges[0], edges[-1] = self.first, self.last
        return np.array([(end - begin) / 1e9 for begin, end in pairwise(edges)])


class Spanned:
    """A partial answer with the key `span`, which follows the level of its spans."""

    def __init__(self, spans: SideSpans, shape: Shape) -> None:
        """`shape` without the key."""
        self._spans = spans
        group = tuple(name for name, _ in shape.keys) if shape.group is None else shape.group
        # A group dropped by the bound is dropped in all spans.
        self._shape = msgspec.structs.replace(shape, keys=(*shape.keys, (SPAN, pa.int64())), group=group)
        self._level = spans.level
        self._part = Partials(self._shape)

    def add(self, times: Integers, columns: Mapping[str, Any]) -> None:
        """Fold in rows of some times, which the spans already include."""
        self._follow()
        self._part.add({**columns, SPAN: times >> self._level})

    def part(self) -> Partials:
        """The rows, by spans of the present level."""
        self._follow()
        return self._part

    def table(self) -> pa.Table:
        """The same as a table."""
        return self.part().table()

    @property
    def lost(self) -> Lost:
        """What the bound has dropped."""
        return self._part.lost

    def _follow(self) -> None:
        rise = self._spans.level - self._level
        if not rise:
            return
        table, lost = self._part.table(), self._part.lost
        self._level = self._spans.level
        self._part = Partials(self._shape)
        columns = {name: table.column(name) for name in table.schema.names}
        self._part.add({**columns, SPAN: pc.shift_right(columns[SPAN], rise)})
        for name in Lost.__struct_fields__:
            setattr(self._part.lost, name, getattr(lost, name) + getattr(self._part.lost, name))
