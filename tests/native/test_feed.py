"""The memory layout that Python and the kernel share."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kafkasniff.native.feed import COLUMNS, CONNECTION, HELD, MESSAGE, RECENT, WAITING, FeedCall, packing
from kafkasniff.tcp.packets import PacketBatch


def _flat(value: object) -> list[int]:
    """The numbers of a row, however they are nested."""
    if isinstance(value, tuple | list | np.ndarray | np.void):
        return [number for part in value for number in _flat(part)]
    assert isinstance(value, int | np.integer)
    return [int(value)]


@pytest.mark.parametrize("dtype", [CONNECTION, WAITING, HELD, MESSAGE])
def test_packing_reads_and_writes_the_numbers_of_a_row(dtype: np.dtype[np.void]) -> None:
    generator = np.random.default_rng(7)
    packed = packing(dtype)
    assert packed.size == dtype.itemsize
    row = np.frombuffer(generator.bytes(dtype.itemsize), dtype)[0]
    numbers = packed.unpack(row.tobytes())
    assert list(numbers) == _flat(row.item())
    # Padding aside, the same bytes.
    again = np.frombuffer(packed.pack(*numbers), dtype)[0]
    assert again == row


def test_packing_of_padding_in_the_middle_and_at_the_end() -> None:
    dtype = np.dtype([("small", np.uint8), ("large", np.int64, (2,)), ("last", np.uint16)], align=True)
    packed = packing(dtype)
    assert packed.unpack(packed.pack(1, -2, 3, 4)) == (1, -2, 3, 4)
    assert packed.pack(1, -2, 3, 4)[:16] == b"\1" + bytes(7) + b"\xfe" + b"\xff" * 7
    assert packed.size == dtype.itemsize == 32


def test_fields_of_8_bytes_are_aligned() -> None:
    """Zig aligns them in structs that are `extern`."""
    for dtype in (CONNECTION, WAITING, HELD, MESSAGE):
        for name in dtype.names or ():
            field, offset = dtype.fields[name][:2]  # type: ignore[index]
            assert offset % min(field.base.alignment, 8) == 0, name
    assert CONNECTION["streams"].base["recent"].shape == (RECENT,)
    assert ctypes.sizeof(FeedCall) % 8 == 0


def test_every_column_is_one_of_a_batch() -> None:
    assert set(COLUMNS) <= set(PacketBatch.__annotations__)
    fields = [name for name, _ in FeedCall._fields_]
    assert fields[1 : 1 + len(COLUMNS)] == list(COLUMNS)
