"""Constants of an expression: sizes, durations and numbers."""

from __future__ import annotations

import pytest

from kafkasniff.filters import Compare
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.literals import SIZES
from tests.filters.expressions import PAGE


@pytest.mark.parametrize(("unit", "size"), SIZES.items())
def test_sizes(unit: str, size: int) -> None:
    assert parse_filter(f"size > 3{unit}") == Compare("size", ">", 3 * size)
    assert str(size).strip("0") == "1" or (size & (size - 1) == 0 and "i" in unit)


def test_whole_numbers_keep_their_digits() -> None:
    assert parse_filter(f"request.max_wait_ms == {2**63 - 1}") == Compare("request.max_wait_ms", "==", 2**63 - 1)
    assert parse_filter("latency_ms == 0.000001") == Compare("latency_ms", "==", 1)
    assert parse_filter("latency_ms == -1.5s") == Compare("latency_ms", "==", -1_500_000_000)
    assert parse_filter("throttle_time_ms > 1500us") == Compare("throttle_time_ms", ">", 1.5)
    assert parse_filter("api_version == 9.0") == Compare("api_version", "==", 9)


def test_the_page_lists_the_units() -> None:
    for unit in (*SIZES, "ns", "us", "ms", "s", "m"):
        assert f"`{unit}`" in PAGE
