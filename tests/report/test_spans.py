"""Spans of time that become wider as time passes, and the counts per span."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.report.spans import MAX_SPANS, WIDTHS, width_of


def test_each_width_divides_the_next() -> None:
    for narrow, wide in pairwise(WIDTHS):
        assert wide % narrow == 0
        assert wide > narrow
    # All that 64 bits of nanoseconds hold.
    assert 2**64 // WIDTHS[-1] < MAX_SPANS * 2


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**60))
def test_there_are_never_too_many_spans(low: int, length: int) -> None:
    high = min(low + length, 2**63 - 1)
    width = width_of(low, high)
    assert high // width - low // width < MAX_SPANS
    narrower = [one for one in WIDTHS if one < width]
    assert not narrower or high // narrower[-1] - low // narrower[-1] >= MAX_SPANS
