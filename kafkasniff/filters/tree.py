"""The tree of predicates: plain data that can be compared, pickled and sent to other processes.

Filter options without an expression (`--api`, `--topic`, `--client-id`, `--host`, `--errors`) make trees here. Times
and durations are parsed as people write them: `+10s`, `04:00:00`, RFC 3339, `250us`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.model import Endpoint

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


Operator = Literal[
    "==", "!=", "in", "not in", "<", "<=", ">", ">=", "=~", "!~", "contains", "startswith", "endswith", "glob", "exists"
]

Scalar = str | int | float


class Compare(msgspec.Struct, frozen=True):
    """A comparison of a field with a constant.

    A field may have several values, or none. `exists` is true if it has a value; `!=`, `not in` and `!~` if it has one
    and `==`, `in` and `=~` hold for none of them; all others if they hold for any of them.
    """

    field: str
    """A name of `fields.FIELDS`, or a path into a body (`request.topic_data.name`)."""
    operator: Operator
    value: Scalar | Moment | tuple[Scalar, ...] | None = None
    """In the representation of the field's values: keys of APIs, error codes, nanoseconds. The pattern for `=~` and
    `!~`, a tuple for `in` and `not in`; None with `exists` only."""


class And(msgspec.Struct, frozen=True):
    """True if all parts are, False if any part is, whatever the others."""

    parts: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True):
    """True if any part is, whatever the others; False if all are."""

    parts: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True):
    """True if the part is False, False if it is True: its complement."""

    part: Predicate


Predicate = Compare | And | Or | Not


def all_of(parts: Iterable[Predicate | None]) -> Predicate | None:
    """The conjunction of predicates; None (everything) if there are none."""
    found = tuple(part for part in parts if part is not None)
    return found[0] if len(found) == 1 else And(found) if found else None


def any_of(parts: Iterable[Predicate]) -> Predicate | None:
    """The disjunction of predicates; None (everything) if there are none."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Or(found) if found else None


def fields_of(predicate: Predicate | None) -> frozenset[str]:
    """The fields that a predicate uses."""
    match predicate:
        case None:
            return frozenset()
        case Compare():
            return frozenset({predicate.field})
        case Not():
            return fields_of(predicate.part)
        case And() | Or():
            return frozenset().union(*map(fields_of, predicate.parts))


def needs_topic_names(predicate: Predicate | None) -> bool:
    """Whether a predicate uses topic names, which may become known only after the message with the topic's id."""
    names = ("topic", "topic_partition", "record.place")
    return any(field in names or field.endswith("._topic_name") for field in fields_of(predicate))


def needs_records(predicate: Predicate | None) -> bool:
    """Whether a predicate uses records: then record batches have to be decoded in full."""
    return any(
        field in ("record", "trace_id") or field.startswith("record.") or ".batches.records." in f"{field}."
        for field in fields_of(predicate)
    )


def api_filter(names: Sequence[str]) -> Predicate | None:
    """Exchanges of these APIs: names or keys, or comma lists of them. Raises UsageError for an unknown name."""
    keys = []
    for name in (part.strip() for text in names for part in text.split(",")):
        if re.fullmatch(r"\d{1,5}", name):
            # Any number: APIs that are newer than the definitions have keys, too.
            keys.append(int(name))
            continue
        keys.append(dissectors.find_api(name).key)
    return any_of(Compare("api", "==", key) for key in keys)


def topic_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges that name one of these topics; `*`, `?` and `[…]` as in a shell."""
    # Kafka's topic names only contain letters, digits, ".", "_" and "-", so a pattern cannot be a name.
    return any_of(Compare("topic", "glob" if re.search(r"[*?\[]", pattern) else "==", pattern) for pattern in patterns)


def client_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges of clients with one of these ids, as a name or as a pattern: an id may contain any character."""
    return any_of(
        Or((Compare("client_id", "==", pattern), Compare("client_id", "glob", pattern))) for pattern in patterns
    )


def error_filter() -> Predicate:
    """Exchanges whose response has an error code."""
    return Compare("error", "!=", 0)


def host_filter(text: str) -> Predicate:
    """Exchanges with this endpoint; see `host_text`. Raises UsageError."""
    return Compare("host", "==", host_text(text))


def host_text(text: str) -> str:
    """`10.0.0.5`, `10.0.0.5:9092`, `::1`, `[::1]` or `[::1]:9092` in the notation used for endpoints.

    Raises UsageError for anything else.
    """
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d{1,5}))?|([0-9.]+):(\d{1,5})|([0-9A-Fa-f:.]+)", text)
    address = match and (match[1] or match[3] or match[5])
    try:
        shown = str(ipaddress.ip_address(address or text))
    except ValueError:
        raise UsageError(f"{text!r} is not an address (10.0.0.5, 10.0.0.5:9092, ::1, [::1]:9092)") from None
    port = match and (match[2] or match[4])
    return str(Endpoint(shown, int(port))) if port else shown
