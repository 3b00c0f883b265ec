"""What one task of Spark reads: groups that cost about the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.reading import FILE_BYTES, MAX_PARTS, earliest, grouped, packets_of, parts_of, split_bytes
from tests.capture.timelines import make_captures
from tests.choice import examples
from tests.tables.exports.exported import CAPTURES

MB = 1 << 20


def sizes(*items: int, limit: int) -> list[list[int]]:
    return grouped(items, lambda item: item, limit)


def test_tasks_read_about_the_same() -> None:
    assert sizes(40, 60, 1, 99, 100, limit=100) == [[40, 60], [1, 99], [100]]
    assert sizes(500, 1, 500, limit=100) == [[500], [1], [500]]
    assert sizes(limit=100) == []
    # Each file costs as much as some bytes: two files of 126 MB together, and twice the cost of a file.
    assert sizes(60 * MB, SPLIT_BYTES - 62 * MB, limit=SPLIT_BYTES) == [[60 * MB, SPLIT_BYTES - 62 * MB]]
    assert sizes(60 * MB, SPLIT_BYTES - 61 * MB, limit=SPLIT_BYTES) == [[60 * MB], [SPLIT_BYTES - 61 * MB]]
    for limit in (64 << 10, SPLIT_BYTES):
        groups = sizes(*[0] * 10_000, limit=limit)
        assert len(groups) == -(-10_000 * FILE_BYTES // SPLIT_BYTES)
        assert max(map(len, groups)) == SPLIT_BYTES // FILE_BYTES
    # The driver's work grows with the number of tasks.
    assert split_bytes(0) == split_bytes(MAX_PARTS * SPLIT_BYTES) == SPLIT_BYTES
    assert split_bytes(10**13) > 9 * SPLIT_BYTES
    files = [100 * 10**6] * 100_000
    assert MAX_PARTS <= len(sizes(*files, limit=split_bytes(sum(files)))) < MAX_PARTS * 6 // 5


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


def test_the_place_of_a_part_is_that_of_its_first_packet() -> None:
    """Otherwise shards would wait for captures that are later."""
    paths = [str(CAPTURES / name) for name in ("sarama.pcap", "librdkafka-ipv6-ns.pcapng")]
    plan = plan_captures(find_captures(paths), open_capture, split_size=16 << 10)
    parts = parts_of(plan, 16 << 10)
    assert len(parts) > len(paths)
    for part in parts:
        first = next(packets_of(part))
        assert first.clock is not None
        assert earliest(part) == (first.clock[0], first.capture[0], first.number[0])
