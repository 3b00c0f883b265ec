"""Bytes with their segments, beside a plain list of (byte, order) pairs."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection import segmented_bytes
from kafkasniff.kafka.connection.segmented_bytes import SegmentedBytes
from kafkasniff.tcp.segments import Run


def run_of(*parts: bytes, first_order: int = 0) -> Run:
    """A run with a segment for each part. Its packets, times and release times follow from the order."""
    ends: list[int] = []
    for part in parts:
        ends.append((ends[-1] if ends else 0) + len(part))
    orders = list(range(first_order, first_order + len(parts)))
    packets, times, released = ([scale * order for order in orders] for scale in (10, 100, 1000))
    return Run(
        *(b"".join(parts), [0, *ends[:-1]], [len(part) for part in parts], ends),
        *(packets, times, orders, released, 0, len(parts)),
    )


def rows(run: Run) -> list[tuple[bytes, int, int, int, int]]:
    """Each segment of a run: its bytes, packet, time, order and release time."""
    return [
        (
            bytes(run.buffer[run.offset[index] : run.offset[index] + run.length[index]]),
            *(run.packet[index], run.time[index], run.order[index], run.released[index]),
        )
        for index in range(run.first, run.last)
    ]


STEPS = st.lists(st.one_of(st.binary(min_size=1, max_size=9), st.integers(0, 12)), max_size=30)
"""Segments that are added, and numbers of bytes that are dropped."""


@given(STEPS, st.integers(0, 20))
def test_segments_are_those_of_the_bytes_that_are_kept(steps: list[bytes | int], start: int) -> None:
    kept: list[tuple[int, int]] = []
    dropped, found = 0, SegmentedBytes()
    for order, step in enumerate(steps):
        if isinstance(step, bytes):
            assert found.add(run_of(step, first_order=order), 0) == len(kept)
            kept += [(byte, order) for byte in step]
        else:
            count = min(step, len(kept))
            assert found.drop(step) == count
            dropped += count
            del kept[:count]
        assert (len(found), found.dropped, found.seen) == (len(kept), dropped, bool(kept or dropped))
        assert found.segments == len({order for _, order in kept})
        assert [found.order_at(position) for position in range(len(kept))] == [order for _, order in kept]
    assert found.beginning(5) == bytes(byte for byte, _ in kept[:5])
    del kept[:start]
    run = found.take(start)
    parts = [(bytes(byte for byte, _ in group), order) for order, group in groupby(kept, key=lambda pair: pair[1])]
    assert (run and rows(run)) == ([(part, 10 * one, 100 * one, one, 1000 * one) for part, one in parts] or None)
    assert (len(found), found.segments) == (0, 0)


def test_a_part_of_a_segment_of_a_run() -> None:
    found = SegmentedBytes()
    assert found.add(run_of(b"abc", b"defg", first_order=7), 1, skip=2) == 0
    run = found.take(0)
    assert run is not None
    assert rows(run) == [(b"fg", 80, 800, 8, 8000)]


@pytest.mark.parametrize(
    ("drop", "starts"),
    [(0, [0, 3]), (1, [2]), (3, [0])],
    ids=["nothing dropped", "within the first segment", "the first segment"],
)
def test_where_segments_start(drop: int, starts: list[int]) -> None:
    """A segment whose beginning was dropped starts nowhere. The end of the bytes may be the start of the next one."""
    found = SegmentedBytes()
    for order, part in enumerate((b"abc", b"de")):
        found.add(run_of(part, first_order=order), 0)
    found.drop(drop)
    size = len(found)
    assert [position for position in range(size + 1) if found._starts_segment(position)] == [*starts, size]


def test_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What exceeds the bound costs the older half, or more if the new segment is larger than that."""
    monkeypatch.setattr(segmented_bytes, "MAX_SEARCH", 10)
    found = SegmentedBytes()
    assert [found.add(run_of(part), 0) for part in (b"01234", b"56789")] == [0, 5]
    assert found.add(run_of(b"a"), 0) == 5
    assert found.beginning(10) == b"56789a"
    assert found.add(run_of(b"bcdefghi"), 0) == 2
    assert (found.beginning(10), found.dropped) == (b"9abcdefghi", 9)
