"""Staged rows to Parquet files: partitions, order, names of the whole run, and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.tables.exports.finalise import MEMORY_PART, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tables.rows.staged import DAY_NS, STAGED
from tests.tables.exports.exported import Rows

EXCHANGES = ExportOptions(tables=("exchanges",))
EMPTY: dict[str, Any] = {"topics": [], "partitions": [], "problems": []}


def exchange(day: float, number: int, api: str = "Fetch") -> dict[str, Any]:
    return {"api": api, "time_ns": int(day * DAY_NS), "connection_id": 1, "exchange_id": number, **EMPTY}


def staged(folder: ConfinedPath, table: str, *parts: Rows) -> list[ConfinedPath]:
    """A staged folder for each list of rows."""
    found = [folder.below("staged", f"{number}") for number in range(len(parts))]
    for path, rows in zip(found, parts, strict=True):
        files = StagedFiles(path)
        files.write(table, pa.RecordBatch.from_pylist(rows, schema=STAGED[table]))
        files.close()
    return found


def written(
    found: Sequence[ConfinedPath], folder: ConfinedPath, options: ExportOptions = EXCHANGES, **more: Any
) -> dict[str, list[tuple[str, int]]]:
    """By table, the (path, rows) that `finalise` says it has written."""
    more = {
        "names": LearnedNames(LearnedFacts()),
        "sessions": Sessions(),
        "partitions": TablePartitions(),
        **more,
    }
    files = finalise(list(found), folder, "run-1", options, **more)
    for one in (one for some in files.values() for one in some):
        path = folder.path / one.path
        assert path.stat().st_size == one.bytes
        assert pq.ParquetFile(path).metadata.num_rows == one.rows
    return {table: [(one.path, one.rows) for one in some] for table, some in files.items()}


def read(folder: Path, files: Sequence[tuple[str, int]]) -> Rows:
    return [row for path, _ in files for row in pq.ParquetFile(folder / path).read().to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> ConfinedPath:
    return open_own_folder(tmp_path)


def test_memory_bounds_row_groups(folder: ConfinedPath) -> None:
    paths = staged(folder, "exchanges", [exchange(1, number) for number in range(500)])

    def groups(into: str, **more: Any) -> int:
        found = written(paths, folder / into, **more)
        rows = read(folder.path / into, found["exchanges"])
        assert [row["exchange_id"] for row in rows] == list(range(500))
        return sum(pq.ParquetFile(folder.path / into / path).metadata.num_row_groups for path, _ in found["exchanges"])

    assert groups("much") == 1
    assert groups("little", memory=MEMORY_PART << 10) > 2
