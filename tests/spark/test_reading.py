"""What one task of Spark reads: groups that cost about the same."""

from __future__ import annotations

from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.reading import FILE_BYTES, MAX_PARTS, grouped, split_bytes

MB = 1 << 20


def sizes(*items: int, limit: int) -> list[list[int]]:
    return grouped(items, lambda item: item, limit)


def test_neighbours_share_a_task_up_to_the_limit() -> None:
    assert sizes(40, 60, 1, 99, 100, limit=100) == [[40, 60], [1, 99], [100]]
    assert sizes(500, 1, 500, limit=100) == [[500], [1], [500]]
    assert sizes(limit=100) == []


def test_many_small_files_are_several_tasks() -> None:
    for limit in (64 << 10, SPLIT_BYTES):
        groups = sizes(*[0] * 10_000, limit=limit)
        assert len(groups) == -(-10_000 * FILE_BYTES // SPLIT_BYTES)
        assert max(map(len, groups)) == SPLIT_BYTES // FILE_BYTES
    assert len(sizes(*[0] * 10_000, limit=4 * SPLIT_BYTES)) == -(-10_000 * FILE_BYTES // (4 * SPLIT_BYTES))


def test_each_file_costs_as_much_as_some_bytes() -> None:
    # Two files of 126 MB together, and twice the cost of a file.
    assert sizes(60 * MB, SPLIT_BYTES - 62 * MB, limit=SPLIT_BYTES) == [[60 * MB, SPLIT_BYTES - 62 * MB]]
    assert sizes(60 * MB, SPLIT_BYTES - 61 * MB, limit=SPLIT_BYTES) == [[60 * MB], [SPLIT_BYTES - 61 * MB]]
    assert FILE_BYTES == MB


def test_terabytes_are_read_in_larger_splits() -> None:
    """The driver's work grows with the number of tasks."""
    assert split_bytes(0) == split_bytes(MAX_PARTS * SPLIT_BYTES) == SPLIT_BYTES
    assert split_bytes(10**13) > 9 * SPLIT_BYTES
    files = [100 * 10**6] * 100_000
    assert MAX_PARTS <= len(sizes(*files, limit=split_bytes(sum(files)))) < MAX_PARTS * 6 // 5
