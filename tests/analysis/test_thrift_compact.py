"""Thrift's compact protocol: numbers by field, and no work or memory beyond the bytes that are there."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.thrift_compact import MAX_NESTING, MAX_STRUCTS, CompactReader


def test_what_a_footer_says(tmp_path: Path) -> None:
    """As Arrow reads it: FileMetaData has the version in field 1 and the rows in field 3 (parquet.thrift)."""
    pq.write_table(pa.table({"a": list(range(1000)), "b": [["x"]] * 1000}), tmp_path / "file", row_group_size=300)
    data = (tmp_path / "file").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    reader = CompactReader(data[-8 - size : -8])
    found = reader.read()
    assert found[3] == 1000
    assert found[1] == 2
    assert reader.at == size
    for length in range(size):
        with pytest.raises(ValueError, match="cut"):
            CompactReader(data[-8 - size : -8][:length]).read()


def test_values_of_all_types() -> None:
    data = bytes.fromhex("11 12 15 09 16 0a 17 0000000000000000 18 03 616263 19 2 5 02 04".replace(" 2 5 ", " 25 "))
    data += bytes.fromhex("1b 01 85 0161 02 1c 15 06 00 05 8002 01 00")
    found = CompactReader(data).read()
    assert (found[1], found[2], found[3], found[4]) == (True, False, -5, 5)
    assert found[5] is found[6] is found[7] is found[8] is None
    assert found[9] == {1: 3}
    assert found[128] == -1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "cut"),
        (b"\x15", "cut"),
        (b"\x18\xff\xff\xff\xff\x0f\x00", "cut"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f\x00", "cut"),
        (b"\x15" + b"\xff" * 20, "too long"),
        (b"\x1d\x00", "no type 13"),
        (b"\x1c" * 1000, "in each other"),
        (b"\x19\x19" + b"\x19" * 5000, "in each other"),
    ],
)
def test_what_makes_no_sense(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        CompactReader(data).read()


def test_structures_are_counted() -> None:
    """A byte each; their reader would take a thousand."""
    count = MAX_STRUCTS - 1
    for more in (0, 1):
        size = bytearray()
        left = count + more
        while left >= 128:
            size.append(left & 127 | 128)
            left >>= 7
        size.append(left)
        data = b"\x49\xfc" + bytes(size) + bytes(count + more) + b"\0"
        if more:
            with pytest.raises(ValueError, match=f"more than {MAX_STRUCTS} structures"):
                CompactReader(data).read()
        else:
            assert CompactReader(data).read() == {4: None}
    assert MAX_NESTING < 100


def test_any_bytes() -> None:
    dice = random.Random(1)
    for _ in range(2000):
        data = dice.randbytes(dice.randrange(200))
        reader = CompactReader(data)
        try:
            reader.read()
        except ValueError:
            continue
        assert reader.at <= len(data)
