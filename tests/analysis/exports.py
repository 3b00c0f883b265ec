"""Build exports for tests: Parquet files by date and the manifest that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.analysis.tables import Row, batch_of


def write_export(folder: Path, row_group_size: int = 50, **tables: Iterable[Row]) -> Path:
    """Write an export with some tables, one file per date."""
    manifest: dict[str, Any] = {"format": "kafkasniff-export", "schema_version": 1, "tables": {}}
    for table, rows in tables.items():
        by_date: dict[str, list[Row]] = {}
        for row in rows:
            date = datetime.fromtimestamp((row["time"] or 0) // 1_000_000, UTC).strftime("%Y-%m-%d")
            by_date.setdefault(date, []).append(row)
        files = []
        for date, some in by_date.items():
            path = Path(table) / f"date={date}" / "part-00000.parquet"
            (folder / path).parent.mkdir(parents=True)
            ordered = sorted(some, key=lambda row: (row.get("api") or "", row["time"]))
            with pq.ParquetWriter(folder / path, batch_of([], table).schema) as writer:
                writer.write_batch(batch_of(ordered, table), row_group_size=row_group_size)
            files.append({"path": path.as_posix(), "rows": len(some)})
        manifest["tables"][table] = {"rows": sum(file["rows"] for file in files), "files": files}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
