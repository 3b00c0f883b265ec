"""Times and durations as people write them: `+10s`, `04:00:00`, RFC 3339, `250us`."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

from kafkasniff.errors import UsageError

__all__ = ["Moment", "parse_duration", "parse_moment"]

_DAY: Final = 86_400_000_000_000


class Moment(msgspec.Struct, frozen=True):
    """A point in time that depends on the capture's first packet."""

    offset_ns: int | None = None
    """Relative to the first packet …"""
    day_ns: int | None = None
    """… or a time of day (UTC) on the first packet's date."""

    def resolve(self, start_ns: int | None) -> int | None:
        """Nanoseconds since the epoch; None while the first packet's time is unknown."""
        if start_ns is None:
            return None
        if self.offset_ns is not None:
            return start_ns + self.offset_ns
        return start_ns - start_ns % _DAY + (self.day_ns or 0)


_UNITS: Final = {
    **{"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000},
    **{"h": 60 * 60_000_000_000, "d": _DAY},
}


def parse_duration(text: str) -> int:
    """`10ms`, `1.5s`, `250us`, `2m`, `30d` in nanoseconds; a bare number is milliseconds. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-zµ]*)", text.strip())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None:
        raise UsageError(f"{text!r} is not a duration (10ms, 1.5s, 250us)")
    return int(Decimal(match[1]) * unit)


_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s*([Zz]|[+-]\d\d:?\d\d)?",
)
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?")


def parse_moment(text: str) -> int | Moment:
    """RFC 3339 (UTC without a zone) in ns since the epoch; `HH:MM[:SS[.f]]` or `+10s` as a `Moment`.

    Raises UsageError.
    """
    text = text.strip()
    if text.startswith("+"):
        return Moment(offset_ns=parse_duration(text[1:] + ("s" if text[-1].isdigit() else "")))
    if match := _CLOCK.fullmatch(text):
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
        return Moment(day_ns=seconds * 1_000_000_000 + int((match[4] or "").ljust(9, "0")))
    if match := _DATE.fullmatch(text):
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}{(match[4] or 'Z').upper()}")
        except ValueError:
            moment = None
        if moment is not None:
            return int(moment.timestamp()) * 1_000_000_000 + int((match[3] or "").ljust(9, "0"))
    raise UsageError(f"{text!r} is not a time (2026-11-21T04:00:00Z, 04:00:00, +10s)")
