"""Phrases of findings. Text from the wire goes through `word` or `quoted`, numbers are rounded for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkasniff.analysis.accumulator import Known
from kafkasniff.text.printable import printable, word

MAX_QUOTE: Final = 300
"""Maximum number of characters of a wire message that a finding quotes: Kafka's longest usual ones have some 250."""

_MARK: Final = 20
"""Characters of the suffix with the number of missing ones, and a few more: cutting less is not worth it."""
_SHOWN: Final = 3
_TEN: Final = 9.95
"""From here on rounding to one decimal leaves two digits before it, and the decimal adds nothing."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_SHORT: Final = 2 * _MINUTE
"""Durations up to this many seconds are given in seconds alone."""


def client(row: Mapping[str, Any]) -> str:
    """`app at 10.0.0.5`."""
    name = row["client_id"]
    # Older brokers use their number as the client id.
    who = "a client without an id" if name is None else f"{'client ' if name.isdecimal() else ''}{word(name)}"
    return f"{who} at {word(row['client_ip'])}" if row["client_ip"] is not None else who


def plural(number: int, noun: str, more: str | None = None) -> str:
    """`1 request`, `1,200 requests`; `more` is the plural if it is not formed with an s."""
    return f"{number:,} {noun if number == 1 else more or f'{noun}s'}"


def some(names: Sequence[object]) -> str:
    """`a, b, c and 4 more`; words from the wire are made safe."""
    listed = ", ".join(word(name) for name in names[:_SHOWN])
    return f"{listed} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else listed


def span(first: int | None, last: int | None) -> str:
    """` within 3.2 s`; empty if times are unknown or equal."""
    return f" within {elapsed(last - first)}" if first is not None and last is not None and last > first else ""


def elapsed(nanoseconds: float) -> str:
    """A duration in two digits or whole units: `850 µs`, `80 ms`, `1.9 s`, `3 min 20 s`, `5 h 2 min`.

    `text.times.duration` gives three digits, for columns.
    """
    if nanoseconds < 0:
        return f"-{elapsed(-nanoseconds)}"
    if nanoseconds < 1000:
        return f"{nanoseconds:.0f} ns"
    for unit, size in (("µs", 1e3), ("ms", 1e6)):
        # If rounding gives 1,000, the next unit is shorter.
        if nanoseconds / size < 999.5:
            return f"{_two_digits(nanoseconds / size)} {unit}"
    if nanoseconds / 1e9 < _SHORT - 0.5:
        return f"{_two_digits(nanoseconds / 1e9)} s"
    seconds = round(nanoseconds / 1e9)
    if seconds < _HOUR:
        return _two_units(seconds, _MINUTE, "min", 1, "s")
    seconds = round(seconds / _MINUTE) * _MINUTE
    if seconds < _DAY:
        return _two_units(seconds, _HOUR, "h", _MINUTE, "min")
    return _two_units(round(seconds / _HOUR) * _HOUR, _DAY, "d", _HOUR, "h")


def times_as_much(factor: float) -> str:
    """A factor: `2,359×`, `12×`, `3.4×`, `3×`."""
    return f"{_two_digits(factor)}×"


def percent(share: float) -> str:
    """A share: `37%`, `0.4%`; 0% and 100% only if exact."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.995 <= share < 1:
        return ">99%"
    return f"{_two_digits(share * 100)}%"


def quoted(text: object) -> str:
    """A sentence from the wire in quotes, safe to print, `shortened`.

    Values other than strings go through `word`: a redacted value shows its size.
    """
    if not isinstance(text, str):
        return word(text)
    return '"' + printable(shortened(text)).replace('"', '\\"') + '"'


def shortened(text: str) -> str:
    """At most `MAX_QUOTE` characters, and the number of missing ones: `the first words… +725`.

    Cut at a word boundary. The result is not safe to print. Idempotent.
    """
    text = text.strip()
    if len(text) <= MAX_QUOTE + _MARK:
        return text
    kept = text[:MAX_QUOTE]
    space = kept.rfind(" ")
    kept = kept[:space] if space > MAX_QUOTE // 2 else kept
    return f"{kept}… +{len(text) - len(kept):,}"


def _two_digits(value: float) -> str:
    """`3.4`, `3`, `12`, `2,359`: one decimal below ten, unless it is zero."""
    return f"{value:.1f}".removesuffix(".0") if value < _TEN else f"{value:,.0f}"


def _two_units(value: int, large: int, one: str, small: int, other: str) -> str:
    whole, rest = divmod(value, large)
    return f"{whole:,} {one} {rest // small} {other}" if rest else f"{whole:,} {one}"


def in_cluster(clusters: Known, cluster: str | None) -> str:
    """` in cluster ID`, ` in an unknown cluster`; empty if the capture has only one."""
    if not clusters.several:
        return ""
    return " in an unknown cluster" if cluster is None else f" in cluster {word(cluster)}"


def subject(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some values of a row, and its cluster if it has one."""
    found = {name: row[name] for name in names}
    return {**found, "cluster": row["cluster"]} if row.get("cluster") is not None else found
