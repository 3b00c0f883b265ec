"""Where the schema of a key or value is named, and where its data begins: the framings of registries' serializers.

| framing | before the data | in record headers |
| --- | --- | --- |
| Confluent | 0, int32 id; Protobuf: message indexes | `__value_schema_id`: 0, int32 id or 1, GUID; then indexes |
| Apicurio | 0, int64 id; Protobuf: size and name of the message | `apicurio.value.globalId` or `.contentId`: int64 |
| AWS Glue | 3, 0 or 5 (zlib), GUID | |

Apicurio's serializers can also write Confluent's. Where the framing precedes the data, nothing says that it is one.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal, NamedTuple

from kafkasniff.kafka.record_facts.schema_registry import (
    GUID_SIZE,
    HEADERS,
    ID_SIZE,
    MAX_ID,
    MIN_ID,
    guid_text,
    message_indexes,
)
from kafkasniff.values.schemas import FIRST_MESSAGE, MAX_VALUE, MalformedValueError, MessagePlace, SchemaKind

__all__ = ["HEADER_NAMES", "Format", "Framing", "data_of", "framing_of"]

Format = Literal["schema-registry", "apicurio", "aws-glue", "schema-file"]

_LONG_ID: Final = 9
"""The zero byte and the int64 id."""
_GLUE: Final = 18
"""The version of the header, its compression and the GUID."""
_GLUE_VERSION: Final = 3
_PLAIN: Final = 0
_ZLIB: Final = 5
_NAME_FIELD: Final = 0x0A
"""Field 1, a string of less than 128 bytes."""
_TYPE: Final = "apicurio.protobuf.type"
_APICURIO: Final = {
    f"apicurio.{field}.{name}": f"_{field}" for field in ("key", "value") for name in ("globalId", "contentId")
}
HEADER_NAMES: Final = frozenset({*HEADERS, *_APICURIO})
"""Record headers that may name a schema."""


class Framing(NamedTuple):
    """How a value names its schema."""

    format: Format
    key: int | str
    """The schema's id or GUID."""
    start: int
    """Position of the data, or of its message indexes."""
    sure: bool
    """No other bytes look like this."""
    header: bytes | None = None
    """What record headers say of a Protobuf message: its indexes (Confluent), or its name (Apicurio)."""
    zlib: bool = False


def framing_of(record: dict[str, Any], target: str, data: bytes) -> Framing | None:
    """How the key (`target` `_key`) or value (`_value`) of a record names its schema; None if it does not. Hot."""
    headers = record.get("headers")
    if headers:
        found = _in_headers(headers, target)
        if found is not None:
            return found
    if data[:1] == b"\0":
        number = int.from_bytes(data[1:ID_SIZE], "big")
        if number:
            if len(data) <= ID_SIZE or not MIN_ID <= number <= MAX_ID:
                return None
            return Framing("schema-registry", number, ID_SIZE, target in record)
        number = int.from_bytes(data[ID_SIZE:_LONG_ID], "big")
        if len(data) > _LONG_ID and MIN_ID <= number <= MAX_ID:
            return Framing("apicurio", number, _LONG_ID, False)
    elif len(data) > _GLUE and data[0] == _GLUE_VERSION and data[1] in (_PLAIN, _ZLIB):
        return Framing("aws-glue", guid_text(data[2:_GLUE]), _GLUE, False, zlib=data[1] == _ZLIB)
    return None


def _in_headers(headers: list[dict[str, Any]], target: str) -> Framing | None:
    found: Framing | None = None
    message: bytes | None = None
    for header in headers:
        name, value = header["key"], header["value"]
        if not isinstance(value, bytes):
            continue
        # Among several of one name the last counts, as in the deserializers.
        if HEADERS.get(name) == target:
            if value[:1] == b"\1" and len(value) >= GUID_SIZE:
                key: int | str = guid_text(value[1:GUID_SIZE])
                found = Framing("schema-registry", key, 0, True, value[GUID_SIZE:])
            elif value[:1] == b"\0" and len(value) >= ID_SIZE:
                key = int.from_bytes(value[1:ID_SIZE], "big")
                found = Framing("schema-registry", key, 0, True, value[ID_SIZE:])
        elif _APICURIO.get(name) == target and len(value) == _LONG_ID - 1:
            found = Framing("apicurio", int.from_bytes(value, "big"), 0, True)
        elif name == _TYPE:
            message = value
    return found._replace(header=message) if found is not None and found.format == "apicurio" else found


def data_of(framing: Framing, kind: SchemaKind, data: bytes) -> tuple[bytes, int, MessagePlace]:
    """The bytes of a value, where its data begins, and which message it is. Raises MalformedValueError. Hot."""
    start = framing.start
    if framing.zlib:
        data, start = _inflated(data, start), 0
    if kind != "PROTOBUF":
        return data, start, FIRST_MESSAGE
    if framing.format == "schema-registry":
        if framing.header is not None:
            named = message_indexes(framing.header, 0)
            return data, start, FIRST_MESSAGE if named is None else named[0]
        found = message_indexes(data, start)
        if found is None:
            raise MalformedValueError("its message indexes are malformed")
        return data, found[1], found[0]
    if framing.format == "apicurio":
        if framing.header is not None:
            return data, start, framing.header.decode(errors="replace")
        if start:
            return (data, *_reference(data, start))
    return data, start, FIRST_MESSAGE


def _reference(data: bytes, start: int) -> tuple[int, MessagePlace]:
    """What Apicurio's serializer writes before a Protobuf message: another one with the name of its type."""
    end = start + 1 + data[start]
    name = data[start + 3 : end]
    if not name or end > len(data) or data[start + 1 : start + 3] != bytes((_NAME_FIELD, len(name))):
        raise MalformedValueError("it does not begin with the name of its type")
    return end, name.decode(errors="replace")


def _inflated(data: bytes, start: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data[start:], MAX_VALUE)
    except zlib.error:
        raise MalformedValueError("its compressed data is damaged") from None
    if not inflater.eof:
        raise MalformedValueError(f"it is truncated, or larger than {MAX_VALUE >> 20} MiB")
    return found
