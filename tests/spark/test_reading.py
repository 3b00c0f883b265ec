"""What one task of Spark reads: groups of bounded size and number."""

from __future__ import annotations

from kafkasniff.spark.reading import MOST_PER_TASK, grouped


def sizes(*items: int, limit: int = 100) -> list[list[int]]:
    return grouped(items, lambda item: item, limit)


def test_neighbours_share_a_task_up_to_the_limit() -> None:
    assert sizes(40, 60, 1, 99, 100) == [[40, 60], [1, 99], [100]]
    assert sizes(500, 1, 500) == [[500], [1], [500]]
    assert sizes() == []


def test_many_small_files_are_several_tasks() -> None:
    groups = sizes(*[0] * 10_000)
    assert len(groups) == -(-10_000 // MOST_PER_TASK)
    assert max(map(len, groups)) == MOST_PER_TASK
