"""Whole rows of structured arrays: the same as numpy's own copies and concatenations."""

import numpy as np

from kafkasniff.native.exchanges import ROW
from kafkasniff.native.feed import MESSAGE
from kafkasniff.native.rows import copied, grown, joined


def test_a_copy_has_the_same_rows_and_its_own_memory() -> None:
    rows = np.zeros(5, ROW)
    rows["records"], rows["values"] = range(5), np.arange(5 * 8).reshape(5, 8)
    found = copied(rows[1:4])
    assert found.dtype == ROW
    assert found.tobytes() == rows[1:4].tobytes()
    rows["records"] = 9
    assert found["records"].tolist() == [1, 2, 3]


def test_joined_rows_follow_each_other() -> None:
    parts = [np.zeros(count, MESSAGE) for count in (2, 0, 3)]
    for number, part in enumerate(parts):
        part["order"], part["latency"] = np.arange(len(part)) + 10 * number, -number
    found = joined(parts)
    assert found.dtype == MESSAGE
    assert found.tolist() == np.concatenate(parts).tolist()
    assert joined(parts[:1]) is parts[0]


def test_rows_grow_as_needed() -> None:
    rows = np.zeros(2, MESSAGE)
    rows["order"] = 7, 8
    assert grown(rows, 1, 64) is rows
    assert grown(rows, 2, 64)["order"].tolist() == [7, 8, *[0] * 62]
    assert len(grown(rows, 100, 64)) > 100
