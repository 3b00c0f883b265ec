"""Bodies as Kafka writes them into logs: JSON of its `…JsonConverter` classes, and `toString` of its `…Data` classes.

`encode` makes messages of their values, by the layout: the inverse of the walker.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.dissectors import api, snake_case
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.definition import FORMATS, Field, Struct
from kafkasniff.kafka.schema.schema import data_schema
from kafkasniff.model import Direction


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


_NAME: Final = re.compile(r"\w+\(")
_STRING_END: Final = re.compile(r"'(?=[,)\]}]|$)")
_WORD: Final = re.compile(r"[^,()\[\]]*")
_RECORDS: Final = re.compile(r"MemoryRecords\(size=(\d{1,9}), buffer=[\w.$]+\[[^\]]*\]\)")


class _Word(str):
    """A number, a truth value, null or an id, as written."""


def parse_text(text: str) -> dict[str, Any]:
    """The fields of an object that a class of Kafka printed: `Name(one=1, two='x', three=[…])`; more may follow.

    Records are their size. Raises ValueError or RecursionError.
    """
    value, _ = _parse(text, 0)
    if not isinstance(value, dict):
        raise TypeError(f"{text!r:.40} is not an object")
    return value


def _parse(text: str, at: int) -> tuple[Any, int]:
    """A value, and the position after it."""
    if text[at : at + 1] == "'":
        end = _STRING_END.search(text, at + 1)
        if end is None:
            raise ValueError("a string does not end")
        return text[at + 1 : end.start()], end.end()
    if text[at : at + 1] == "[":
        items: list[Any] = []
        at += 1
        while text[at : at + 1] != "]":
            item, at = _parse(text, at)
            items.append(item)
            at = _after_comma(text, at, "]")
        return items, at + 1
    if match := _RECORDS.match(text, at):
        return int(match[1]), match.end()
    if match := _NAME.match(text, at):
        fields: dict[str, Any] = {}
        at = match.end()
        while text[at : at + 1] != ")":
            name, equals, _ = text[at : at + 100].partition("=")
            if not equals:
                raise ValueError("a field has no value")
            fields[our_name(name)], at = _parse(text, at + len(name) + 1)
            at = _after_comma(text, at, ")")
        return fields, at + 1
    word = _WORD.match(text, at)
    if word is None or word.end() == at:
        raise ValueError("a value is missing")
    return _Word(word[0]), word.end()


def _after_comma(text: str, at: int, end: str) -> int:
    if text[at : at + 2] == ", ":
        return at + 2
    if text[at : at + 1] != end:
        raise ValueError(f"{text[at : at + 20]!r} follows a value")
    return at


def values_of_text(struct: Struct, given: Any, sizes: list[int]) -> dict[str, Any]:
    """The values of a struct for `encode`, of `parse_text`; fields of other versions are ignored. As `values_of`."""
    if not isinstance(given, dict):
        raise TypeError(f"{given!r:.40} is not an object")
    values = {}
    for field in (*struct.fields, *struct.tagged):
        if field.name in given:
            value = _of_text(field, given[field.name], sizes)
            # Classes omit tagged fields that have their default.
            if field.tag is None or not _is_default(field, value):
                values[field.name] = value
        elif field.tag is None:
            raise ValueError(f"{field.name} is missing")
    return values


def _of_text(field: Field, value: Any, sizes: list[int]) -> Any:
    if value.__class__ is _Word and value == "null":
        return _value(field, None, sizes)
    if isinstance(value, list) and field.type in ("bytes", "records") and not field.array:
        return bytes(int(byte) & 0xFF for byte in value)
    if field.array:
        if not isinstance(value, list):
            raise TypeError(f"{field.name} is not a list")
        return [_of_text(_element(field), one, sizes) for one in value]
    if field.struct is not None:
        return values_of_text(field.struct, value, sizes)
    if value.__class__ is _Word and field.type == "string":
        # In arrays they have no quotes.
        return str(value)
    if value.__class__ is _Word and field.type != "uuid":
        value = value == "true" if field.type == "bool" else float(value) if field.type == "float64" else int(value)
    return _value(field, value, sizes)


@functools.lru_cache(maxsize=4096)
def _element(field: Field) -> Field:
    return msgspec.structs.replace(field, array=False)


def _is_default(field: Field, value: Any) -> bool:
    if isinstance(value, dict) and field.struct is not None:
        fields = {one.name: one for one in (*field.struct.fields, *field.struct.tagged)}
        return all(_is_default(fields[name], inner) for name, inner in value.items())
    if field.type == "uuid":
        return not any(value)
    if field.type == "bool":
        return bool(value == (field.default == "true"))
    if field.default is None or isinstance(value, list | bytes):
        return not value
    return str(value) == field.default or (value is None and field.default == "null")


def message_of(direction: Direction, header: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """A request or response; `header`: the fields of both headers. Raises as `encode`."""
    known, version = api(header["request_api_key"]), header["request_api_version"]
    if known is None or version not in known.versions:
        raise ValueError(f"version {version} of API {header['request_api_key']} is unknown")
    body = known.request(version) if direction == "request" else known.response(version)
    return header_of(direction, header) + encode(body.root, values)


def header_of(direction: Direction, header: Mapping[str, Any]) -> bytes:
    """The header of a message of a known API, even in unknown versions. Raises as `encode`."""
    known, version = api(header["request_api_key"]), header["request_api_version"]
    assert known is not None
    if direction == "request":
        head = data_schema("RequestHeader", known.request_header(version))
    else:
        head = data_schema("ResponseHeader", known.response_header(version))
    assert head is not None
    return encode(head.root, header)


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
