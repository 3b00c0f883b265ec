"""Paths into bodies (`request.topic_data.name`), checked against the definitions of all APIs and versions.

Fields below one that begins with `_` were decoded from bytes and have no definition at that place: such paths are not
checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kafkasniff.errors import UsageError
from kafkasniff.filters.fields import MILLISECOND, FilterField, Kind
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition, Versions
from kafkasniff.text.printable import closest

__all__ = ["RECORDS", "path_field"]

_ANY: Final = Versions(0, 0x7FFF)
_TEXTS: Final = frozenset({"bytes", "string", "uuid"})
# int64 fields that are times without "timestamp" in their names.
_TIMES: Final = frozenset({"log_append_time_ms", "transaction_start_time_ms"})
_FEW: Final = 12
"""Names listed in a message."""


def _field(name: str, kind: str, *fields: FieldDefinition, array: bool = False) -> FieldDefinition:
    return FieldDefinition(name, kind, array, _ANY, _ANY, fields=fields)


_HEADERS: Final = _field("headers", "struct", _field("key", "string"), _field("value", "bytes"), array=True)
_RECORDS: Final = _field(
    "records",
    "struct",
    *(_field("offset", "int64"), _field("timestamp", "int64"), _field("key", "bytes"), _field("value", "bytes")),
    _HEADERS,
    array=True,
)
_BATCHES: Final = _field(
    "batches",
    "struct",
    *(
        *(_field("base_offset", "int64"), _field("batch_length", "int32"), _field("partition_leader_epoch", "int32")),
        *(_field("magic", "int8"), _field("crc", "uint32"), _field("crc_ok", "bool"), _field("compression", "string")),
        *(_field("timestamp_type", "string"), _field("transactional", "bool"), _field("control", "bool")),
        *(_field("last_offset_delta", "int32"), _field("base_timestamp", "int64"), _field("max_timestamp", "int64")),
        *(_field("producer_id", "int64"), _field("producer_epoch", "int16"), _field("base_sequence", "int32")),
        *(_field("record_count", "int32"), _RECORDS),
    ),
    array=True,
)
RECORDS: Final = (_BATCHES, _field("truncated_bytes", "int32"), _field("leading_bytes", "int32"))
"""The fields of a `records` field, as in `sinks.json_keys`."""


def path_field(path: str, keys: Collection[int] | None) -> FilterField:
    """The field at a path in the bodies of these APIs (None: of any).

    Raises UsageError for a path that does not exist in any of their versions.
    """
    root, *names = path.split(".")
    level = list(_fields(root, keys))
    found: list[FieldDefinition] = []
    many = False
    for place, name in enumerate(names):
        if name.startswith("_"):
            return FilterField(path, "any", late=root == "response", many=True)
        found = [field for field in level if field.name == name]
        if not found:
            raise UsageError(_unknown(root, names, place, level, keys))
        many = many or any(field.array for field in found)
        level = [child for field in found for child in (RECORDS if field.type == "records" else field.fields)]
    kinds = {_kind(field) for field in found}
    # If one API has a struct and another a value, constants are compared with the value.
    kinds = {one for one in kinds if one[0] != "struct"} or kinds
    kind, unit, enum = kinds.pop() if len(kinds) == 1 else ("any", 1, None)
    return FilterField(path, kind, late=root == "response", unit_ns=unit, enum=enum, many=many)


def _fields(root: str, keys: Collection[int] | None) -> Iterator[FieldDefinition]:
    for key in dissectors.api_keys() if keys is None else keys:
        api = dissectors.api(key)
        if api is not None:
            yield from (api.definition.request if root == "request" else api.definition.response).fields


def _kind(field: FieldDefinition) -> tuple[Kind, int, str | None]:
    """Kind, unit and table of names."""
    if field.type in ("struct", "records"):
        return "struct", 1, None
    if field.type == "bool":
        return "flag", 1, None
    if field.type == "error":
        return "error", 1, None
    if field.type in _TEXTS:
        return "text", 1, None
    if field.type == "int64" and ("timestamp" in field.name or field.name in _TIMES):
        return "time", MILLISECOND, None
    last = field.name.rpartition("_")[2]
    if last == "ms":
        return "duration", MILLISECOND, None
    if last in ("bytes", "size", "length"):
        return "size", 1, None
    return "number", 1, field.enum


def _unknown(
    root: str, names: list[str], place: int, level: Iterable[FieldDefinition], keys: Collection[int] | None
) -> str:
    """The message for a name that does not exist."""
    there = sorted({field.name for field in level})
    before = ".".join((root, *names[:place]))
    path = f"{before}.{names[place]}"
    owner = "no API"
    if keys is not None:
        owner = " or ".join(api.name for key in sorted(keys) if (api := dissectors.api(key)) is not None)
        owner = f"no version of {owner}" if owner else "no API of these keys"
    close = closest(names[place], there)
    if close is not None:
        rest = "".join(f".{name}" for name in names[place + 1 :])
        return f'{owner} has "{path}"; did you mean {before}.{close}{rest}?'
    if there and len(there) <= _FEW:
        return f'{owner} has "{path}"; the names are {", ".join(there)}'
    return f'{owner} has "{path}"; `kafkasniff api NAME` lists the fields'
