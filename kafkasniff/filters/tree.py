"""The tree of predicates: plain data that can be compared, pickled and sent to other processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from kafkasniff.filters.time_parsing import Moment

__all__ = [
    "And",
    "Compare",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "Scalar",
    "all_of",
    "any_of",
    "fields_of",
    "needs_records",
    "needs_topic_names",
]

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
