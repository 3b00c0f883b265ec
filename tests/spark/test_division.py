"""Which rows are shuffled before stage 2, and into how many parts."""

from __future__ import annotations

from random import Random

import pytest

from kafkasniff.spark.division import ShardPlan, ShardSize, plan_parts

MB = 1 << 20


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
