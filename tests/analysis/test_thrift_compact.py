"""Thrift's compact protocol: numbers by field; work and memory are bounded by the bytes present."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.thrift_compact import (
    MAX_NESTING,
    MAX_STRUCTS,
    CompactReader,
    FieldKind,
    Shape,
    list_of,
    number,
    structure,
    text,
)
from tests.choice import fewer


def test_contents_of_a_footer(tmp_path: Path) -> None:
    """As Arrow reads it: FileMetaData has the version in field 1 and the rows in field 3 (parquet.thrift)."""
    pq.write_table(pa.table({"a": list(range(1000)), "b": [["x"]] * 1000}), tmp_path / "file", row_group_size=300)
    data = (tmp_path / "file").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    reader = CompactReader(data[-8 - size : -8])
    found = reader.read(
        {
            1: FieldKind.NUMBER,
            2: FieldKind.PLACES,
            3: FieldKind.NUMBER,
            4: ({1: FieldKind.PLACES, 3: FieldKind.NUMBER},),
            6: FieldKind.TEXT,
        }
    )
    assert found[3] == 1000
    assert found[1] == 2
    assert [(len(group.fields[1]), group.fields[3]) for group in found[4]] == [(2, 300)] * 3 + [(2, 100)]
    assert found[6].startswith(b"parquet-cpp-arrow")
    names = [CompactReader(data[-8 - size : -8], place).read({4: FieldKind.TEXT})[4] for place in found[2]]
    assert names == [b"schema", b"a", b"b", b"list", b"element"]
    assert reader.at == size
    skipping = CompactReader(data[-8 - size : -8])
    assert skipping.read({}) == {}
    assert skipping.at == size
    for length, shape in (
        (length, shape) for length in range(0, size, fewer(7, 1)) for shape in ({}, {2: FieldKind.PLACES})
    ):
        with pytest.raises(ValueError, match="truncated"):
            CompactReader(data[-8 - size : -8][:length]).read(shape)


def test_values_of_all_types() -> None:
    data = bytes.fromhex("11 12 15 09 16 0a 17 0000000000000000 18 03 616263 19 2 5 02 04".replace(" 2 5 ", " 25 "))
    data += bytes.fromhex("1b 01 85 0161 02 1c 15 06 00 05 8002 01 00")
    reader = CompactReader(data)
    wanted = dict.fromkeys((3, 4, 128), FieldKind.NUMBER)
    assert reader.read({**wanted, 6: FieldKind.TEXT, 9: {1: FieldKind.NUMBER}}) == {
        3: -5,
        4: 5,
        6: b"abc",
        9: {1: 3},
        128: -1,
    }
    assert reader.at == len(data)
    skipping = CompactReader(data)
    assert skipping.read({}) == {}
    assert skipping.at == len(data)


@pytest.mark.parametrize(
    ("data", "shape", "expected"),
    [
        ("15 ffffffffffffffffffff7f 00", {1: FieldKind.NUMBER}, "too long"),
        ("16 ffffffffffffffffff7f 00", {1: FieldKind.NUMBER}, "too long"),
        ("15 8080808020 00", {1: FieldKind.NUMBER}, "more than 32 bits"),
        ("11 00", {1: FieldKind.NUMBER}, "field 1 has type 1"),
        ("15 02 00", {1: FieldKind.TEXT}, "field 1 has type 5"),
        ("15 02 00", {1: {}}, "field 1 has type 5"),
        ("1c 00 00", {1: FieldKind.PLACES}, "field 1 has type 12"),
        ("1c 00 00", {1: ({},)}, "field 1 has type 12"),
        ("19 25 02 04 00", {1: FieldKind.PLACES}, "list of type 5"),
        ("19 25 02 04 00", {1: ({},)}, "list of type 5"),
        ("18 05 61 00", {1: FieldKind.TEXT}, "truncated"),
        ("05 01 02 00", {}, "no field -1"),
        ("10", {}, "no type 0"),
        ("", {}, "truncated"),
        ("15", {}, "truncated"),
        ("18 ffffffff0f 00", {}, "truncated"),
        ("19 f5 ffffffff0f 00", {}, "truncated"),
        ("15" + "ff" * 20, {}, "truncated"),
        ("1d 00", {}, "no type 13"),
        ("1c" * 1000, {}, "levels deep"),
        ("1919" + "19" * 5000, {}, "levels deep"),
    ],
)
def test_invalid_bytes(data: str, shape: Shape, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        CompactReader(bytes.fromhex(data)).read(shape)


def test_written_values_are_read_back() -> None:
    numbers = {1: 0, 2: -1, 3: 63, 4: -64, 5: 64, 6: (1 << 63) - 1, 7: -(1 << 63)}
    inner = structure({field: number(value) for field, value in numbers.items()})
    _, data = structure({1: text(b"x" * 300), 2: inner, 3: list_of([inner] * 20), 4: list_of([]), 5: number(7, 32)})
    shape = dict.fromkeys(numbers, FieldKind.NUMBER)
    found = CompactReader(data).read(
        {1: FieldKind.TEXT, 2: shape, 3: (shape,), 4: FieldKind.PLACES, 5: FieldKind.NUMBER}
    )
    assert (found[1], found[2], found[4], found[5]) == (b"x" * 300, numbers, [], 7)
    assert [one.fields for one in found[3]] == [numbers] * 20
    assert {data[one.start : one.end] for one in found[3]} == {inner[1]}
    with pytest.raises(ValueError, match="field 1 cannot follow field 2"):
        structure({2: number(1), 1: number(1)})


def test_structures_are_counted() -> None:
    """One byte each, which would become a thousand in memory."""

    def read(count: int) -> int:
        size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
        return len(CompactReader(b"\x49\xfc" + size + bytes(count) + b"\0").read({4: FieldKind.PLACES})[4])

    assert read(MAX_STRUCTS - 1) == MAX_STRUCTS - 1
    with pytest.raises(ValueError, match=f"more than {MAX_STRUCTS} structures"):
        read(MAX_STRUCTS)
    assert MAX_NESTING < 100


def test_any_bytes() -> None:
    dice = random.Random(1)
    for _ in range(fewer(500, 2000)):
        data = dice.randbytes(dice.randrange(200))
        reader = CompactReader(data)
        try:
            reader.read({})
        except ValueError:
            continue
        assert reader.at <= len(data)
