"""Exchanges by time and latency, and the filters for ranges of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafkasniff.browse.histograms import Brush, latency_bins, time_bins
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.model import Exchange
from tests.browse.opened import capture, fill
from tests.choice import one_in
from tests.sinks.messages import message

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


def index_of(*values: tuple[int | None, int | None]) -> ExchangeIndex:
    index = ExchangeIndex()
    for number, (time, latency) in enumerate(values):
        request = message(time_ns=time)
        index.add(Exchange(number, 1, "answered", request, None, latency_ns=latency, exchange_id=number))
    index.publish()
    return index


def counts(brush: Brush) -> list[int]:
    return [one.exchanges for one in brush.bins]


def test_unknown_and_extreme_values() -> None:
    for make in MAKE.values():
        assert make(ExchangeIndex(), 80).bins == []
        assert make(index_of((None, None)), 80).bins == []
        assert counts(make(index_of((5, 5), (5, 5)), 80)) == [2]
    times = time_bins(index_of((-(1 << 62), 0), ((1 << 62), 0), (None, 0)), 10)
    assert counts(times) == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    latencies = latency_bins(index_of((0, -7), (0, 0), (0, 1), (0, 10**15)), 80)
    assert sum(counts(latencies)) == 4
    assert latencies.bins[0].low == -7
    assert latencies.bins[-1].high == 10**15 + 1
    assert latencies.expression(0, 0).startswith("latency_ms >= -0.000007 and ")
