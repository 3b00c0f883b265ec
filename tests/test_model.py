"""Sums of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import StreamBytes, Summary

sizes = st.integers(0, 1 << 50)
totals = st.builds(Summary, **dict.fromkeys(Summary.__struct_fields__, sizes))


@given(sizes, sizes, sizes, sizes)
def test_the_length_of_a_stream(decoded: int, skipped: int, lost: int, other: int) -> None:
    """Bytes that came twice or belong to no stream are not in it; those of a truncated frame are already skipped."""
    stream = StreamBytes(decoded, skipped, lost, pending=skipped, repeated=other, ignored=other)
    assert stream.size == decoded + skipped + lost


@given(totals, totals)
def test_totals_add_up(one: Summary, two: Summary) -> None:
    total = Summary()
    total.add(one)
    total.add(two)
    for name in Summary.__struct_fields__:
        assert getattr(total, name) == getattr(one, name) + getattr(two, name)
