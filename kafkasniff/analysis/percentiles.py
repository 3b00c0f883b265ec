"""Percentiles of integers by counting them in log-linear buckets, which merge exactly.

A value below 2**7 has its own bucket; above, each power of two is cut into 2**7 equal buckets (the layout of Gil Tene's
HdrHistogram, with integers only, so that all machines agree). A percentile is the middle of the bucket that holds the
value of that rank, and so at most 1/256 (0.4%) off; minimum and maximum are exact. Negative values are counted in
mirrored buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import integers, keys_of
from kafkasniff.analysis.partials import Partials, Shape

_BITS: Final = 7
_PER_POWER: Final = 1 << _BITS
RELATIVE_ERROR: Final = 1 / (2 * _PER_POWER)
"""Maximum relative error of a percentile."""

Integers = npt.NDArray[np.int64]


def bucket_of(values: Integers) -> Integers:
    """Number of each value's bucket; rises with the value. -2**63 counts as -2**63 + 1."""
    magnitude = np.abs(np.maximum(values, -(2**63 - 1)))
    # frexp is precise enough: rounding up to a power of two only happens above 2**53, and the test below corrects it.
    exponent = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64) - 1
    exponent = np.where((magnitude >> np.maximum(exponent, 0)) == 0, exponent - 1, exponent)
    shift = np.maximum(exponent - _BITS, 0)
    bucket = shift * _PER_POWER + (magnitude >> shift)
    signed: Integers = np.where(values < 0, -bucket, bucket)
    return signed


def middle_of(buckets: Integers, level: int = 0) -> Integers:
    """A value in the middle of each bucket; below 2**8 the value itself.

    `level`: each of them stands for 2**level, of which it is the first (`Shape.coarsens`).
    """
    magnitude = np.abs(buckets)
    low, next_low = _low(magnitude), _low(magnitude + (1 << level))
    middle = low + ((next_low - low) >> 1)
    signed: Integers = np.where(buckets < 0, -middle, middle)
    return signed


def _low(magnitude: Integers) -> Integers:
    """The smallest value of each bucket; below 0, the largest one's absolute value."""
    shift = np.maximum(magnitude // _PER_POWER - 1, 0)
    low: Integers = (magnitude - shift * _PER_POWER) << shift
    return low


def percentiles(  # noqa: PLR0917 - columns of one table
    group: Integers, buckets: Integers, counts: Integers, quantiles: Sequence[float], groups: int, level: int = 0
) -> list[npt.NDArray[Any]]:
    """For each quantile one array over the groups 0 … `groups`-1 (each must have a row): the value of that rank.

    The rank is the nearest one (the smallest value that at least this fraction of the values does not exceed). `group`,
    `buckets` and `counts` are equally long, in any order; a bucket may occur more than once. `level`: as for
    `middle_of`.
    """
    order = np.lexsort((buckets, group))
    group, buckets, counts = group[order], buckets[order], counts[order]
    running = np.cumsum(counts)
    starts = np.searchsorted(group, np.arange(groups))
    before = np.where(starts > 0, running[starts - 1], 0)
    totals = np.add.reduceat(counts, starts) if groups else np.zeros(0, np.int64)
    found = []
    for quantile in quantiles:
        rank = np.maximum(np.ceil(totals * quantile - 1e-9).astype(np.int64), 1)
        found.append(middle_of(buckets[np.searchsorted(running, before + rank)], level))
    return found


MAX_BUCKETS: Final = 1 << 20
"""Maximum rows of a distribution, one per bucket and group; a group has some hundred for widely varying values."""

_MEASURES: Final = (
    ("count", pa.int64(), "sum"),
    ("total", pa.int64(), "sum"),
    ("low", pa.int64(), "min"),
    ("high", pa.int64(), "max"),
)


def distribution_shape(keys: Sequence[tuple[str, pa.DataType]], *, coarsens: bool = True) -> Shape:
    """A partial answer for distributions in groups by `keys`.

    Above the bound, buckets become wider (`coarsens`). If that is not enough, the groups with the fewest values are
    dropped.
    """
    return Shape(
        keys=(*keys, ("bucket", pa.int64())),
        measures=_MEASURES,
        weight="count",
        group=tuple(name for name, _ in keys),
        coarsens="bucket" if coarsens else None,
        bound=MAX_BUCKETS,
    )


def distribution_rows(keys: Mapping[str, Any], values: pa.Array) -> dict[str, Any]:
    """Rows for such a partial answer: one value each, none of them null."""
    numbers = integers(values)
    ones = np.ones(len(numbers), np.int64)
    return {**keys, "bucket": bucket_of(numbers), "count": ones, "total": numbers, "low": numbers, "high": numbers}


def distributions(
    part: Partials, names: Sequence[str], quantiles: Mapping[str, float]
) -> tuple[pa.Table, dict[str, pa.Array]]:
    """The groups of a partial answer, ordered by their keys, and `count`, `total`, `low`, `high` and quantiles of each.

    A quantile is off by at most `percentiles.RELATIVE_ERROR`, unless buckets became wider (`Lost.level`), and never
    outside of the extremes.
    """
    table = part.table()
    keys, number = keys_of(table, names)
    rows = pa.table({"number": number, **{name: table.column(name) for name, _, _ in _MEASURES}})
    folded = rows.group_by("number").aggregate([(name, how) for name, _, how in _MEASURES]).sort_by("number")
    found = {name: folded.column(f"{name}_{how}").combine_chunks() for name, _, how in _MEASURES}
    values = percentiles(
        number,
        integers(table.column("bucket")),
        integers(table.column("count")),
        [*quantiles.values()],
        keys.num_rows,
        part.lost.level,
    )
    for name, array in zip(quantiles, values, strict=True):
        found[name] = pc.min_element_wise(pc.max_element_wise(pa.array(array), found["low"]), found["high"])
    return keys, found
