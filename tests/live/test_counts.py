from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.percentiles import RELATIVE_ERROR, bucket_of
from kafkasniff.live.counts import WINDOW_SLOTS, BoundedTable, Entry, latency_bucket, latency_quantiles

LATENCIES = st.integers(-(2**40), 2**53)


@given(LATENCIES)
def test_buckets_match_those_of_the_analyses(value: int) -> None:
    assert latency_bucket(value) == bucket_of(np.array([value]))[0]


@given(st.lists(st.lists(st.integers(0, 10**9), max_size=50), max_size=5))
def test_quantiles_are_the_nearest_ranks(groups: list[list[int]]) -> None:
    counted = []
    for group in groups:
        counts: dict[int, int] = {}
        for value in group:
            counts[latency_bucket(value)] = counts.get(latency_bucket(value), 0) + 1
        counted.append(counts)
    for group, found in zip(groups, latency_quantiles(counted, (0.5, 0.99)), strict=True):
        if not group:
            assert found is None
            continue
        assert found is not None
        for quantile, value in zip((0.5, 0.99), found, strict=True):
            exact = sorted(group)[max(math.ceil(len(group) * quantile - 1e-9), 1) - 1]
            assert abs(value - exact) <= exact * RELATIVE_ERROR + 1


@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 9)), max_size=60))
def test_nothing_is_lost_when_slots_leave_the_window(steps: list[tuple[int, int]]) -> None:
    """Compared with a plain list of events. If the clock goes back, it stops until time catches up."""
    entry, slot, reported = Entry(0), 0, []
    for step, requests in steps:
        slot = max(slot + step, 0)
        entry.at(slot).requests += requests
        entry.now.latency_max = max(entry.now.latency_max, requests)
        reported.append((entry.slot, requests))
    assert entry.total().requests == sum(requests for _, requests in reported)
    now = entry.slot
    within = [requests for at, requests in reported if at > now - WINDOW_SLOTS]
    assert entry.window(now).requests == sum(within)
    assert entry.window(now).latency_max == max(within, default=0)
    assert entry.window(now + WINDOW_SLOTS).requests == 0


def test_latency_buckets_belong_to_the_window() -> None:
    entry = Entry(0)
    entry.at(0).latency[7] = 1
    entry.at(3).latency[7] = 2
    assert entry.window(3, latency=True).latency == {7: 3}
    assert entry.window(3).latency == {}
    assert entry.window(WINDOW_SLOTS, latency=True).latency == {7: 2}


def requests(entry: Entry | None) -> int:
    return 0 if entry is None else entry.total().requests


def test_a_full_table_counts_newcomers_together() -> None:
    table: BoundedTable[int, Entry] = BoundedTable(3, Entry)
    for key in range(10):
        table.at(key, 0).at(0).requests += 1
    assert len(table) == 3
    assert requests(table.other) == 7
    # The first entry is silent for a window; the others are not.
    for key in (1, 2):
        table.at(key, WINDOW_SLOTS).at(WINDOW_SLOTS).requests += 1
    table.at(99, WINDOW_SLOTS).at(WINDOW_SLOTS).requests += 1
    assert sorted(key for key, _ in table) == [1, 2, 99]
    assert requests(table.other) == 8
    assert sum(requests(entry) for _, entry in table) + requests(table.other) == 13


def test_silent_entries_are_removed_once_per_slot() -> None:
    table: BoundedTable[int, Entry] = BoundedTable(2, Entry)
    table.at(0, 0)
    table.at(1, 5)
    assert table.at(2, 5) is table.other  # no entry is silent yet
    assert table.at(3, WINDOW_SLOTS) is not table.other  # the first one was
    assert table.at(4, WINDOW_SLOTS) is table.other
    assert table.at(4, WINDOW_SLOTS + 5) is not table.other
    assert sorted(key for key, _ in table) == [3, 4]
