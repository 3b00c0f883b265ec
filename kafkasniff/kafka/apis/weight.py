"""Memory of decoded messages, in bytes: a quick estimate, or an exact count where needed."""

from __future__ import annotations

from functools import lru_cache
from sys import getsizeof
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.context import RenderedBody, RenderedRecords
from kafkasniff.kafka.schema.definition import FieldDefinition, MessageDefinition
from kafkasniff.model import Body, Direction

BODY_RATIO: Final = 128
"""Maximum memory per byte of a body without records: a struct of two empty fields takes two bytes on the wire and some
250 in memory."""
RECORD_BYTES: Final = 400
"""Memory of a record, or of a batch, without keys and values."""

SCALAR_BYTES: Final = 64
"""Memory of an element of an array of numbers or strings, without a string's characters."""


class _CountedParts(NamedTuple):
    """The counted parts of a struct, over all versions."""

    each: int
    """Memory of the struct itself."""
    records: tuple[str, ...]
    scalars: tuple[str, ...]
    """Arrays of numbers and strings."""
    inner: tuple[tuple[str, _CountedParts], ...]
    """Arrays of structs, and structs with counted parts."""
    nested: str | None = None
    """Field name of the decoded nested message; only for a whole message."""

    @property
    def counts(self) -> bool:
        """Whether such a struct has counted parts."""
        return bool(self.records or self.scalars or self.inner)


@lru_cache(maxsize=1024)  # keys come from the wire
def _parts_of_request(api_key: int | None) -> _CountedParts | None:
    """How requests that may hold records are weighed; None for all others, for which BODY_RATIO suffices."""
    found = None if api_key is None else api(api_key)
    return None if found is None else _parts_of(found.definition.request)


@lru_cache(maxsize=1024)  # likewise
def _parts_of_response(api_key: int | None) -> _CountedParts | None:
    found = None if api_key is None else api(api_key)
    return None if found is None else _parts_of(found.definition.response)


def _parts_of(message: MessageDefinition) -> _CountedParts | None:
    if not (message.has_records or message.nested):
        return None
    parts = _parts_in(message.fields)
    return parts if message.nested is None else parts._replace(nested=f"_{message.nested[1]}")


def _parts_in(fields: tuple[FieldDefinition, ...]) -> _CountedParts:
    records = tuple(field.name for field in fields if field.type == "records")
    scalars = tuple(field.name for field in fields if field.array and field.type not in {"struct", "records"})
    structs = [(field, _parts_in(field.fields)) for field in fields if field.type == "struct"]
    inner = tuple((field.name, parts) for field, parts in structs if field.array or parts.counts)
    return _CountedParts(2 * RECORD_BYTES if records else RECORD_BYTES, records, scalars, inner)


def has_records(api_key: int | None, direction: Direction) -> bool:
    """Whether `likely_bytes` counts the records of such messages, so that it does not use BODY_RATIO."""
    parts = _parts_of_request(api_key) if direction == "request" else _parts_of_response(api_key)
    return parts is not None and parts.nested is None


def likely_bytes(api_key: int | None, direction: Direction, size: int, body: Body | RenderedBody | None) -> int:
    """Approximate memory of a message of `size` bytes on the wire, or more. Hot: only counts records."""
    if body is None:
        return size
    if isinstance(body, RenderedBody):
        return size + len(body.json)
    parts = _parts_of_request(api_key) if direction == "request" else _parts_of_response(api_key)
    if parts is None:
        return size * BODY_RATIO
    total = _counted(parts, body)
    if parts.nested is None:
        return size + total
    inside = body.get(parts.nested)
    if inside is not None:
        total += likely_bytes(inside["api_key"], direction, 0, inside["body"])
    return size * BODY_RATIO + total


def _counted(parts: _CountedParts, struct: Body) -> int:
    """Memory of the counted parts of a struct. Hot."""
    total = 0
    for name in parts.records:
        value = struct.get(name)
        if value.__class__ is list:
            for one in value:
                total += 0 if one is None else _records(one)
        elif value is not None:
            total += _records(value)
    for name in parts.scalars:
        total += SCALAR_BYTES * len(struct.get(name) or ())
    for name, inner in parts.inner:
        value = struct.get(name)
        if not value:
            continue
        structs = (value,) if value.__class__ is dict else value
        total += inner.each * len(structs)
        if inner.counts:
            for one in structs:
                total += _counted(inner, one)
    return total


def _records(field: Any) -> int:
    """Memory of a `records` field."""
    if field.__class__ is RenderedRecords:
        # Its JSON, and its bytes on the wire.
        return 2 * len(field.json)
    total = 0
    for batch in field["batches"]:
        records = batch.get("records") or ()
        total += RECORD_BYTES + RECORD_BYTES * len(records)
        if batch.get("compression") != "none":
            total += sum([len(record.get("key") or b"") + len(record.get("value") or b"") for record in records])
    return total


def body_bytes(value: Any) -> int:
    """Memory of a body, by all its parts; objects that it holds twice count twice."""
    total = 0
    left = [value]
    while left:
        rendered_records = left.pop()
        if rendered_records is None or rendered_records is True or rendered_records is False:
            continue
        if rendered_records.__class__ is RenderedRecords:
            total += 2 * len(rendered_records.json)
            continue
        total += getsizeof(rendered_records)
        if isinstance(rendered_records, dict):
            left.extend(rendered_records.values())
        elif rendered_records.__class__ is list or rendered_records.__class__ is tuple:
            left.extend(rendered_records)
    return total
