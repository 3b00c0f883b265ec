"""What the names of an export's files say."""

from __future__ import annotations

import pytest

from kafkasniff.tables.rows.file_names import date_of, is_table_file, run_of, was_open


@pytest.mark.parametrize(
    ("name", "run", "open_"),
    [
        ("part-00001-00000.parquet", 1, False),
        ("part-00012-open-00003-00000.parquet", 12, True),
        ("part-00002-0123456789ab-00003-00000.parquet", 2, False),
        ("part-00002-0123456789ab-open-00003.parquet", 2, True),
        ("part-00004-00003-00001-00000.parquet", 4, False),
        ("part-00004-00003-00001-00000-00000.parquet", None, False),
        ("part-open.parquet", None, False),
    ],
)
def test_runs_and_open_rows(name: str, run: int | None, open_: bool) -> None:
    path = f"records/date=2026-11-26/{name}"
    assert is_table_file(path, "records")
    assert (run_of(path), was_open(path), date_of(path)) == (run, open_, "2026-11-26")
