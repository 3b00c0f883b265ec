"""Malicious Parquet: the memory that a file claims is added up before it is allocated."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis import TableReading, table_file
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.table_file import RowSelection, TableFile
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.runtime.confined_files import open_any_folder
from kafkasniff.runtime.object_store import LocalFile
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows.schemas import EXCHANGES, PARTITION
from tests.choice import fewer

PATH = "exchanges/date=2026-11-21/part-00001-00000.parquet"


def export_of(folder: Path, table: pa.Table | None = None, **options: Any) -> Path:
    """An export with one file, whose unnamed columns are null. Returns the file."""
    path = folder / PATH
    path.parent.mkdir(parents=True)
    reported = {"format": "kafkasniff-export", "schema_version": 1}
    tables = {"exchanges": {"rows": 1, "files": [{"path": PATH, "rows": 1}]}}
    (folder / "manifest.json").write_text(json.dumps({**reported, "tables": tables}))
    if table is not None:
        pq.write_table(table, path, store_schema=False, **{"compression": "zstd", "row_group_size": 1 << 22, **options})
    return path


def exchanges(rows: int, **given: pa.Array) -> pa.Table:
    columns = {field.name: given.get(field.name, pa.nulls(rows, field.type)) for field in EXCHANGES}
    return pa.table(columns)


def repeated(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def read(folder: Path, *columns: str) -> list[pa.RecordBatch]:
    return list(Export.open(str(folder)).batches("exchanges", TableReading(columns)))


def test_a_long_text_repeated_by_a_dictionary(tmp_path: Path) -> None:
    """A few kilobytes that expand to 40 GB, in as many rows or in lists of one row."""
    values = repeated("x" * 200_000, 200_000)
    topics = pa.ListArray.from_arrays(pa.array([0, 200_000], pa.int32()), values)
    export_of(tmp_path / "lists", exchanges(1, topics=topics))
    path = export_of(tmp_path, exchanges(200_000, client_id=values))
    assert path.stat().st_size < 100_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CaptureError, match=r"row group 0 takes 400\d+ bytes of memory, more than 1073741824"):
        read(tmp_path, "client_id")
    with pytest.raises(CaptureError, match="row group 0 takes 400"):
        read(tmp_path / "lists", "topics")
    assert pa.default_memory_pool().max_memory() - before < 64 << 20
    assert sum(map(len, read(tmp_path, "api"))) == 200_000


@pytest.mark.parametrize(("column", "enough"), [("topics", 2 << 20), ("partitions", 4 << 20)])
def test_one_long_text_among_many(column: str, enough: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At worst all rows would have it; the indices show that only one does."""
    items = texts = pa.array(["x" * 100_000, *(["y"] * 9_999)]).dictionary_encode()
    if column == "partitions":
        fields = {field.name: pa.nulls(10_000, field.type) for field in PARTITION} | {"topic": texts}
        items = pa.StructArray.from_arrays([*fields.values()], [*fields])
    nested = pa.ListArray.from_arrays(pa.array(range(10_001), pa.int32()), items)
    export_of(tmp_path, exchanges(10_000, client_id=texts, **{column: nested}))
    monkeypatch.setattr(table_file, "MAX_GROUP_BYTES", enough)
    assert sum(map(len, read(tmp_path, "client_id", column))) == 10_000
    monkeypatch.setattr(table_file, "MAX_GROUP_BYTES", 700_000)
    with pytest.raises(CaptureError, match="more than 700000"):
        read(tmp_path, "client_id", column)


def test_a_page_that_claims_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "MAX_GROUP_BYTES", 1_000_000)
    size = 1 << 14  # a number of three bytes in the header
    text = repeated("x" * size, 1).dictionary_decode()
    path = export_of(tmp_path, exchanges(1, request_body=text), use_dictionary=False)
    group = pq.ParquetFile(path).metadata.row_group(0)
    places = {group.column(place).path_in_schema: place for place in range(group.num_columns)}
    at = group.column(places["request_body"]).data_page_offset
    data = bytearray(path.read_bytes())
    assert data[at : at + 3] == b"\x15\x00\x15", "PageHeader: type DATA_PAGE, then uncompressed_page_size"
    data[at + 3 : at + 6] = b"\xfe\xff\x7f"
    path.write_bytes(data)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CaptureError, match="request_body claim 1048575 bytes and 1 values, more than 1000000"):
        read(tmp_path, "request_body")
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_rows_of_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.analysis.table_file.MAX_GROUP_ROWS", 2)
    export_of(tmp_path, exchanges(3))
    with pytest.raises(CaptureError, match="has 3 rows, more than 2"):
        read(tmp_path, "api")


def test_a_footer_that_is_too_long(tmp_path: Path) -> None:
    path = export_of(tmp_path)
    for size, reported in (((64 << 20) + 1, "footer has 67108865 bytes"), (1 << 31, "not a Parquet file")):
        with path.open("wb") as stream:
            stream.truncate(70 << 20)
            stream.seek(0, os.SEEK_END)
            stream.write(size.to_bytes(4, "little") + b"PAR1")
        with pytest.raises(CaptureError, match=reported):
            read(tmp_path, "api")


@pytest.mark.parametrize("count", [5_000, 300_000])
def test_a_footer_of_many_tiny_structures(count: int, tmp_path: Path) -> None:
    """Row groups of one byte each: Arrow refuses a small footer, a large one is not passed to it."""
    size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
    footer = b"\x49\xfc" + size + bytes(count) + b"\0"
    export_of(tmp_path).write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(CaptureError, match="cannot read"):
        read(tmp_path, "api")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"use_dictionary": False, "column_encoding": {"client_id": "DELTA_BYTE_ARRAY"}}, "encoding 7, which exports"),
        ({"compression": "brotli"}, "compressed with BROTLI"),
    ],
)
def test_encodings_that_exports_lack(options: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Shared prefixes of values can have any length."""
    export_of(tmp_path, exchanges(3, client_id=pa.array(["x" * 1000] * 3)), **options)
    with pytest.raises(CaptureError, match=expected):
        read(tmp_path, "client_id")


def test_columns_of_other_types(tmp_path: Path) -> None:
    export_of(tmp_path, exchanges(1, client_id=pa.array([5])))
    with pytest.raises(CaptureError, match="its column client_id is int64, not string"):
        read(tmp_path, "client_id")


def test_a_deep_or_wide_schema(tmp_path: Path) -> None:
    deep: pa.DataType = pa.int64()
    for _ in range(200):
        deep = pa.struct([("a", deep)])
    export_of(tmp_path / "deep", pa.table({"api": pa.nulls(1, deep)}))
    with pytest.raises(CaptureError):
        read(tmp_path / "deep", "api")
    export_of(tmp_path / "wide", pa.table({f"c{number}": [1] for number in range(1025)}))
    with pytest.raises(CaptureError, match="1025 columns, more than 1024"):
        read(tmp_path / "wide", "c0")


def test_invalid_utf8(tmp_path: Path) -> None:
    text = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
    export_of(tmp_path, exchanges(1, client_id=text))
    with pytest.raises(CaptureError, match="Invalid UTF8"):
        read(tmp_path, "client_id")


def small(folder: Path) -> Path:
    columns = {"time_ns": range(50), "api": ["Fetch", "Produce"] * 25, "topics": [["a"], None] * 25}
    return export_of(folder, pa.table(columns))


@pytest.mark.parametrize("part", ["pages", "footer"])
def test_damage_anywhere(part: str, tmp_path: Path) -> None:
    """Any wrong byte yields rows or one of our exceptions; UsageError if it is in a column's name.

    A crash of Arrow would end the test run.
    """
    path = small(tmp_path)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    places = range(0, footer, fewer(5, 2)) if part == "pages" else range(footer, len(whole), fewer(7, 2))
    read_or_not = [0, 0]
    for place in places:
        for wrong in (0x00, 0xFF, 0x15)[: fewer(2, 3)]:
            path.write_bytes(whole[:place] + bytes([wrong]) + whole[place + 1 :])
            try:
                read(tmp_path, "time_ns", "api", "topics")
                Export.open(str(tmp_path)).start_ns()
                read_or_not[0] += 1
            except (CaptureError, UsageError):
                read_or_not[1] += 1
    assert min(read_or_not) > 5


def test_a_contradiction_that_crashes_arrow(tmp_path: Path) -> None:
    """A column that may not be null, with level statistics that only a nullable column has.

    If that column is read, pyarrow aborts the process with "Definition level histogram size mismatch".
    """
    path = small(tmp_path)
    whole = path.read_bytes()
    optional, required = (b"\x15\x04\x25" + repetition + b"\x18\x07time_ns" for repetition in (b"\2", b"\0"))
    assert whole.count(optional) == 1, "SchemaElement: type INT64, repetition_type OPTIONAL, name"
    path.write_bytes(whole.replace(optional, required))
    with pytest.raises(CaptureError, match="cannot read"):
        read(tmp_path, "time_ns")
    assert sum(map(len, read(tmp_path, "api"))) == 50


def test_arrow_has_released_a_file_when_its_reading_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error, early or with its last row: a thread that releases it while the process exits aborts that."""
    lent: list[weakref.ref[Any]] = []
    add = table_file._Lent.add

    def noted(self: Any, one: object) -> None:
        add(self, one)
        lent.append(weakref.ref(one))

    def read_some() -> None:
        rows = Export.open(str(tmp_path)).batches("exchanges", TableReading(("client_id", "api")))
        assert len(next(rows))
        rows.close()

    def read_damaged() -> None:
        with pytest.raises(CaptureError, match="cannot read"):
            read(tmp_path, "client_id")

    def check(reads: Callable[[], object], times: int) -> None:
        for _ in range(times):
            lent.clear()
            reads()
            assert len(lent) > 2
            assert not [one for one in lent if one() is not None]

    texts = pa.array([f"{number}" for number in range(50_000)])
    path = export_of(tmp_path, exchanges(50_000, client_id=texts), row_group_size=10_000)
    monkeypatch.setattr(table_file._Lent, "add", noted)
    check(read_some, fewer(5, 20))
    check(lambda: read(tmp_path, "client_id"), 1)
    whole = path.read_bytes()
    # The middle of a page, which can then not be decompressed.
    path.write_bytes(whole[:20_000] + bytes(200) + whole[20_200:])
    check(read_damaged, fewer(5, 20))


@pytest.mark.parametrize("name", ["manifest.json", PATH])
@pytest.mark.parametrize("kind", ["a FIFO", "a symbolic link"])
def test_only_files_of_the_folder_are_read(kind: str, name: str, tmp_path: Path) -> None:
    export_of(tmp_path, exchanges(1))
    (tmp_path / name).rename(tmp_path / "moved")
    if kind == "a FIFO":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(CaptureError, match=f"is {kind}, not a file"):
        read(tmp_path, "api")
    if name == PATH:
        with pytest.raises(CaptureError, match=f"is {kind}, not a file"):
            Export.open(str(tmp_path)).start_ns()


@pytest.mark.parametrize("table", TABLES)
def test_own_files_are_within_the_bounds(table: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({name: [None] for name in TABLES[table].names}, TABLES[table]), tmp_path / "file")
    file = TableFile(LocalFile((open_any_folder(tmp_path) / "file").open_to_read()), table)
    assert len(file.footer.leaves) < 100
    assert len(list(file.batches(TABLES[table].names, RowSelection(), file.schema))) == 1
    file.close()
