"""Tests whether two captures differ significantly: estimates from time spans, and tests between them.

Consecutive exchanges are alike (a full queue delays everything after it), and latencies have long tails, so tests that
treat exchanges as independent find everything significant. So a capture is cut into time spans (`side`), and only
spans are treated as independent: the batch means of simulations (Schmeiser, "Batch size effects in the analysis of
simulation output", Operations Research 30, 1982: 10 to 30 of them). Every estimate here is the sum of one quantity
divided by the sum of another over spans; its variance is that of a ratio estimator for clusters (Cochran, "Sampling
Techniques", 3rd edition, 1977, chapters 6 and 9A).

- `superiority`: the probability that a value of the second sample is above one of the first, ties counting half (the
  Mann-Whitney statistic). Its variance is that of the placements, without any assumption on shapes or spreads (Brunner
  and Munzel, "The nonparametric Behrens-Fisher problem", Biometrical Journal 42, 2000), summed by clusters (Obuchowski,
  "Nonparametric analysis of clustered ROC curve data", Biometrics 53, 1997).
- `quantile`: a quantile and its limits, by those of the share of values below it (Woodruff, "Confidence intervals for
  medians and other position measures", Journal of the American Statistical Association 47, 1952).
- `difference`: limits of a difference by those of its parts, which need not be symmetric (Zou and
  Donner, "Construction of confidence limits about effect measures: a general approach", Statistics in Medicine 27,
  2008).
- `holm`: p values of several tests (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian
  Journal of Statistics 6, 1979).

Counts are arrays of spans (rows) by buckets (columns, ascending values).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from kafkasniff.analysis.comparison.answer import Change

Numbers = npt.NDArray[Any]

MAX_TERMS: Final = 10_000
"""Maximum number of terms of a continued fraction; it needs about the square root of the degrees of freedom, which are
below 60.
"""
STEPS: Final = 100
"""Maximum number of interval halvings: more than a float64 has bits."""
ROUNDING: Final = 1e-12
"""Rounding error of sums of placements in float64."""
_TINY: Final = 1e-300


class Estimate(NamedTuple):
    """An estimate from a sample."""

    value: float
    variance: float
    spans: float
    """Effective number of spans: as many spans of equal weight would give as much information (Kish, "Survey Sampling",
    1965, section 11.7: the square of the sum of weights divided by the sum of their squares); with a single span the
    variance is unknown (NaN).
    """


class Limits(NamedTuple):
    """An estimate and its confidence interval."""

    value: float
    low: float
    high: float


def ratio(tops: Numbers, bottoms: Numbers) -> Estimate | None:
    """The sum of `tops` divided by the sum of `bottoms`, one element per span; None if that is 0."""
    count, whole = int((bottoms > 0).sum()), float(bottoms.sum())
    if not count:
        return None
    value = float(tops.sum()) / whole
    if count < 2:
        return Estimate(value, math.nan, 1.0)
    off = tops - value * bottoms
    variance = float((off * off).sum()) * count / (count - 1) / whole**2
    return Estimate(value, variance, whole**2 / float((bottoms.astype(np.float64) ** 2).sum()))


def superiority(before: Numbers, after: Numbers) -> tuple[Estimate, Estimate] | None:
    """Probability that a value of `after` exceeds one of `before`, ties counting half: both samples' estimates.

    Both estimates have the same value; the total variance is the sum of theirs. None if one sample is empty.
    """
    mine, theirs = before.sum(axis=0), after.sum(axis=0)
    if not mine.sum() or not theirs.sum():
        return None
    # Each value's placement: the share of the other sample that lies above (below) it, plus half of the ties.
    higher = 1 - (np.cumsum(theirs) - theirs / 2) / theirs.sum()
    lower = (np.cumsum(mine) - mine / 2) / mine.sum()
    estimate, other = ratio(before @ higher, before.sum(axis=1)), ratio(after @ lower, after.sum(axis=1))
    assert estimate is not None
    assert other is not None
    return estimate, other


def threshold(before: Numbers, after: Numbers, share: float) -> int:
    """The lowest bucket with at most `share` of the values above it, weighting both samples equally."""
    both = sum(np.cumsum(counts.sum(axis=0)) / counts.sum() for counts in (before, after)) / 2
    return int(np.searchsorted(both, 1 - share - 1e-12))


def above(counts: Numbers, bucket: int) -> Estimate | None:
    """The share of values above a bucket."""
    return ratio(counts[:, bucket + 1 :].sum(axis=1), counts.sum(axis=1))


def probability(before: Estimate, after: Estimate, expected: float | None = None) -> float:
    """The two-sided p value: the probability that two estimates differ this much by chance.

    With `expected`: that of one estimate from both samples (`superiority`) differing this much from it. The degrees of
    freedom are those of Welch and Satterthwaite. The p value is never below what a permutation of as many spans could
    give, since a sample of identical spans has a meaningless variance. 1 if there are too few.
    """
    if min(before.spans, after.spans) < 2:
        return 1.0
    off = abs(after.value - before.value) if expected is None else abs(after.value - expected)
    if off == 0 or (expected is not None and off < ROUNDING):
        return 1.0
    mine, theirs = int(before.spans), int(after.spans)
    least = min(2 / math.comb(mine + theirs, mine), 1.0)
    variance = before.variance + after.variance
    if variance <= 0:
        return least
    freedom = variance**2 / (before.variance**2 / (before.spans - 1) + after.variance**2 / (after.spans - 1))
    return max(least, 2 * student_tail(off / math.sqrt(variance), freedom))


def quantile(counts: Numbers, values: Numbers, share: float, confidence: float) -> Limits:
    """The value that `share` of the sample does not exceed (nearest rank); it is the value of a bucket, ascending.

    With fewer than two spans the limits are the lowest and the highest value.
    """
    sums = np.cumsum(counts.sum(axis=0))
    whole = int(sums[-1])

    def at(rank: float) -> tuple[int, float]:
        place = int(np.searchsorted(sums, min(max(math.ceil(rank * whole - 1e-9), 1), whole)))
        return place, float(values[place])

    index, value = at(share)
    below = ratio(counts[:, : index + 1].sum(axis=1), counts.sum(axis=1))
    if below is None or below.spans < 2:
        return Limits(value, at(0)[1], at(1)[1])
    off = student_quantile(1 - (1 - confidence) / 2, below.spans - 1) * math.sqrt(below.variance)
    return Limits(value, at(share - off)[1], at(share + off)[1])


def difference(before: Limits, after: Limits) -> Limits:
    """`after` minus `before`."""
    value = after.value - before.value
    low = math.hypot(after.value - after.low, before.high - before.value)
    high = math.hypot(after.high - after.value, before.value - before.low)
    return Limits(value, value - low, value + high)


def holm(found: Sequence[float]) -> list[float]:
    """Corrects the p values of several tests, so that the probability of any false one is that of each."""
    adjusted, highest = [0.0] * len(found), 0.0
    for rank, index in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        highest = max(highest, min((len(found) - rank) * found[index], 1.0))
        adjusted[index] = highest
    return adjusted


def student_tail(deviation: float, freedom: float) -> float:
    """The probability that Student's t with this many degrees of freedom (above 0) exceeds `deviation`.

    By the incomplete beta function (Abramowitz and Stegun, 26.5.27).
    """
    if deviation < 0:
        return 1 - student_tail(-deviation, freedom)
    return _beta(freedom / (freedom + deviation * deviation), freedom / 2, 0.5) / 2


def student_quantile(share: float, freedom: float) -> float:
    """The deviation that Student's t does not exceed with the probability `share` (0.5 to 1, without 1)."""
    high = 1.0
    while student_tail(high, freedom) > 1 - share:
        high *= 2
    low = 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if student_tail(middle, freedom) > 1 - share:
            low = middle
        else:
            high = middle
    return high


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        # The fraction converges slowly there.
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's method evaluates a continued fraction from its beginning.
    upper, lower = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for number in range(1, MAX_TERMS):
        even = number * (b - number) * x / ((a + 2 * number - 1) * (a + 2 * number))
        odd = -(a + number) * (a + b + number) * x / ((a + 2 * number) * (a + 2 * number + 1))
        for term in (even, odd):
            lower = 1 / _away_from_zero(1 + term * lower)
            upper = _away_from_zero(1 + term / upper)
            value *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return front * value


def _away_from_zero(number: float) -> float:
    """A non-zero divisor."""
    return number if abs(number) > _TINY else _TINY


MIN_SPANS: Final = 5
"""Minimum number of spans of equal weight on both sides; with fewer, the spread between spans is hardly known (t with 4
degrees of freedom).
"""
MIN_EXCHANGES: Final = 20
"""Minimum number of exchanges or batches on both sides for comparing a mean, a share or a percentile."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria of a difference."""

    min_change: Annotated[float, Meta(ge=0)] = 0.1
    """Minimum relative change of a number."""
    significance: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    """Probability of any false difference in one list if nothing has changed."""
    min_count: Annotated[int, Meta(ge=1)] = 1
    """How often something that exists on one side only must have been seen there."""

    def one_sided(self, before: int, after: int) -> bool:
        """Whether something with these counts is on one side only, and frequent enough."""
        return (before == 0) != (after == 0) and max(before, after) >= self.min_count

    def matters(self, before: float, after: float) -> bool:
        """Whether a number has changed by enough; from 0 every change is enough."""
        return before != after and abs(after - before) >= self.min_change * abs(before)


class Family:
    """The tests of one list, which are corrected together."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._found: list[tuple[float, Callable[[float], object]]] = []

    def test(self, p: float, settle: Callable[[float], object]) -> None:
        """Add a p value; `settle` is called with the corrected one."""
        self._found.append((p, settle))

    def change(self, before: Estimate | None, after: Estimate | None, *, count: int | None = None) -> Change:
        """A number on both sides; `settle` fills in `p` and `differs`.

        `count`: exchanges on the side that has fewer of them, if relevant.
        """
        values = [None if estimate is None else estimate.value for estimate in (before, after)]
        made = Change(values[0], values[1], None, None, False)
        if before is None or after is None:
            return made
        if before.value:
            made.change = after.value / before.value - 1
        if min(before.spans, after.spans) < MIN_SPANS or (count is not None and count < MIN_EXCHANGES):
            return made
        matters = self._thresholds.matters(before.value, after.value)

        def settle(p: float) -> None:
            made.p, made.differs = p, matters and p < self._thresholds.significance

        self.test(probability(before, after), settle)
        return made

    def settle(self) -> None:
        """Called after the last test of the list."""
        corrected = holm([p for p, _ in self._found])
        for (_, settle), p in zip(self._found, corrected, strict=True):
            settle(p)
