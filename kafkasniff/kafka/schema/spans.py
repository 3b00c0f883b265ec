"""Bytes of a message and their meaning, field by field.

The walker notes them (`walker.walk`); views of bytes, and whatever hides parts of a message, look fields up by them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kafkasniff.kafka.schema.layout import Field

__all__ = ["UNKNOWN_TAG", "Span", "value_at"]

UNKNOWN_TAG: Final = "unknown tagged field"
"""Type of a span: a tagged field that this version of the definition does not have."""


class Span(msgspec.Struct):
    """Bytes and their meaning; the spans of a message follow one another without gaps."""

    start: int
    """Absolute offset in the data."""
    end: int
    path: str
    """Path in the body: `topics[0].name`."""
    type: str
    """The type on the wire: `int32`, `compact string`, `count of []` …"""
    value: Any
    """The value as in the body; a number for counts."""
    field: Field | None = None
    """The definition of a string, bytes or records at this place, after their length; None for all else."""

    def content(self, data: bytes) -> int:
        """Start of the part that may be hidden: strings, bytes and records after their length, others at their start.

        The bytes of tagged fields without a definition have their own span.
        """
        if self.field is None:
            return self.start
        if not self.field.compact:
            return self.start + (2 if self.field.type == "string" else 4)
        position = self.start
        while data[position] > 0x7F:
            position += 1
        return position + 1


def value_at(body: Any, path: str) -> Any:
    """The value at the path of a span; None if the body has none."""
    for step in path.split("."):
        name, _, index = step.partition("[")
        body = body.get(name)
        if index and body is not None:
            place = int(index[:-1])
            body = body[place] if place < len(body) else None
        if body is None:
            return None
    return body
