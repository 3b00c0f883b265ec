"""Whether the large values of a column are repeated, so that a dictionary makes files smaller and faster to write.

Near a broker each record passes once as it is produced, and once for each replica and consumer group that fetches it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["repeats"]

SAMPLE: Final = 4096
"""Number of rows whose whole values are compared."""
PLACES: Final = 8
"""Bytes of a value that are compared of all rows."""
SHARE: Final = 0.6
"""Distinct values per row, at most, in a column that repeats."""


def repeats(column: pa.ChunkedArray) -> bool:
    """Whether a binary or string column has few distinct values for its number of rows, by an estimate.

    Rows with equal values are found however far apart they are. Null counts as an empty value.
    """
    chunks = [_Values.of(chunk) for chunk in column.chunks if len(chunk)]
    if not chunks:
        return False
    marks = [chunk.marks() for chunk in chunks]
    distinct, counts = np.unique(np.concatenate(marks), return_counts=True)
    most = SHARE * len(column)
    if len(distinct) > most:
        return False
    # Values with the same mark may differ; whether they do is looked up for as many marks as the sample holds.
    sampled = max(int(np.searchsorted(np.cumsum(counts), SAMPLE, side="right")), 1)
    found: set[bytes] = set()
    # Less than 1 if the first mark alone has more rows than the sample.
    part = min(SAMPLE / int(counts[:sampled].sum()), 1)
    for chunk, mark in zip(chunks, marks, strict=True):
        rows = np.flatnonzero(mark <= distinct[sampled - 1])
        found.update(chunk.at(rows[: math.ceil(len(rows) * part)]))
    return len(distinct) * len(found) / part <= most * sampled


class _Values(NamedTuple):
    """The values of an array."""

    content: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, values: pa.Array) -> _Values:
        _, offsets, data = values.buffers()
        wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
        ends: NDArray[np.int64] = np.frombuffer(offsets, np.int64 if wide else np.int32).astype(np.int64)
        ends = ends[values.offset : values.offset + len(values) + 1]
        content = np.frombuffer(b"\0" if data is None or not data.size else data, np.uint8)
        return cls(content, ends[:-1], ends[1:] - ends[:-1])

    def marks(self) -> NDArray[np.uint64]:
        """A number for each value, the same for equal ones; different for others that differ in size or sampled bytes.

        They are spread over 64 bits.
        """
        found = self.sizes.astype(np.uint64)
        last = np.maximum(self.sizes - 1, 0)
        for place in range(PLACES):
            # An empty value has no bytes: it gets a zero.
            places = np.minimum(self.starts + last * place // (PLACES - 1), len(self.content) - 1)
            found = _mixed(found * np.uint64(257) + np.where(self.sizes > 0, self.content[places], 0))
        return found

    def at(self, rows: NDArray[np.int64]) -> list[bytes]:
        """The values of some rows."""
        content = self.content.data
        starts, ends = self.starts[rows].tolist(), (self.starts + self.sizes)[rows].tolist()
        return [bytes(content[start:end]) for start, end in zip(starts, ends, strict=True)]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers over 64 bits (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
