"""Numbers in few bytes: what goes in comes out, and sorts as before."""

from __future__ import annotations

import mmap
from itertools import product

import numpy as np
import pytest

from kafkasniff.browse import packed_columns
from kafkasniff.browse.packed_columns import PackedColumn, in_one_block, order_of, pack, sort_keys

MISSING = -(1 << 63)
HIGHEST = (1 << 63) - 1
SECOND = 1_000_000_000
COLUMNS: dict[str, tuple[int | None, list[int]]] = {
    "empty": (None, []),
    "one": (None, [7]),
    "equal": (1, [5, 5, 5]),
    "bytes": (1, [0, 254, 3, 17]),
    "words": (2, [-300, 40_000, 1, 1]),
    "microseconds": (4, [1_700_000_000_000_000_000, 1_700_000_000_900_000_000, 1_700_000_000_000_001_000]),
    "nanoseconds": (4, [1_700_000_000_000_000_000, 1_700_000_000_900_000_001, 1_700_000_000_000_000_002]),
    "some missing": (4, [MISSING, 1_700_000_000_000_000_000, MISSING, 1_700_000_000_900_000_000]),
    "all missing": (None, [MISSING, MISSING]),
    "steady": (4, [1_700_000_000_000_000_000 + 5_000_000_007 * one + one * one % 7 for one in range(9)]),
    "steady, some missing": (
        4,
        [MISSING, 10 * SECOND + 3, MISSING, 30 * SECOND + 1, 40 * SECOND, MISSING, 60 * SECOND, MISSING],
    ),
    "falling": (4, [60 * SECOND, 40 * SECOND + 3, 20 * SECOND + 1, 0]),
    "from end to end": (4, [MISSING + 1 + (1 << 62) * one for one in range(4)]),
    "ends": (8, [HIGHEST, MISSING + 1, 0, -1]),
}
"""Bytes of each number, and the numbers."""


def column(name: str) -> np.ndarray:
    return np.array(COLUMNS[name][1], np.int64)


@pytest.mark.parametrize("name", COLUMNS)
def test_numbers_come_back(name: str) -> None:
    size, numbers = COLUMNS[name]
    assert size is None or pack(column(name), MISSING).values.itemsize == size
    for missing in (None, MISSING, -1):
        packed = pack(column(name), missing)
        assert packed.numbers().tolist() == numbers
        assert [packed.at(place) for place in range(len(numbers))] == numbers
        for number in [*numbers, 4, -1, MISSING, HIGHEST, 1_700_000_000_000_000_500]:
            assert packed.equal_to(number).tolist() == [one == number for one in numbers], (missing, number)


def test_order_of_chunks() -> None:
    for one, other in product(COLUMNS, repeat=2):
        if {"ends", "from end to end"} & {one, other}:
            continue
        whole = COLUMNS[one][1] + COLUMNS[other][1]
        empty = PackedColumn(np.zeros(0, np.uint8))
        keys, top = sort_keys([pack(column(one), MISSING), empty, pack(column(other), MISSING)])
        assert top == max(keys.tolist(), default=0), (one, other)
        for descending in (False, True):
            places = sorted(range(len(whole)), key=lambda place: whole[place], reverse=descending)
            assert order_of(keys.copy(), top, descending=descending).tolist() == places, (one, other)


@pytest.mark.parametrize("swaps", [0, 3, 3000])
@pytest.mark.parametrize("block", [7, 1 << 16])
def test_order_of_many(swaps: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are merged if they are long, and sorted otherwise."""
    monkeypatch.setattr(packed_columns, "BLOCK", block)
    rng = np.random.default_rng(1)
    numbers = np.sort(rng.integers(0, 4000, 10_000))
    for at in rng.integers(0, 9000, swaps).tolist():
        numbers[at : at + 1000] = np.roll(numbers[at : at + 1000], 300)
    keys, top = sort_keys([pack(numbers[:6000], None), pack(numbers[6000:], None)])
    for descending in (False, True):
        places = sorted(range(len(numbers)), key=lambda place: numbers[place], reverse=descending)
        assert order_of(keys.copy(), top, descending=descending).tolist() == places


@pytest.mark.parametrize("names", [[*COLUMNS], ["equal", "all missing"], ["nanoseconds", "bytes", "words"]])
def test_columns_in_one_block(names: list[str]) -> None:
    packed = {name: pack(column(name), MISSING) for name in names}
    moved = in_one_block(packed)
    assert [*moved] == names
    blocks = set()
    for name, one in moved.items():
        assert one.numbers().tolist() == COLUMNS[name][1]
        if one.values.strides == (0,):
            assert one is packed[name]
        else:
            block = one.values.base.obj
            assert isinstance(block, mmap.mmap)
            assert one.values.flags.aligned
            blocks.add(id(block))
    assert len(blocks) == any(one.values.strides != (0,) for one in packed.values())
