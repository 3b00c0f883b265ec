"""Staged rows to Parquet files, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.finalise import MEMORY_PART, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tables.rows.staged import DAY_NS, STAGED


def test_memory_bounds_row_groups(tmp_path: Path) -> None:
    folder = open_own_folder(tmp_path)
    row = {"api": "Fetch", "time_ns": DAY_NS, "connection_id": 1, "topics": [], "partitions": [], "problems": []}
    staged = StagedFiles(folder / "staged")
    rows = [{**row, "exchange_id": number} for number in range(500)]
    staged.write("exchanges", pa.RecordBatch.from_pylist(rows, schema=STAGED["exchanges"]))
    staged.close()

    def groups(into: str, **more: Any) -> int:
        options, names = ExportOptions(tables=("exchanges",)), LearnedNames(LearnedFacts())
        more |= {"names": names, "sessions": Sessions(), "partitions": TablePartitions()}
        made = finalise([folder / "staged"], folder / into, "run-1", options, **more)["exchanges"]
        files = [pq.ParquetFile(tmp_path / into / one.path) for one in made]
        assert [number for file in files for number in file.read()["exchange_id"].to_pylist()] == list(range(500))
        assert [file.metadata.num_rows for file in files] == [one.rows for one in made]
        return sum(file.metadata.num_row_groups for file in files)

    assert groups("much") == 1
    assert groups("little", memory=MEMORY_PART << 10) > 2
