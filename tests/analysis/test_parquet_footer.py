"""Footers are read as Arrow reads them; the footer passed to Arrow has nothing optional in it."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.parquet_footer import MAX_NAME, MAX_SCHEMA_DEPTH, Footer, list_of, number, structure, text
from kafkasniff.analysis.table_file import RowSelection

ROWS = 700
TABLE = pa.table(
    {
        "time_ns": pa.array(range(1000, 1000 + ROWS)),
        "api": pa.array([f"api-{order // 100}" for order in range(ROWS)]),
        "nested": pa.array([[{"key": "a", "value": b"x"}], []] * (ROWS // 2)),
        "none": pa.nulls(ROWS, pa.int64()),
    }
)


def footer_of(data: bytes) -> tuple[bytes, bytes]:
    """The bytes before a footer, and the footer."""
    size = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - size], data[-8 - size : -8]


def with_footer(pages: bytes, footer: bytes) -> bytes:
    return pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


@pytest.fixture(scope="module")
def file() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=100, compression="zstd")
    return sink.getvalue()


@pytest.fixture(scope="module")
def footer(file: bytes) -> Footer:
    return Footer(footer_of(file)[1])


def test_contents_match_what_arrow_reads(file: bytes, footer: Footer) -> None:
    metadata = pq.ParquetFile(io.BytesIO(file)).metadata
    assert (footer.groups, len(footer.leaves)) == (metadata.num_row_groups, metadata.num_columns) == (7, 5)
    for group in range(footer.groups):
        assert footer.rows(group) == metadata.row_group(group).num_rows
        for leaf in footer.leaves:
            chunk, known = footer.chunk(group, leaf), metadata.row_group(group).column(leaf.place)
            assert leaf.path == known.path_in_schema
            assert (chunk.values, chunk.plain_size) == (known.num_values, known.total_uncompressed_size)
            assert (chunk.data_at, chunk.stored_size) == (known.data_page_offset, known.total_compressed_size)
            assert chunk.dictionary_at == known.dictionary_page_offset
        least, largest = (metadata.row_group(group).column(0).statistics.min + 0, 1099 + group * 100)
        assert footer.integers(group, "time_ns") == (least, largest) == (1000 + group * 100, 1099 + group * 100)
        assert footer.texts(group, "api") == (f"api-{group}".encode(), f"api-{group}".encode())
        assert footer.integers(group, "none") is None
        assert footer.texts(group, "nested") is footer.texts(group, "missing") is None


@pytest.mark.parametrize("names", [None, {"time_ns"}, {"nested", "api"}])
@pytest.mark.parametrize("groups", [range(7), [2, 5], []])
def test_a_rewritten_footer(names: set[str] | None, groups: list[int], file: bytes, footer: Footer) -> None:
    """The same rows, and no statistics."""
    made = with_footer(footer_of(file)[0], footer.rewritten(names, groups))
    expected = pa.concat_tables([TABLE.slice(group * 100, 100) for group in groups] or [TABLE.slice(0, 0)])
    found = pq.ParquetFile(io.BytesIO(made))
    wanted = [name for name in TABLE.column_names if names is None or name in names]
    assert found.read().equals(expected.select(wanted))
    for group in range(len(groups)):
        for place in range(found.metadata.num_columns):
            column = found.metadata.row_group(group).column(place)
            assert not column.is_stats_set
            assert {column.has_offset_index, column.has_column_index, column.is_geo_stats_set} == {False}
            assert column.metadata is None
    assert found.metadata.metadata is None


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (RowSelection(), range(7)),
        (RowSelection(None, 1100, 1299), [1, 2]),
        (RowSelection(None, 1099, None), range(7)),
        (RowSelection(None, None, 999), []),
        (RowSelection(["api-3", "api-9"]), [3]),
        (RowSelection(["api-3"], 1400, None), []),
        (RowSelection([]), []),
        (RowSelection(None, 1_000_000, 1_099_999, exact=False), range(7)),
    ],
)
def test_row_groups_that_can_have_selected_rows(selection: RowSelection, expected: list[int], footer: Footer) -> None:
    """The last case: a file without the column `time`."""
    assert [group for group in range(7) if selection.can_match(footer, group)] == list(expected)


def test_microseconds_are_rounded_down() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"time": pa.array([5, 9], pa.timestamp("us", tz="UTC"))}), sink)
    footer = Footer(footer_of(sink.getvalue())[1])
    for since, until, expected in (
        (9_999, None, True),
        (10_000, None, False),
        (None, 5_000, True),
        (None, 4_999, False),
    ):
        assert RowSelection(None, since, until, exact=False).can_match(footer, 0) is expected


def element(name: bytes, kind: int | None = 2, children: int | None = None, repetition: int = 1) -> tuple[int, bytes]:
    fields = {} if kind is None else {1: number(kind, 32)}
    fields |= {3: number(repetition, 32), 4: text(name)}
    return structure(fields if children is None else {**fields, 5: number(children, 32)})


def made(*elements: tuple[int, bytes], groups: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    return structure({1: number(2, 32), 2: list_of(elements), 3: number(0), 4: list_of(groups)})[1]


ROOT = element(b"schema", None, 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0", "lacks the elements"),
        # Thrift's compact protocol: what is too long, too deep or of another type.
        (b"\x49\x1c\x36" + b"\xff" * 10 + b"\x7f\0\0", "too long"),
        (b"\x49\x1c\x36" + b"\xff" * 9 + b"\x7f\0\0", "too long"),
        (b"\x49\x1c\x35\x80\x80\x80\x80\x20\0\0", "more than 32 bits"),
        (b"\x49\x1c\x31\0\0", "field 3 has type 1"),
        (b"\x15\2\x19\x25\2\4\0", "a list has elements of type 5"),
        (b"\x15\2\x58\xff\xff\xff\xff\x0f\0", "truncated"),
        (b"\x15\2\x59\xf5\xff\xff\xff\xff\x0f\0", "truncated"),
        (b"\x05\1\2\0", "no field -1"),
        (b"\x10", "no type 0"),
        (b"\x1b\1\x85\1a\2\0", "lacks the elements"),  # a map
        (b"\x1b\0\0", "lacks the elements"),
        (b"\x1b\xff\xff\xff\xff\x0f\x85", "truncated"),
        (b"\x1d\0", "no type 13"),
        (b"\x5c" + b"\x1c" * 1000, "levels deep"),
        (b"\x59\x19" + b"\x19" * 5000, "levels deep"),
        (made(), "is invalid"),
        (made(ROOT), "truncated"),
        (made(ROOT, element(b"a"), element(b"b")), "schema is invalid"),
        (made(ROOT, element(b"a", None)), "element a of its schema is invalid"),
        (made(ROOT, element(b"a", 2, 1), element(b"b")), "element a of its schema is invalid"),
        (made(ROOT, element(b"a", 9)), "type 9"),
        (made(ROOT, element(b"a", repetition=3)), "is invalid"),
        (made(ROOT, element(b"a" * (MAX_NAME + 1))), f"more than {MAX_NAME} bytes"),
        (made(ROOT, element(b"\xff")), "invalid start byte"),
        (made(ROOT, *[element(b"a", None, 1)] * MAX_SCHEMA_DEPTH, element(b"b")), f"more than {MAX_SCHEMA_DEPTH}"),
        (made(element(b"schema", None, -1)), "has -1 children"),
        (made(element(b"schema", None, 2), element(b"a"), element(b"a")), "two columns a"),
        (made(element(b"schema", None, 5000), *[element(b"a")] * 5000), "5001 elements of its schema, more than 4096"),
        (made(ROOT, element(b"a"), groups=(structure({3: number(1)}),)), "1 rows and 0 of 1 columns"),
        (made(ROOT, element(b"a"), groups=(structure({3: number(-1)}),)), "has -1 rows"),
        (made(ROOT, element(b"a"), groups=(structure({}),) * 5000), "5000 row groups, more than 4096"),
    ],
)
def test_invalid_footers(data: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Footer(data)


def one_chunk(file_path: bytes = b"", **changed: int) -> Footer:
    """The statistics of a column of three 64-bit integers."""
    fields = {"type": 2, "codec": 6, "values": 3, "plain": 50, "stored": 40, "data_at": 4, **changed}
    kinds = {
        "type": (1, 32),
        "codec": (4, 32),
        "values": (5, 64),
        "plain": (6, 64),
        "stored": (7, 64),
        "data_at": (9, 64),
    }
    meta = structure({kinds[name][0]: number(value, kinds[name][1]) for name, value in fields.items()})
    chunk = structure({1: text(file_path), 3: meta})
    group = structure({1: list_of([chunk]), 2: number(50), 3: number(3)})
    return Footer(made(ROOT, element(b"a"), groups=(group,)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"file_path": b"x"}, "in another file"),
        ({"codec": 5}, "compressed with LZ4,"),
        ({"codec": 99}, "compressed with 99,"),
        ({"type": 1}, "has type 1, but 2 in the schema"),
        ({"values": 4}, "4 values in 3 rows"),
        ({"values": 2}, "2 values in 3 rows"),
        ({"plain": -1}, "invalid size or offset"),
        ({"stored": 1 << 62}, "invalid size or offset"),
        ({"data_at": -5}, "invalid size or offset"),
    ],
)
def test_an_invalid_chunk(changed: dict[str, int], expected: str) -> None:
    footer = one_chunk(**changed)  # type: ignore[arg-type]  # bytes for one of them
    with pytest.raises(ValueError, match=expected):
        footer.chunk(0, footer.leaves[0])


def test_invalid_statistics(file: bytes) -> None:
    data = footer_of(file)[1]
    value = struct.pack("<q", 1000)
    assert value in data
    with pytest.raises(ValueError, match="statistics from 72057594037928936 to 1099"):
        Footer(data.replace(value, value[:7] + b"\1")).integers(0, "time_ns")
    with pytest.raises(ValueError, match="not 64-bit integers"):
        Footer(data).integers(0, "api")


def test_fields_are_written_in_order() -> None:
    with pytest.raises(ValueError, match="field 1 cannot follow field 2"):
        structure({2: number(1), 1: number(1)})
