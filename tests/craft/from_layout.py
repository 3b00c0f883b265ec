"""Messages with given values, by their layout: what is not given is zero, empty or null; tagged fields are not there.

As `tests.kafka.encode` it shares the layout with the decoders, and neither formats nor code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema import data_schemas
from kafkasniff.kafka.schema.layout import Field, Struct
from tests.craft.kafka_bytes import int32, request, response, unsigned_varint

SIZES = {"bool": 1, "int8": 1, "int16": 2, "error": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uuid": 16}


def encoded(struct: Struct, values: Mapping[str, Any]) -> bytes:
    """A body."""
    assert values.keys() <= {field.name for field in (*struct.fields, *struct.tagged)}
    out = b"".join(_field(field, values.get(field.name)) for field in struct.fields)
    if not struct.flexible:
        return out
    tagged = [(field.tag or 0, _field(field, values[field.name])) for field in struct.tagged if field.name in values]
    return (
        out
        + unsigned_varint(len(tagged))
        + b"".join(unsigned_varint(tag) + unsigned_varint(len(value)) + value for tag, value in tagged)
    )


def _field(field: Field, value: Any) -> bytes:
    if field.array:
        items: Sequence[Any] = value or ()
        count = unsigned_varint(len(items) + 1) if field.compact else int32(len(items))
        return count + b"".join(_one(field, item) for item in items)
    return _one(field, value)


def _one(field: Field, value: Any) -> bytes:
    if field.struct is not None:
        if not field.nullable or field.array:
            return encoded(field.struct, value or {})
        if value is None:
            return b"\xff" if field.tag is None else b"\0"
        return b"\1" + encoded(field.struct, value)
    if field.type == "float64":
        return pack(">d", value or 0.0)
    if field.type in SIZES:
        if isinstance(value, bytes):
            return value
        return int(value or 0).to_bytes(SIZES[field.type], "big", signed=field.type not in {"uint16", "uint32", "uuid"})
    if value is None and field.nullable:
        return b"\0" if field.compact else (-1).to_bytes(2 if field.type == "string" else 4, "big", signed=True)
    data = value.encode() if isinstance(value, str) else value or b""
    if field.compact:
        return unsigned_varint(len(data) + 1) + data
    return len(data).to_bytes(2 if field.type == "string" else 4, "big") + data


def request_bytes(api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
    """A request with its length prefix."""
    api = dissectors.api(api_key)
    assert api is not None
    body = encoded(api.request(version).root, values)
    return request(api_key, version, correlation_id, body, flexible=api.request_header(version) > 1)


def response_bytes(api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
    """A response with its length prefix."""
    api = dissectors.api(api_key)
    assert api is not None
    body = encoded(api.response(version).root, values)
    return response(correlation_id, body, flexible=api.response_header(version) > 0)


def data_bytes(name: str, version: int, /, **values: Any) -> bytes:
    """The fields of a `data` block."""
    schema = data_schemas.data_schema(name, version)
    assert schema is not None
    return encoded(schema.root, values)
