"""Estimates and tests, checked against published examples, tables, closed forms, pairwise counts and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kafkasniff.analysis.comparison.inference import (
    Limits,
    holm,
    probability,
    quantile,
    student_quantile,
    student_tail,
    superiority,
)
from tests.choice import fewer

PAIN = ([1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 1, 1], [3, 3, 4, 3, 1, 2, 3, 1, 1, 5, 4])
"""Pain scores of two treatments (Brunner and Munzel 2000; Neubert and Brunner 2007, table 1)."""


def one_span_each(values: list[int], axis: list[int]) -> np.ndarray:
    """Put each value in a span of its own."""
    return np.array([[int(one == value) for one in axis] for value in values])


def test_the_published_example_of_brunner_and_munzel() -> None:
    """Statistic, estimate and p value as given by the authors, R's lawstat and SciPy's documentation."""
    before, after = (one_span_each(values, [1, 2, 3, 4, 5]) for values in PAIN)
    found = superiority(before, after)
    assert found[0].value == pytest.approx(found[1].value)
    assert found[1].value == pytest.approx(0.788961, abs=1e-6)
    statistic = (found[1].value - 0.5) / math.sqrt(found[0].variance + found[1].variance)
    assert statistic == pytest.approx(3.1374674823029505, abs=1e-12)
    assert probability(*found, expected=0.5) == pytest.approx(0.0057862086661515377, rel=1e-9)


@pytest.mark.parametrize(
    ("freedom", "share", "value"),
    [
        (1, 0.975, 12.706), (2, 0.975, 4.303), (5, 0.975, 2.571), (10, 0.975, 2.228), (30, 0.975, 2.042),
        (120, 0.975, 1.980), (4, 0.95, 2.132), (10, 0.995, 3.169), (29, 0.9995, 3.659), (1, 0.9995, 636.619),
    ],
)  # fmt: skip
def test_student_s_t_as_in_printed_tables(freedom: int, share: float, value: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(value, abs=6e-4)
    assert student_tail(value, freedom) == pytest.approx(1 - share, rel=2e-3)
    assert student_tail(-value, freedom) == pytest.approx(share, rel=2e-3)
    assert student_tail(0.0, freedom) == pytest.approx(0.5)


def test_quantiles_and_their_limits() -> None:
    """The 40th and the 61st of 100 values bound the median with 95% (binomial tables); one rank less here."""
    values = np.arange(1, 101)
    found = quantile(np.eye(100, dtype=int), values, 0.5, 0.95)
    assert found.value == 50
    assert abs(found.low - 40) <= 1
    assert abs(found.high - 61) <= 1
    assert quantile(np.eye(100, dtype=int), values, 0.99, 0.95) == Limits(99, 98, 100)
    # With a single span, only its extremes are known.
    assert quantile(np.ones((1, 100), int), values, 0.5, 0.95) == Limits(50, 1, 100)


def test_holm_s_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_slow_noise_yields_no_findings() -> None:
    """Exchanges of a span share its load. Without a difference, 5% of the tests find one, not 40% as per exchange."""
    state = np.random.RandomState(7)
    by_span, by_exchange, runs = 0, 0, fewer(100, 200)

    def sample() -> np.ndarray:
        load = state.normal(0, 1, 20)
        values = np.clip(np.round(10 + 3 * (load[:, None] + state.normal(0, 1, (20, 30)))), 0, 24).astype(int)
        return np.array([np.bincount(row, minlength=25) for row in values])

    for _ in range(runs):
        before, after = sample(), sample()
        found = superiority(before, after)
        by_span += probability(*found, expected=0.5) < 0.05
        flat = [np.repeat(np.eye(25, dtype=int), one.sum(axis=0), axis=0) for one in (before, after)]
        found = superiority(*flat)
        by_exchange += probability(*found, expected=0.5) < 0.05
    # Three standard deviations of a binomial around 5%.
    assert abs(by_span / runs - 0.05) < 3 * math.sqrt(0.05 * 0.95 / runs)
    assert by_exchange / runs > 0.4
