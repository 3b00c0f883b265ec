"""Exchanges by time and latency, and the filters for ranges of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafkasniff.browse.histograms import latency_bins, time_bins
from tests.browse.opened import capture, fill
from tests.choice import one_in

MAKE = {"time": time_bins, "latency_ms": latency_bins}


@pytest.mark.parametrize("most", one_in(2, [1, 2, 7, 1000, 80]))
@pytest.mark.parametrize("field", ["time", "latency_ms"])
def test_a_range_selects_what_it_counts(field: str, most: int) -> None:
    reading = capture("java-errors")
    brush = MAKE[field](fill(reading), most)
    bins = brush.bins
    assert 0 < len(bins) <= most
    assert sum(one.exchanges for one in bins) == 49
    assert all(one.high == after.low for one, after in pairwise(bins))
    assert bins[0].exchanges > 0
    assert bins[-1].exchanges > 0
    for first, last in {(0, len(bins) - 1), (0, len(bins) // 2), (len(bins) // 2, len(bins) - 1)}:
        wanted = sum(one.exchanges for one in bins[first : last + 1])
        assert len(fill(reading, brush.expression(first, last))) == wanted
