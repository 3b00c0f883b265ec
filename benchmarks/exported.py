"""The content of an export's tables, in figures that do not depend on the order of rows or on their files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROWS_AT_ONCE: Final = 65_536

WRAP: Final = 1 << 64
"""Sums are kept modulo this."""


@dataclasses.dataclass
class Contents:
    """A table."""

    rows: int
    bytes: int
    sums: dict[str, tuple[int, int, int]]
    """By column (fields of structs after a dot): values that are not null, the sum of all whole numbers or of the
    lengths of all strings, and the sum of the strings' bytes."""


def contents(export: Path) -> dict[str, Contents]:
    """The tables of an export. Raises ValueError where a file has other rows than the manifest says."""
    manifest = json.loads((export / "manifest.json").read_bytes())
    return {name: _table(export, table["files"]) for name, table in manifest["tables"].items()}


def differences(ours: dict[str, Contents], theirs: dict[str, Contents]) -> list[str]:
    """Differences between two exports of the same captures, except for file sizes."""
    found = []
    for table in sorted(ours.keys() | theirs.keys()):
        if table not in ours or table not in theirs:
            found.append(f"{table}: only one of them has it")
            continue
        one, other = ours[table], theirs[table]
        if one.rows != other.rows:
            found.append(f"{table}: {one.rows} rows and {other.rows}")
        found += [
            f"{table}: {column} differs: {one.sums.get(column)} and {other.sums.get(column)}"
            for column in sorted(one.sums.keys() | other.sums.keys())
            if one.sums.get(column) != other.sums.get(column)
        ]
    return found


def _table(export: Path, files: list[dict[str, object]]) -> Contents:
    table = Contents(0, 0, {})
    for entry in files:
        path = export / str(entry["path"])
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows != entry["rows"]:
                raise ValueError(f"{path} has {file.metadata.num_rows} rows; the manifest says {entry['rows']}")
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    _sum(name, column, table.sums)
            table.rows += file.metadata.num_rows
        table.bytes += path.stat().st_size
    return table


def _sum(name: str, column: pa.Array, sums: dict[str, tuple[int, int, int]]) -> None:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _add(sums, f"{name}[]", len(column) - column.null_count, 0, 0)
        _sum(f"{name}.", column.flatten(), sums)
        return
    if pa.types.is_struct(kind):
        for place, field in enumerate(kind):
            _sum(f"{name}.{field.name}", column.flatten()[place], sums)
        return
    present = column.drop_null()
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        data = _joined(present.cast(pa.large_binary()))
        _add(sums, name, len(present), len(data), int(data.sum(dtype=np.int64)))
        return
    if pa.types.is_boolean(kind):
        present = present.cast(pa.uint8())
    numbers = present.cast(pa.int64()).to_numpy(zero_copy_only=False)
    _add(sums, name, len(present), int(numbers.sum()), 0)


def _joined(column: pa.Array) -> NDArray[np.uint8]:
    """All strings of a column without nulls, one after the other: a view of Arrow's memory."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return np.zeros(0, np.uint8)
    places = np.frombuffer(offsets, np.int64)
    return np.frombuffer(data, np.uint8)[places[column.offset] : places[column.offset + len(column)]]


def _add(sums: dict[str, tuple[int, int, int]], name: str, count: int, total: int, content: int) -> None:
    before = sums.get(name, (0, 0, 0))
    sums[name] = (before[0] + count, (before[1] + total) % WRAP, (before[2] + content) % WRAP)
