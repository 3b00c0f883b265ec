"""Phrases of findings. What comes from the wire goes through `word`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkasniff.sinks.printable import word
from kafkasniff.sinks.times import duration

__all__ = ["client", "plural", "some", "span", "subject"]


def client(row: Mapping[str, Any]) -> str:
    """`app at 10.0.0.5`."""
    who = "a client without an id" if row["client_id"] is None else word(row["client_id"])
    return f"{who} at {word(row['client_ip'])}" if row["client_ip"] is not None else who


def plural(number: int, noun: str, more: str | None = None) -> str:
    """`1 request`, `1,200 requests`; `more` where the noun does not just take an s."""
    return f"{number:,} {noun if number == 1 else more or f'{noun}s'}"


def some(names: Sequence[object], shown: int = 3) -> str:
    """`a, b, c and 4 more`; words from the wire made safe."""
    told = ", ".join(word(name) for name in names[:shown])
    return f"{told} and {len(names) - shown:,} more" if len(names) > shown else told


def span(first: int | None, last: int | None) -> str:
    """` within 3.20 s`; nothing where there is no time, or none went by."""
    return f" within {duration(last - first)}" if first is not None and last is not None and last > first else ""


def subject(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some values of a row."""
    return {name: row[name] for name in names}
