from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.analysis.percentiles import RELATIVE_ERROR, bucket_of, middle_of, percentiles

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.lists(INT64, min_size=1, max_size=50))
@example([2**53 + 1, 2**54 - 1, 2**62 - 1, 2**62, 2**63 - 1, 0, -1])
def test_the_middle_is_near(values: list[int]) -> None:
    found = middle_of(bucket_of(numbers(values)))
    for value, middle in zip(values, found.tolist(), strict=True):
        assert abs(value - middle) <= abs(value) * RELATIVE_ERROR
        if abs(value) < 256:
            assert middle == value


def test_every_power_and_its_neighbours() -> None:
    """Buckets increase with the value."""
    values = sorted({one for power in range(63) for one in (2**power - 1, 2**power, 2**power + 1)} | {2**63 - 1})
    assert (np.diff(bucket_of(numbers(values))) >= 0).all()
    assert (np.diff(bucket_of(numbers([-one for one in values]))) <= 0).all()


@given(
    values=st.lists(st.integers(-(10**6), 10**9), min_size=1, max_size=300),
    quantile=st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]),
)
def test_against_numpy(values: list[int], quantile: float) -> None:
    # The nearest rank, as NumPy's method `inverted_cdf` has it.
    expected = np.quantile(numbers(values), quantile, method="inverted_cdf")
    buckets = bucket_of(numbers(values))
    (found,) = percentiles(np.zeros(len(values), np.int64), buckets, np.ones(len(values), np.int64), [quantile], 1)
    assert abs(found[0] - expected) <= abs(expected) * RELATIVE_ERROR


def test_ranks() -> None:
    for size in (1, 2, 99, 100, 101):
        values = numbers(list(range(1, size + 1)))
        (found,) = percentiles(np.zeros(size, np.int64), values, np.ones(size, np.int64), [0.99], 1)
        assert found[0] == -(-size * 99 // 100)
