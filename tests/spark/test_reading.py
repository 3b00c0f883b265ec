"""What one task of Spark reads: no packet comes before the place that the others know of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.spark.source import earliest, packets_of, parts_of
from tests.capture.timelines import make_captures
from tests.choice import examples


@examples(20)
@given(st.integers(0, 2**32), st.sampled_from([150, 1_000, 5_000, 10**9]), st.booleans())
def test_no_packet_precedes_the_place_of_its_part(
    tmp_path_factory: pytest.TempPathFactory, seed: int, split_size: int, damage: bool
) -> None:
    paths = make_captures(tmp_path_factory.mktemp("parts"), seed, damage=damage)
    plan = plan_captures(find_captures([*map(str, paths)]), open_capture, split_size=split_size)
    for part in parts_of(plan, split_size):
        for batch in packets_of(part):
            assert batch.clock is not None
            columns = (batch.clock.tolist(), batch.capture.tolist(), batch.number.tolist())
            assert min(zip(*columns, strict=True), default=earliest(part)) >= earliest(part)
