"""Files of a table: bounded, private, with useful statistics."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables import parquet
from kafkasniff.tables.parquet import TableWriter
from kafkasniff.tables.rows import PROBLEMS, TABLES


def problems(count: int, first: int = 0, size: int = 3) -> pa.RecordBatch:
    rows = [{"time_ns": first + place, "kind": "tcp-gap", "detail": "x" * size} for place in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=PROBLEMS)


def read(paths: list[Path]) -> list[Any]:
    return [row["time_ns"] for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.parametrize(
    ("bounds", "sizes", "files", "groups"),
    [
        ({"ROW_GROUP_ROWS": 10, "FILE_BYTES": 1}, [5] * 5, [10, 10, 5], [10]),
        # Rows that compress to almost nothing would never fill a file, but would fill its footer.
        ({"ROW_GROUP_ROWS": 2, "ROW_GROUPS": 3}, [2] * 7, [6, 6, 2], [2, 2, 2]),
        ({"ROW_GROUP_ROWS": 10}, [7, 7, 23], [37], [10, 10, 10, 7]),
        ({"ROW_GROUP_ROWS": 10}, [25], [25], [10, 10, 5]),
        ({"ROW_GROUP_BYTES": 10_000}, [1] * 4, [4], [2, 2]),
    ],
    ids=["files", "footers", "groups that fill up", "groups of one batch", "bytes of groups"],
)
def test_files_and_groups_are_bounded(
    *,
    bounds: dict[str, int],
    sizes: list[int],
    files: list[int],
    groups: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(parquet, name, value)
    with TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        for number, size in enumerate(sizes):
            writer.write(problems(size, sum(sizes[:number]), 6_000 if "ROW_GROUP_BYTES" in bounds else 3))
    expected = [(f"part-{number:05}.parquet", rows) for number, rows in enumerate(files)]
    assert [(path.name, rows) for path, rows, _ in writer.files] == expected
    assert read([path.path for path, _, _ in writer.files]) == list(range(sum(sizes)))
    metadata = pq.ParquetFile(writer.files[0][0].path).metadata
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == groups


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_written_as_wanted(table: str, tmp_path: Path) -> None:
    row: dict[str, Any] = dict.fromkeys(TABLES[table].names)
    with TableWriter(table, open_own_folder(tmp_path), "part") as writer:
        writer.write(pa.RecordBatch.from_pylist([row, row], schema=TABLES[table]))
    file = pq.ParquetFile(writer.files[0][0].path)
    assert file.schema_arrow.equals(TABLES[table])
    group = file.metadata.row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        large = column.path_in_schema in {"key", "value", "request_body", "response_body", "detail"}
        assert column.is_stats_set != large, column.path_in_schema


def test_files_are_private_and_overwrite_none(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with TableWriter("problems", open_own_folder(tmp_path), "own") as writer:
            writer.write(problems(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(writer.files[0][0].path.stat().st_mode) == 0o600
    (tmp_path / "part-00000.parquet").write_text("mine")
    with pytest.raises(FileExistsError), TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        writer.write(problems(1))
    assert (tmp_path / "part-00000.parquet").read_text() == "mine"


def records(values: list[bytes]) -> pa.RecordBatch:
    rows = [{"offset": place, "value": value} for place, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=TABLES["records"])


def test_repeated_values_are_stored_once(tmp_path: Path) -> None:
    repeated = [os.urandom(1000) for _ in range(500)] * 4
    unique = [os.urandom(1000) for _ in range(2000)]
    sizes = []
    for name, values in (("repeated", repeated), ("unique", unique)):
        with TableWriter("records", open_own_folder(tmp_path), name) as writer:
            writer.write(records(values))
        ((path, _, size),) = writer.files
        file = pq.ParquetFile(path.path)
        assert file.read(["value"])["value"].to_pylist() == values
        group = file.metadata.row_group(0)
        columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
        assert columns["value"].statistics is None
        assert columns["offset"].has_dictionary_page
        sizes.append(size)
    assert sizes[0] < sizes[1] / 3


def test_a_dictionary_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "DICTIONARY_BYTES", 100_000)
    values = [os.urandom(1000) for _ in range(500)] * 4
    with TableWriter("records", open_own_folder(tmp_path), "part") as writer:
        writer.write(records(values))
    ((path, _, size),) = writer.files
    assert pq.read_table(path.path, columns=["value"])["value"].to_pylist() == values
    assert size > 1_000_000


def test_a_value_is_looked_up_in_its_row_group_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DuckDB sees it: names in each group are between those of the others."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    rows = [{"connection_id": row % 10, "client_id": f"client-{row % 10}-{row // 10}"} for row in range(30)]
    with TableWriter("exchanges", open_own_folder(tmp_path), "part") as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=TABLES["exchanges"]))
    found = duckdb.execute(
        "SELECT row_group_id FROM parquet_bloom_probe(?, 'client_id', 'client-7-1') WHERE NOT bloom_filter_excludes",
        [str(tmp_path / "part-00000.parquet")],
    )
    assert found.fetchall() == [(1,)]
