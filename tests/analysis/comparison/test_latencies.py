"""Latencies of two sides: what is slower, what is only so in its tail, and what is too little to say."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.comparison.answer import LatencyDiff
from kafkasniff.analysis.comparison.family import MIN_EXCHANGES, Thresholds
from kafkasniff.analysis.comparison.latencies import MIN_TAIL, compare_latencies
from kafkasniff.analysis.comparison.side import Side
from tests.analysis.comparison.traffic import side, traffic
from tests.analysis.tables import batch_of, exchange


def compared(before: Side, after: Side, **thresholds: float) -> list[LatencyDiff]:
    return compare_latencies(before, after, Thresholds(**thresholds))


@pytest.fixture(scope="module")
def before() -> Side:
    return side(traffic(1))


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "same"), (2.0, "slower"), (0.5, "faster")])
def test_a_shift(before: Side, factor: float, verdict: str) -> None:
    (row,) = compared(before, side(traffic(2, slower=factor)))
    assert (row.api, row.verdict, row.differs) == ("Produce", verdict, verdict != "same")
    assert row.slower is not None
    assert row.p50.low_us is not None
    assert row.p50.high_us is not None
    assert row.p50.low_us <= row.p50.shift_us <= row.p50.high_us
    assert (row.before, row.after) == (600, 600)
    if verdict == "slower":
        assert row.slower > 0.5
        assert row.p50.low_us > 0
    elif verdict == "faster":
        assert row.slower < 0.5
        assert row.p50.high_us < 0


def test_the_same_side_twice(before: Side) -> None:
    (row,) = compared(before, before)
    assert (row.verdict, row.p50.change) == ("same", 0.0)
    assert row.slower == pytest.approx(0.5)


def test_a_slower_tail() -> None:
    """The slowest fiftieth: the median does not show it."""
    plain, tailed = side(traffic(rate=40)), side(traffic(2, tail=5.0, rate=40))
    (row,) = compared(plain, tailed)
    assert row.verdict == "slower-tail"
    assert not row.p50.differs
    assert row.p99.shift_us > 0
    (row,) = compared(tailed, plain)
    assert row.verdict == "faster-tail"


def test_a_tail_needs_many_exchanges(before: Side) -> None:
    few = side(traffic(2, tail=5.0, seconds=MIN_TAIL // 10 - 1))
    (row,) = compared(before, few)
    assert row.tail_p is None
    assert row.verdict in {"same", "slower"}


def test_too_few_exchanges(before: Side) -> None:
    few = side(traffic(2, slower=9.0, seconds=MIN_EXCHANGES - 1, rate=1))
    (row,) = compared(before, few)
    assert (row.verdict, row.slower, row.p, row.differs) == ("unclear", None, None, False)
    assert (row.p50.low_us, row.p50.high_us) == (None, None)
    # The percentiles are known anyway.
    assert row.p50.after_us > row.p50.before_us


def test_a_change_that_does_not_matter(before: Side) -> None:
    (row,) = compared(before, side(traffic(2, slower=2.0)), min_change=50.0)
    assert row.verdict == "same"
    assert not row.p50.differs


def test_only_apis_with_latencies_on_both_sides(before: Side) -> None:
    other = side(traffic(1), batch_of([exchange("Metadata", latency_us=5), exchange("Fetch", latency_us=None)]))
    assert [row.api for row in compared(before, other)] == ["Produce"]
    assert compared(before, Side()) == []


def test_differences_come_first(before: Side) -> None:
    metadata = [
        exchange("Metadata", second / 10, exchange_id=second, latency_us=100 + second % 7) for second in range(600)
    ]
    one, other = side(traffic(1), batch_of(metadata)), side(traffic(2, slower=3.0), batch_of(metadata))
    assert [(row.api, row.verdict) for row in compared(one, other)] == [("Produce", "slower"), ("Metadata", "same")]
