"""Writes decoded bodies again, by their layout and in the shortest form.

Like `tests.craft.from_layout`, it shares the layout with the decoders, but neither formats nor code.
"""

from __future__ import annotations

import struct
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from kafkasniff.kafka.schema.definition import Field, Struct
from tests.craft.kafka_bytes import unsigned_varint

_INTEGERS: Final = {"int8": 1, "int16": 2, "error": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}


def rewritten(layout: Struct, body: Mapping[str, Any]) -> bytes:
    """The bytes of a body without `records` fields that holds all of its layout's fields."""
    out = b"".join(_field(field, body[field.name]) for field in layout.fields)
    if not layout.flexible:
        return out
    tags = {one["tag"]: b64decode(one["base64"]) for one in body.get("_unknown_tags", ())}
    for field in layout.tagged:
        if field.name in body:
            assert field.tag is not None
            tags[field.tag] = _field(field, body[field.name])
    out += unsigned_varint(len(tags))
    return out + b"".join(
        unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in sorted(tags.items())
    )


def _count(field: Field, count: int | None, width: int) -> bytes:
    """A length or count; None for null."""
    if field.compact:
        return unsigned_varint(0 if count is None else count + 1)
    return (-1 if count is None else count).to_bytes(width, "big", signed=True)


def _field(field: Field, value: Any) -> bytes:
    if field.array:
        if value is None:
            return _count(field, None, 4)
        return _count(field, len(value), 4) + b"".join(_one(field, item) for item in value)
    if field.struct is not None and field.nullable:
        present, missing = (b"\1", b"\0") if field.tag is not None else (b"\1", b"\xff")
        return missing if value is None else present + rewritten(field.struct, value)
    return _one(field, value)


def _one(field: Field, value: Any) -> bytes:
    if field.struct is not None:
        return rewritten(field.struct, value)
    if field.type in _INTEGERS:
        return int(value).to_bytes(_INTEGERS[field.type], "big", signed=not field.type.startswith("u"))
    if field.type == "bool":
        return bytes((value,))
    if field.type == "float64":
        return struct.pack(">d", value)
    if field.type == "uuid":
        return urlsafe_b64decode(value + "==")
    assert field.type in ("string", "bytes")
    width = 2 if field.type == "string" else 4
    if value is None:
        return _count(field, None, width)
    data = value.encode() if isinstance(value, str) else value
    return _count(field, len(data), width) + data
