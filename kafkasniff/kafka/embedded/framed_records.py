"""Values of records that carry their type: unsigned varints of frame version (1), type and version, then the body.

KRaft's metadata log and the topic of tiered storage have them (`org.apache.kafka.server.common.serialization.
AbstractApiMessageSerde`, frame version 1 since 3.0).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, Literal

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.data_schemas import data_definition, data_schema
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.wire import Odd, varint_rest

__all__ = ["FramedRecord", "read_framed"]

FRAME_VERSION: Final = 1


class FramedRecord(msgspec.Struct, frozen=True):
    """A decoded value."""

    value: dict[str, Any] | None
    """`{"type", "version", "value"}`: Kafka's name of the record, its version and its fields; None if it cannot be
    decoded."""
    secret: bool
    """The bytes hold a secret, or could not be decoded to their end and may hold one."""
    problems: tuple[str, ...] = ()
    """Its problems."""


@functools.lru_cache(maxsize=1024)  # more than there are; types that do not exist come from the wire
def _definition(kind: str, number: int) -> DataDefinition | None:
    return data_definition(kind, number)


def read_framed(value: bytes, kind: Literal["metadata", "remote-log"], options: DecodeOptions) -> FramedRecord:
    """Decode a record's value by the definitions of `kind`. Never raises for bad bytes."""
    try:
        frame_version, position = _varint(value, 0)
        number, position = _varint(value, position)
        version, position = _varint(value, position)
    except (Odd, IndexError):
        return FramedRecord(None, True, ("its value does not begin with the varints of a frame, a type and a version",))
    if frame_version != FRAME_VERSION:
        return FramedRecord(None, True, (f"unknown frame version {frame_version}",))
    definition = _definition(kind, number)
    if definition is None:
        return FramedRecord(None, True, (f"unknown record type {number}",))
    name = definition.message.name
    schema = data_schema(name, version)
    if schema is None:
        return FramedRecord(None, True, (f"unknown version {version} of {name}",))
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(options)
    read = schema.read(value, position, len(value), inside)
    problems = tuple(f"{name}: {problem.detail}" for problem in inside.problems)
    if not read.complete:
        return FramedRecord(None, True, problems)
    left = len(value) - read.position
    if left:
        problems += (f"{left} surplus bytes after a {name}",)
    number_of_quota = read.body.get("value")
    if isinstance(number_of_quota, float) and not math.isfinite(number_of_quota):
        # As everywhere in JSON; done here, so that nobody has to search for the one record with a float64.
        read.body["value"] = "NaN" if math.isnan(number_of_quota) else f"{'-' * (number_of_quota < 0)}Infinity"
    fields = {"type": name, "version": version, "value": read.body}
    return FramedRecord(fields, bool(left) or (schema.has_secrets and _is_redacted(read.body)), problems)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    return varint_rest(data, position + 1, value) if value > 0x7F else (value, position + 1)


def _is_redacted(value: object) -> bool:
    """Whether something in a decoded value was redacted."""
    if isinstance(value, dict):
        return "redacted" in value or any(map(_is_redacted, value.values()))
    return isinstance(value, list) and any(map(_is_redacted, value))
