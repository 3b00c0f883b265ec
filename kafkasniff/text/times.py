"""Times and durations as text. All times are UTC: a capture may be read in another time zone than it was made in."""

from __future__ import annotations

from functools import lru_cache
from time import gmtime, strftime
from typing import Final

THREE_DIGITS: Final = tuple(f"{number:03d}" for number in range(1000))
"""`000` to `999`: a look-up takes a third of the time of formatting."""


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    # gmtime accepts any 64-bit second on Linux; `datetime` ends at year 9999, which a broken clock may exceed.
    moment = gmtime(seconds)
    return f"{moment.tm_year:04d}" + strftime("-%m-%dT%H:%M:%S", moment)


@lru_cache(maxsize=64)  # messages of one batch share few milliseconds
def _millisecond(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{THREE_DIGITS[rest]}"


def rfc3339(time_ns: int | None) -> str | None:
    """Nanoseconds since the epoch as `2026-11-21T04:00:00.123456789Z`; None stays None. Hot."""
    if time_ns is None:
        return None
    microseconds, nanoseconds = divmod(time_ns, 1000)
    milliseconds, microseconds = divmod(microseconds, 1000)
    return f"{_millisecond(milliseconds)}{THREE_DIGITS[microseconds]}{THREE_DIGITS[nanoseconds]}Z"


def date_of(time_ns: int) -> str:
    """`2026-11-21`."""
    return _second(time_ns // 1_000_000_000).partition("T")[0]


def clock_time(time_ns: int) -> str:
    """`04:00:00.123456`; truncated to microseconds, as in tcpdump."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)[-8:]}.{rest // 1000:06d}"


def duration(nanoseconds: int) -> str:
    """A duration with three digits and a unit: `1.23 ms`, `502 ms`, `4.20 s`, `17.0 µs`. Hot."""
    # The limits are where rounding to three digits reaches the next unit.
    if 999_500 <= nanoseconds < 999_500_000:
        value, unit = nanoseconds / 1e6, "ms"
    elif 1_000 <= nanoseconds < 999_500:
        value, unit = nanoseconds / 1e3, "µs"
    elif nanoseconds < 0:
        return f"-{duration(-nanoseconds)}"
    elif nanoseconds < 1_000:
        return f"{nanoseconds} ns"
    elif nanoseconds < 999_500_000_000:
        value, unit = nanoseconds / 1e9, "s"
    else:
        return f"{nanoseconds / 1e9:,.0f} s"
    if value < 9.995:
        return f"{value:.2f} {unit}"
    return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"


def milliseconds_date(milliseconds: int) -> str | None:
    """A timestamp of the protocol (ms since the epoch) as `2026-11-21T04:00:00.123Z`; None if it is not a time.

    Negative ones are codes (`-1` none, ListOffsets' specials), zero is unset, and no clock shows a time beyond the
    year 9999.
    """
    if not 0 < milliseconds < 253_402_300_800_000:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"
