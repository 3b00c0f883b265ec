"""Numbers in few bytes: what goes in comes out, and sorts as before."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from kafkasniff.browse import packed_columns
from kafkasniff.browse.packed_columns import PackedColumn, in_one_block, order_of, pack, sort_keys

MISSING = -(1 << 63)
HIGHEST = (1 << 63) - 1
COLUMNS: dict[str, list[int]] = {
    "empty": [],
    "one": [7],
    "equal": [5, 5, 5],
    "bytes": [0, 254, 3, 17],
    "words": [-300, 40_000, 1, 1],
    "microseconds": [1_700_000_000_000_000_000, 1_700_000_000_900_000_000, 1_700_000_000_000_001_000],
    "nanoseconds": [1_700_000_000_000_000_000, 1_700_000_000_900_000_001, 1_700_000_000_000_000_002],
    "some missing": [MISSING, 1_700_000_000_000_000_000, MISSING, 1_700_000_000_900_000_000],
    "all missing": [MISSING, MISSING],
    "steady": [1_700_000_000_000_000_000 + 5_000_000_007 * one + one * one % 7 for one in range(9)],
    "steady, some missing": [
        MISSING,
        10_000_000_003,
        MISSING,
        30_000_000_001,
        40_000_000_000,
        MISSING,
        60_000_000_000,
        MISSING,
    ],
    "falling": [60_000_000_000, 40_000_000_003, 20_000_000_001, 0],
    "from end to end": [MISSING + 1 + (1 << 62) * one for one in range(4)],
    "ends": [HIGHEST, MISSING + 1, 0, -1],
}


def column(name: str) -> np.ndarray:
    return np.array(COLUMNS[name], np.int64)


@pytest.mark.parametrize("missing", [None, MISSING, -1])
@pytest.mark.parametrize("name", COLUMNS)
def test_numbers_come_back(name: str, missing: int | None) -> None:
    packed = pack(column(name), missing)
    assert packed.numbers().tolist() == COLUMNS[name]
    assert [packed.at(place) for place in range(len(COLUMNS[name]))] == COLUMNS[name]
    for number in [*COLUMNS[name], 4, -1, MISSING, HIGHEST, 1_700_000_000_000_000_500]:
        assert packed.equal_to(number).tolist() == [one == number for one in COLUMNS[name]], number


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("equal", 1), ("bytes", 1), ("words", 2), ("microseconds", 4),
        ("nanoseconds", 4), ("some missing", 4), ("ends", 8),
        ("steady", 4), ("steady, some missing", 4), ("falling", 4), ("from end to end", 4),
    ],
)  # fmt: skip
def test_bytes_of_a_number(name: str, size: int) -> None:
    assert pack(column(name), MISSING).values.itemsize == size


def pairs() -> Iterator[tuple[str, str]]:
    return ((one, other) for one, other in product(COLUMNS, repeat=2) if not {"ends", "from end to end"} & {one, other})


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("one", "other"), pairs())
def test_order_of_chunks(one: str, other: str, descending: bool) -> None:
    whole = COLUMNS[one] + COLUMNS[other]
    keys, top = sort_keys(
        [pack(column(one), MISSING), PackedColumn(np.zeros(0, np.uint8)), pack(column(other), MISSING)]
    )
    assert top == max(keys.tolist(), default=0)
    places = sorted(range(len(whole)), key=lambda place: whole[place], reverse=descending)
    assert order_of(keys, top, descending=descending).tolist() == places


@pytest.mark.parametrize("descending", [False, True])
def test_large_keys_keep_the_order_of_places(descending: bool) -> None:
    keys = [1 << 63, 5, 1 << 63, 5, 0]
    places = sorted(range(5), key=lambda place: keys[place], reverse=descending)
    assert order_of(np.array(keys, np.uint64), 1 << 63, descending=descending).tolist() == places


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("swaps", [0, 3, 3000])
@pytest.mark.parametrize("block", [7, 1 << 16])
def test_order_of_many(swaps: int, descending: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are merged if they are long, and sorted otherwise."""
    monkeypatch.setattr(packed_columns, "BLOCK", block)
    rng = np.random.default_rng(1)
    numbers = np.sort(rng.integers(0, 4000, 10_000))
    for at in rng.integers(0, 9000, swaps).tolist():
        numbers[at : at + 1000] = np.roll(numbers[at : at + 1000], 300)
    keys, top = sort_keys([pack(numbers[:6000], None), pack(numbers[6000:], None)])
    places = sorted(range(len(numbers)), key=lambda place: numbers[place], reverse=descending)
    assert order_of(keys, top, descending=descending).tolist() == places


@pytest.mark.parametrize("names", [[*COLUMNS], ["equal", "all missing"], ["nanoseconds", "bytes", "words"]])
def test_columns_in_one_block(names: list[str]) -> None:
    packed = {name: pack(column(name), MISSING) for name in names}
    moved = in_one_block(packed)
    assert [*moved] == names
    blocks = set()
    for name, one in moved.items():
        assert one.numbers().tolist() == COLUMNS[name]
        if one.values.strides == (0,):
            assert one is packed[name]
        else:
            block = one.values.base.obj
            assert isinstance(block, mmap.mmap)
            assert one.values.flags.aligned
            blocks.add(id(block))
    assert len(blocks) == any(one.values.strides != (0,) for one in packed.values())


def test_keys_by_rank() -> None:
    parts = [pack(np.array(numbers), None) for numbers in ([2, 0, 2], [1], [])]
    keys, top = sort_keys(parts, np.array([5, 9, 7], np.int32))
    assert (keys.tolist(), top) == ([7, 5, 7, 9], 9)
