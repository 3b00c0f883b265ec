"""Files of a table: bounded, private, with useful statistics."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables import parquet
from kafkasniff.tables.parquet import TableWriter
from kafkasniff.tables.rows import EXCHANGES, PROBLEMS, TABLES


def problems(count: int, first: int = 0, size: int = 3) -> pa.RecordBatch:
    rows = [{"time_ns": first + place, "kind": "tcp-gap", "detail": "x" * size} for place in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=PROBLEMS)


def read(paths: list[Path]) -> list[Any]:
    return [row["time_ns"] for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    with TableWriter("problems", open_own_folder(tmp_path).below("a", "b"), "part") as writer:
        writer.write(problems(3))
        writer.write(problems(0))
        writer.write_all([problems(2, 3), problems(1, 5)])
    file = tmp_path / "a" / "b" / "part-00000.parquet"
    assert [(path.path, rows, size) for path, rows, size in writer.files] == [(file, 6, file.stat().st_size)]
    assert read([tmp_path / "a" / "b" / "part-00000.parquet"]) == list(range(6))


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    with TableWriter("problems", open_own_folder(tmp_path) / "none", "part") as writer:
        writer.write(problems(0))
    assert writer.files == []
    assert not (tmp_path / "none").exists()


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(parquet, "FILE_BYTES", 1)
    with TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        for first in range(0, 25, 5):
            writer.write(problems(5, first))
    assert [(path.name, rows) for path, rows, _ in writer.files] == [
        ("part-00000.parquet", 10),
        ("part-00001.parquet", 10),
        ("part-00002.parquet", 5),
    ]
    assert read([path.path for path, _, _ in writer.files]) == list(range(25))


def test_footers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that compress to almost nothing would never fill a file, but would fill its footer."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    monkeypatch.setattr(parquet, "ROW_GROUPS", 3)
    with TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        for first in range(0, 14, 2):
            writer.write(problems(2, first))
    assert [rows for _, rows, _ in writer.files] == [6, 6, 2]
    assert read([path.path for path, _, _ in writer.files]) == list(range(14))


def test_row_groups_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    with TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        for first, count in ((0, 7), (7, 7), (14, 23)):
            writer.write(problems(count, first))
    metadata = pq.ParquetFile(writer.files[0][0].path).metadata
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups == [10, 10, 10, 7]
    assert read([path.path for path, _, _ in writer.files]) == list(range(37))


def test_row_groups_are_bounded_in_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    with TableWriter("problems", open_own_folder(tmp_path), "rows") as writer:
        writer.write(problems(25))
    file = pq.ParquetFile(writer.files[0][0].path)
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [10, 10, 5]
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    with TableWriter("problems", open_own_folder(tmp_path), "bytes") as writer:
        for first in range(4):
            writer.write(problems(1, first, 6_000))
    file = pq.ParquetFile(writer.files[0][0].path)
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [2, 2]


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


def test_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
            writer.write(problems(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(writer.files[0][0].path.stat().st_mode) == 0o600


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_text("mine")
    with pytest.raises(FileExistsError), TableWriter("problems", open_own_folder(tmp_path), "part") as writer:
        writer.write(problems(1))
    assert (tmp_path / "part-00000.parquet").read_text() == "mine"


def test_an_exception_is_passed_on(tmp_path: Path) -> None:
    def interrupted() -> None:
        with TableWriter("exchanges", open_own_folder(tmp_path), "part") as writer:
            writer.write(pa.RecordBatch.from_pylist([dict.fromkeys(EXCHANGES.names)], schema=EXCHANGES))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def records(values: list[bytes]) -> pa.RecordBatch:
    rows = [{"offset": place, "value": value} for place, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=TABLES["records"])


def test_repeated_values_are_stored_once_and_others_without_a_dictionary(tmp_path: Path) -> None:
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
        assert columns["value"].has_dictionary_page is (name == "repeated")
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
