"""Messages from values, by their layout: the inverse of the walker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from kafkasniff.kafka.schema.layout import FORMATS, Field, Struct

__all__ = ["encode"]


def encode(struct: Struct, values: Mapping[str, Any]) -> bytes:
    """The bytes of a struct. Values that are not given are zero, empty or null, and tagged fields are not there.

    Strings are texts or bytes, everything else of variable size is bytes, as are uuids.
    Raises ValueError, TypeError or `struct.error` for values that do not fit into their fields.
    """
    out = b"".join([_field(field, values.get(field.name, () if field.array else None)) for field in struct.fields])
    if not struct.flexible:
        return out
    tagged = [(field.tag or 0, _field(field, values[field.name])) for field in struct.tagged if field.name in values]
    sizes = [_varint(tag) + _varint(len(value)) + value for tag, value in tagged]
    return b"".join([out, _varint(len(tagged)), *sizes])


def _field(field: Field, value: Any) -> bytes:
    if not field.array:
        return _one(field, value)
    if value is None and field.nullable:
        return b"\0" if field.compact else pack(">i", -1)
    items: Sequence[Any] = value or ()
    count = _varint(len(items) + 1) if field.compact else pack(">i", len(items))
    return b"".join([count, *(_one(field, item) for item in items)])


def _one(field: Field, value: Any) -> bytes:
    if field.struct is not None:
        if not field.nullable or field.array:
            return encode(field.struct, value or {})
        if value is None:
            return b"\xff" if field.tag is None else b"\0"
        return b"\1" + encode(field.struct, value)
    if field.type in FORMATS:
        form, size = FORMATS[field.type]
        if not value:
            return bytes(size)
        return value if isinstance(value, bytes) and len(value) == size else pack(f">{form}", value)
    if value is None and field.nullable:
        return b"\0" if field.compact else pack(">h" if field.type == "string" else ">i", -1)
    data = value.encode() if isinstance(value, str) else value or b""
    if field.compact:
        return _varint(len(data) + 1) + data
    return pack(">h" if field.type == "string" else ">i", len(data)) + data


def _varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
