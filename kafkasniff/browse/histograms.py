"""How many of the listed exchanges fall into ranges of time and of latency."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.packed_columns import UNKNOWN
from kafkasniff.text.times import rfc3339

FINEST: Final = 20
"""Maximum number of bins of latencies for each power of ten."""


class Bin(NamedTuple):
    """Exchanges from `low` up to, but not including, `high`, in nanoseconds."""

    low: int
    high: int
    exchanges: int
    errors: int
    """Those with an error, or without a response."""


class Brush(NamedTuple):
    """What the bins count."""

    title: str
    field: str
    bins: list[Bin]

    def expression(self, first: int, last: int) -> str:
        """The filter for the exchanges in some of the bins."""
        low, high = self.bins[first].low, self.bins[last].high
        if self.field == "time":
            return f"time >= {rfc3339(low)} and time < {rfc3339(high)}"
        return f"{self.field} >= {_milliseconds(low)} and {self.field} < {_milliseconds(high)}"


def _milliseconds(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 1_000_000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:06d}"


_Parts = list[tuple[NDArray[np.int64], NDArray[np.bool_]]]
"""Known numbers of a column, and whether each of these rows has an error."""


def time_bins(index: ExchangeIndex, most: int) -> Brush:
    """At most `most` ranges of the same length, by the times of requests."""
    parts = _known(index, "time")
    low, high = _limits(parts)
    width = max(-(-(high - low + 1) // most), 1)

    def places(part: NDArray[np.int64]) -> NDArray[np.int64]:
        # Distances are unsigned, so times at both ends of the range that a capture may claim do not overflow.
        far = part.view(np.uint64) - np.uint64(low % (1 << 64))
        return (far // np.uint64(width)).astype(np.int64)

    bins = _bins([low + width * place for place in range(most + 1)], parts, places)
    return Brush("exchanges over time", "time", bins)


def latency_bins(index: ExchangeIndex, most: int) -> Brush:
    """At most `most` ranges, each the same multiple of the one before it; the first begins at the smallest latency."""
    parts = _known(index, "latency")
    low, high = _limits(parts)
    first, last = (math.log10(max(one, 1)) for one in (low, high + 1))
    steps = max(min(FINEST, int((most - 1) / max(last - first, 1))), 1)
    edges = {round(10 ** (place / steps)) for place in range(math.floor(first * steps), math.ceil(last * steps) + 1)}
    limits = [low, *sorted(one for one in edges if low < one <= high), high + 1]
    while len(limits) - 1 > most:
        limits = [*limits[:-1:2], limits[-1]]
    inner = np.array(limits[1:-1], np.int64)
    return Brush("latencies", "latency_ms", _bins(limits, parts, lambda part: np.searchsorted(inner, part, "right")))


def _known(index: ExchangeIndex, column: str) -> _Parts:
    # Rows may be added meanwhile, after those that are seen first.
    pairs = [(part, errors[: len(part)]) for part, errors in zip(index.numbers(column), index.errors(), strict=False)]
    known = [(part, errors, part != UNKNOWN) for part, errors in pairs]
    return [(part[is_known], errors[is_known]) for part, errors, is_known in known if is_known.any()]


def _limits(parts: _Parts) -> tuple[int, int]:
    if not parts:
        return 0, 0
    return min(int(part.min()) for part, _ in parts), max(int(part.max()) for part, _ in parts)


def _bins(limits: list[int], parts: _Parts, places: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> list[Bin]:
    """Without the empty ones at the end. `places`: the bin of each number."""
    counts = np.zeros((2, len(limits) - 1), np.int64)
    for part, errors in parts:
        found = places(part)
        for row, chosen in enumerate((found, found[errors])):
            counts[row] += np.bincount(chosen, minlength=len(limits) - 1)
    filled = np.flatnonzero(counts[0])
    return [
        Bin(limits[index], limits[index + 1], *counts[:, index].tolist())
        for index in range(int(filled[-1]) + 1 if len(filled) else 0)
    ]
