"""Latencies of both sides, API by API."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkasniff.analysis.comparison import inference
from kafkasniff.analysis.comparison.answer import LatencyDiff, Shift, Verdict
from kafkasniff.analysis.comparison.family import MIN_EXCHANGES, MIN_SPANS, Family, Thresholds
from kafkasniff.analysis.comparison.side import Latencies, Side
from kafkasniff.analysis.percentiles import middle_of

__all__ = ["MIN_TAIL", "TAIL", "compare_latencies"]

TAIL: Final = 0.01
"""Fraction of the exchanges that counts as the tail."""
MIN_TAIL: Final = 500
"""Minimum number of exchanges on both sides for comparing tails: the tail then has five."""

_QUANTILES: Final = (0.5, 0.9, 0.99)
Counts = npt.NDArray[np.int64]


def compare_latencies(before: Side, after: Side, thresholds: Thresholds) -> list[LatencyDiff]:
    """A row for each API that has latencies on both sides, those that differ first."""
    mine, theirs = before.latencies(), after.latencies()
    family, rows = Family(thresholds), []
    for api in sorted(mine.keys() & theirs.keys()):
        axis = np.union1d(mine[api].buckets, theirs[api].buckets)
        sides = _Counted(mine[api], axis, before.spans.count), _Counted(theirs[api], axis, after.spans.count)
        rows.append(_row(api, *sides, thresholds, family))
    family.settle()
    for row in rows:
        row.verdict = _verdict(row, thresholds.significance)
        row.differs = row.verdict not in ("same", "unclear")
    return sorted(rows, key=lambda row: (not row.differs, -abs(row.p50.change or 0), row.api))


class _Counted:
    """One side: counts of spans by buckets, and the buckets' values, ascending."""

    def __init__(self, latencies: Latencies, axis: Counts, spans: int) -> None:
        self.counts = latencies.matrix(axis, spans)
        # As everywhere, percentiles are clamped to the extremes.
        self.values = np.clip(middle_of(axis), latencies.low, latencies.high)


def _row(api: str, one: _Counted, other: _Counted, thresholds: Thresholds, family: Family) -> LatencyDiff:
    p50, p90, p99 = (_shift(one, other, share, thresholds) for share in _QUANTILES)
    before, after = one.counts, other.counts
    totals = int(before.sum()), int(after.sum())
    row = LatencyDiff(
        api=api,
        before=totals[0],
        after=totals[1],
        verdict="unclear",
        slower=None,
        p=None,
        tail_p=None,
        p50=p50,
        p90=p90,
        p99=p99,
        differs=False,
    )
    found = inference.superiority(before, after)
    assert found is not None
    if min(totals) < MIN_EXCHANGES or min(one.spans for one in found) < MIN_SPANS:
        for shift in (p50, p90, p99):
            shift.low_us = shift.high_us = None
        return row
    row.slower = found[1].value

    def settle(name: str) -> Any:
        return lambda p: setattr(row, name, p)

    family.test(inference.probability(*found, expected=0.5), settle("p"))
    if min(totals) >= MIN_TAIL:
        bucket = inference.threshold(before, after, TAIL)
        shares = [inference.above(counts, bucket) for counts in (before, after)]
        assert shares[0] is not None
        assert shares[1] is not None
        family.test(inference.probability(shares[0], shares[1]), settle("tail_p"))
    return row


def _shift(before: _Counted, after: _Counted, share: float, thresholds: Thresholds) -> Shift:
    confidence = 1 - thresholds.significance
    one, other = (inference.quantile(side.counts, side.values, share, confidence) for side in (before, after))
    found = inference.difference(one, other)
    change = other.value / one.value - 1 if one.value else None
    matters = thresholds.matters(one.value, other.value)
    return Shift(round(one.value), round(other.value), change, found.value, found.low, found.high, matters)


def _verdict(row: LatencyDiff, significance: float) -> Verdict:
    """A difference must be significant and also visible in a percentile."""
    if row.p is None or row.slower is None:
        return "unclear"
    if row.p < significance and (row.p50.differs or row.p90.differs):
        return "slower" if row.slower > 0.5 else "faster"
    if row.tail_p is not None and row.tail_p < significance and row.p99.differs:
        return "slower-tail" if row.p99.shift_us > 0 else "faster-tail"
    return "same"
