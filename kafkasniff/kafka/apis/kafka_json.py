"""Bodies as Kafka's own JSON, which its `…JsonConverter` classes write: in request logs, for one.

`encode` makes messages of their values, by the layout: the inverse of the walker.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from kafkasniff.kafka.apis.dissectors import snake_case
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.definition import FORMATS, Field, Struct


@functools.lru_cache(maxsize=8192)  # more than there are; names that do not exist come from a log
def our_name(name: str) -> str:
    """Our name of a field of Kafka's JSON; Kafka's own name starts with a capital (kRaftVersion: KRaftVersion)."""
    return snake_case(name[:1].upper() + name[1:])


def values_of(struct: Struct, body: Any, sizes: list[int]) -> dict[str, Any]:
    """The values of a struct for `encode`. Records are null, and their sizes are added to `sizes`.

    Names that are unknown here are those of the fields without a value, in order: releases have renamed fields, and
    records have the name of their size.
    Raises ValueError or TypeError, with what is wrong, if the JSON is not that of this struct.
    """
    if not isinstance(body, dict):
        raise TypeError(f"{body!r:.40} is not an object")
    given = {our_name(name): value for name, value in body.items()}
    values: dict[str, Any] = {}
    missing: list[Field] = []
    for field in (*struct.fields, *struct.tagged):
        if field.name in given:
            values[field.name] = _values(field, given.pop(field.name), sizes)
        elif field.tag is None:
            missing.append(field)
    if len(missing) != len(given):
        names = ", ".join(given) or "none"
        raise ValueError(f"fields without a value: {len(missing)}, values without a field: {names!r:.80}")
    values.update((field.name, _values(field, given[name], sizes)) for field, name in zip(missing, given, strict=True))
    return values


def _values(field: Field, value: Any, sizes: list[int]) -> Any:
    if not field.array or value is None:
        return _value(field, value, sizes)
    if not isinstance(value, list):
        raise TypeError(f"{field.name} is not a list")
    return [_value(field, element, sizes) for element in value]


def _value(field: Field, value: Any, sizes: list[int]) -> Any:
    if value is None:
        if not field.nullable:
            raise ValueError(f"{field.name} is null")
        return None
    if field.struct is not None:
        return values_of(field.struct, value, sizes)
    if field.type == "uuid":
        return uuid_bytes(value)
    if field.type == "records" and isinstance(value, int):
        if not 0 <= value < 1 << 31:
            raise ValueError(f"{field.name} cannot have that size")
        sizes.append(value)
        return None
    if field.type in ("bytes", "records"):
        return base64.b64decode(value, validate=True)
    if field.type == "float64":
        return float(value)
    if isinstance(value, str) != (field.type == "string"):
        raise TypeError(f"{field.name} is {value!r:.40}")
    return value


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
