"""Which rows are shuffled before stage 2, and into how many parts."""

from __future__ import annotations

from random import Random

import pytest

from kafkasniff.spark.division import LARGE_PART, SMALL_PART, ShardPlan, ShardSize, plan_parts

MB = 1 << 20


def test_which_shards_stay() -> None:
    """Only their rows in sessions are shuffled, which together are less than a shard."""
    usual = [ShardSize(shard, 100 * MB, 0) for shard in range(4)]
    sessions = [ShardSize(shard, 100 * MB, 10 * MB) for shard in range(4)]
    for sizes, parts in ((usual, 0), (sessions, 1), ([ShardSize(0, 0, 0), ShardSize(1, 1000, 0)], 0)):
        plans, found = plan_parts(sizes, 2)
        assert found == parts
        assert plans[-1].stays
        assert {(plan.first, plan.parts) for plan in plans if plan.parts} <= {(0, 1)}


def test_large_shards_are_divided_and_small_ones_put_together() -> None:
    """Even one among others: it would take longer than all others beside one another."""
    plans, parts = plan_parts([ShardSize(0, 90 * MB, 0), ShardSize(1, 1000 * MB, 0)], 2)
    assert [plan.stays for plan in plans] == [True, False]
    assert plans[1].parts == parts == 4
    sizes = [ShardSize(shard, 10_000 * MB if shard == 50 else 400 * MB, 0) for shard in range(100)]
    plans, parts = plan_parts(sizes, 2)
    assert [plan.shard for plan in plans if not plan.stays] == [50]
    assert parts == -(-10_000 * MB // LARGE_PART)
    plans, parts = plan_parts([ShardSize(shard, SMALL_PART // 10, 0) for shard in range(30)], 2)
    assert not any(plan.stays for plan in plans)
    assert parts == 3
    assert [plan.first for plan in plans] == sorted(plan.first for plan in plans)


@pytest.mark.parametrize("seed", range(4))
def test_every_shuffled_row_has_a_part(seed: int) -> None:
    random = Random(seed)
    sizes = [
        ShardSize(shard, size := int(random.paretovariate(0.7) * random.choice([1, MB])), random.randrange(size + 1))
        for shard in range(random.randrange(1, 50))
    ]
    plans, parts = plan_parts(sizes, random.randrange(1, 9))
    assert [plan.shard for plan in plans] == [size.shard for size in sizes]
    used = set()
    for plan, (_, size, in_session) in zip(plans, sizes, strict=True):
        if in_session if plan.stays else size:
            used |= set(range(plan.first, plan.first + plan.parts))
    assert used == set(range(parts))
    assert isinstance(plans[0], ShardPlan)
