from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.text.times import clock_time, date_of, duration, milliseconds_date, rfc3339

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(-(2**62), 2**63 - 1))
def test_rfc3339_is_what_datetime_says(time_ns: int) -> None:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    moment = EPOCH + timedelta(seconds=seconds)
    assert (
        rfc3339(time_ns) == moment.strftime("%4Y-%m-%dT%H:%M:%S").replace("%4Y", f"{moment.year:04}") + f".{rest:09}Z"
    )
    assert date_of(time_ns) == moment.date().isoformat()
    assert clock_time(time_ns) == moment.strftime("%H:%M:%S") + f".{rest // 1000:06}"


def test_no_time_stays_none() -> None:
    assert rfc3339(None) is None


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (1_234_000, "1.23 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (502_000_000, "502 ms"),
        (999_500_000, "1.00 s"),
        (4_200_000_000, "4.20 s"),
        (99_960_000_000, "100 s"),
        (1_234_567_000_000_000, "1,234,567 s"),
        (-1_230_000, "-1.23 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: int, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(1, 999_499_999_999))
def test_durations_are_right_within_half_a_percent(ns: int) -> None:
    number, unit = duration(ns).split()
    value = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert abs(value - ns) <= ns * 0.005 + 0.5
    assert len(duration(ns)) <= 7


def test_timestamps_of_the_protocol_that_are_no_times() -> None:
    assert milliseconds_date(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert milliseconds_date(-1) is None
    assert milliseconds_date(0) is None
    assert milliseconds_date(2**63 - 1) is None
