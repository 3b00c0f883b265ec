"""Rows that wait to become one record batch: most of them as columns, which take a tenth of the memory of dicts."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["WaitingRows"]

MOST_DICTS: Final = 2_048
"""Rows that wait as dicts, of up to 3 kB each."""


class WaitingRows:
    """Rows of one schema, in the order in which they were added."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._packed: list[pa.RecordBatch] = []
        self._packed_rows = 0

    def __len__(self) -> int:
        return self._packed_rows + len(self._rows)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, values by column."""
        self._rows.append(row)
        if len(self._rows) >= MOST_DICTS:
            self._pack()

    def extend(self, rows: pa.RecordBatch) -> None:
        """Add a record batch of the schema."""
        if self._rows:
            self._pack()
        self._packed_rows += len(rows)
        self._packed.append(rows)

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        if self._rows or not self._packed:
            self._pack()
        packed, self._packed, self._packed_rows = self._packed, [], 0
        if len(packed) == 1:
            return packed[0]
        columns = [pa.concat_arrays([part.column(place) for part in packed]) for place in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _pack(self) -> None:
        rows, self._rows = self._rows, []
        self._packed_rows += len(rows)
        self._packed.append(pa.RecordBatch.from_pylist(rows, schema=self._schema))
