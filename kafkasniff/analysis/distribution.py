"""Distributions of a quantity in groups of rows: counts, sums, extremes and percentiles that merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import integers, keys_of
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.percentiles import bucket_of, percentiles

__all__ = ["distribution_rows", "distribution_shape", "distributions"]

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
