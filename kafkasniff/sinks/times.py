"""Times and durations as text. All times are UTC: a capture is read where its clock was not."""

from __future__ import annotations

from functools import lru_cache
from time import gmtime, strftime

__all__ = ["clock_time", "date_of", "duration", "milliseconds_date", "rfc3339"]


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    # gmtime takes any 64-bit second on Linux; `datetime` would stop at year 9999, which a broken clock exceeds.
    moment = gmtime(seconds)
    return f"{moment.tm_year:04d}" + strftime("-%m-%dT%H:%M:%S", moment)


def rfc3339(time_ns: int | None) -> str | None:
    """Nanoseconds since the epoch as `2026-11-21T04:00:00.123456789Z`; None stays None. Hot."""
    if time_ns is None:
        return None
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest:09d}Z"


def date_of(time_ns: int) -> str:
    """`2026-11-21`."""
    return _second(time_ns // 1_000_000_000).partition("T")[0]


def clock_time(time_ns: int) -> str:
    """`04:00:00.123456`; digits below the microsecond are cut off, as tcpdump does."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)[-8:]}.{rest // 1000:06d}"


def duration(nanoseconds: int) -> str:
    """A duration in three digits and a unit: `1.23 ms`, `502 ms`, `4.20 s`, `17.0 µs`."""
    size = abs(nanoseconds)
    sign = "-" if nanoseconds < 0 else ""
    if size < 1_000:
        return f"{sign}{size} ns"
    # The borders lie where rounding to three digits reaches the next unit.
    if size < 999_500:
        return f"{sign}{_three_digits(size / 1e3)} µs"
    if size < 999_500_000:
        return f"{sign}{_three_digits(size / 1e6)} ms"
    if size < 999_500_000_000:
        return f"{sign}{_three_digits(size / 1e9)} s"
    return f"{sign}{size / 1e9:,.0f} s"


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def milliseconds_date(milliseconds: int) -> str | None:
    """A timestamp of the protocol (ms since the epoch) as `2026-11-21T04:00:00.123Z`; None for one that is no time.

    Negative ones are codes (`-1` none, ListOffsets' specials), zero is unset, and what lies beyond the year 9999 is no
    time that a clock had.
    """
    if not 0 < milliseconds < 253_402_300_800_000:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"
