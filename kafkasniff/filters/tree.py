"""The tree of predicates: plain data, that can be compared, pickled and sent to other processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from kafkasniff.moments import Moment

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

Operator = Literal["==", "!=", "in", "not in", "<", "<=", ">", ">=", "=~", "!~", "glob", "exists"]

Scalar = str | int | float


class Compare(msgspec.Struct, frozen=True):
    """A comparison of a field with a constant.

    A field may have several values, or none. `exists` is true where it has one; `!=`, `not in` and `!~` where it has
    one and `==`, `in` and `=~` hold for none of them; all others where they hold for any of them.
    """

    field: str
    """A name of `fields.FIELDS`, or a path into a body (`request.topic_data.name`)."""
    operator: Operator
    value: Scalar | Moment | tuple[Scalar, ...] | None = None
    """In the form that the field's values have: keys of APIs, error codes, nanoseconds. Of `=~` and `!~` the pattern,
    of `in` and `not in` a tuple; None with `exists` only."""


class And(msgspec.Struct, frozen=True):
    """True where all parts are, False where a part is, whatever the others will be."""

    parts: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True):
    """True where a part is, whatever the others will be; False where all are."""

    parts: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True):
    """True where the part is False, False where it is True: its complement."""

    part: Predicate


Predicate = Compare | And | Or | Not


def all_of(parts: Iterable[Predicate | None]) -> Predicate | None:
    """All predicates together; None (everything) where there are none."""
    found = tuple(part for part in parts if part is not None)
    return found[0] if len(found) == 1 else And(found) if found else None


def any_of(parts: Iterable[Predicate]) -> Predicate | None:
    """Any of the predicates; None (everything) where there are none."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Or(found) if found else None


def fields_of(predicate: Predicate | None) -> frozenset[str]:
    """The fields that a predicate asks about."""
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
    """Whether a predicate asks for names that may be told after the message that has the topic's id."""
    return any(field == "topic" or field.endswith("._topic_name") for field in fields_of(predicate))


def needs_records(predicate: Predicate | None) -> bool:
    """Whether a predicate looks into record batches: then records have to be decoded in full."""
    return any(field == "trace_id" or ".batches.records." in f"{field}." for field in fields_of(predicate))
