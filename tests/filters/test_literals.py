"""Constants of an expression: sizes, numbers, durations and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff import filters
from kafkasniff.errors import UsageError
from kafkasniff.filters import Compare
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.literals import SIZES
from tests.filters.expressions import PAGE
from tests.sinks.messages import TIME_NS


def test_sizes() -> None:
    for unit, size in SIZES.items():
        assert parse_filter(f"size > 3{unit}") == Compare("size", ">", 3 * size)
        assert str(size).strip("0") == "1" or (size & (size - 1) == 0 and "i" in unit)
    for unit in (*SIZES, "ns", "us", "ms", "s", "m"):
        assert f"`{unit}`" in PAGE


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"request.max_wait_ms == {2**63 - 1}", 2**63 - 1),
        ("latency_ms == 0.000001", 1),
        ("latency_ms == -1.5s", -1_500_000_000),
        ("throttle_time_ms == 1500us", 1.5),
        ("api_version == 9.0", 9),
    ],
)
def test_whole_numbers_keep_their_digits(expression: str, value: float) -> None:
    assert parse_filter(expression) == Compare(expression.split(maxsplit=1)[0], "==", value)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("10", 10_000_000),
        ("10ms", 10_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("250us", 250_000),
        ("250 µs", 250_000),
        ("7ns", 7),
        ("2m", 120_000_000_000),
        ("0.1", 100_000),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert filters.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2026-11-21T04:00:00Z", 1_795_233_600_000_000_000),
        ("2026-11-21t04:00:00.123456789z", TIME_NS),
        ("2026-11-21 04:00", 1_795_233_600_000_000_000),
        ("2026-11-21T05:30:00+01:30", 1_795_233_600_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
    ],
)
def test_times(text: str, nanoseconds: int) -> None:
    assert filters.parse_moment(text) == nanoseconds


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_times_match_datetime(moment: datetime) -> None:
    wanted = int(moment.replace(microsecond=0, tzinfo=UTC).timestamp()) * 10**9 + moment.microsecond * 1000
    assert filters.parse_moment(moment.isoformat() + "Z") == wanted


def test_invalid_times_and_durations() -> None:
    for parse, texts in (
        (filters.parse_duration, ("", "ms", "-1", "1w", "1 000", "1e3", "inf")),
        (filters.parse_moment, ("", "noon", "25:00", "2026-13-01T00:00:00Z", "2026-11-21", "+", "+x", "04:60")),
    ):
        for text in texts:
            with pytest.raises(UsageError):
                parse(text)
