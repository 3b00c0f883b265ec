"""Names of numeric codes, special values and bits, from `dissectors/enums.txt`."""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.data_files import api_files, read_data
from kafkasniff.kafka.schema.uuids import uuid_text

__all__ = ["API_KEY", "OPERATION_BITS", "Enum", "EnumValue", "enum_by_name", "enum_names", "enum_text"]

API_KEY: Final = "api_key"
"""The table of fields with API keys, from the names of their files."""
OPERATION_BITS: Final = "acl_operation_bits"
"""The table of fields with sets of operations."""


class EnumValue(msgspec.Struct, frozen=True):
    """One line of a table."""

    text: str
    """The value as in the table: a number, a mask, a string, a bool or a uuid."""
    name: str
    since_version: int | None = None
    """The API version that introduced it, if known."""
    levels: tuple[int, ...] = ()
    """For a feature: the levels that it can have."""


class Enum(msgspec.Struct, frozen=True):
    """A table of values."""

    name: str
    kind: str
    """code: every value is one of these; special: only these values are not plain numbers; bits: a set of these masks;
    string, bool, uuid: the value itself is in the field."""
    source: str
    """The class of Apache Kafka that defines it."""
    values: tuple[EnumValue, ...]


@functools.cache
def _table() -> dict[str, Enum]:
    path, lines = read_data("enums.txt")
    heads: dict[str, tuple[str, str]] = {}
    values: dict[str, list[EnumValue]] = {}
    current: list[EnumValue] | None = None
    for number, line in lines:
        match line.split():
            case ("enum", name, kind, *source) if not line.startswith(" ") and name not in heads:
                heads[name] = (kind, " ".join(source))
                current = values.setdefault(name, [])
            case (text, name, "since", "version", version) if current is not None and version.isdecimal():
                current.append(EnumValue(text, name, int(version)))
            case (text, name, "levels", *levels) if current is not None and all(map(str.isdecimal, levels)):
                current.append(EnumValue(text, name, None, tuple(map(int, levels))))
            case (text, *words) if current is not None and words and line.startswith(" "):
                current.append(EnumValue(text, " ".join(words)))
            case _:
                raise DefinitionError(f"{path}:{number}: neither `enum NAME KIND CLASS` nor a value with its name")
    tables = {name: Enum(name, *heads[name], tuple(values[name])) for name in heads}
    return {**tables, API_KEY: _api_keys()}


def _api_keys() -> Enum:
    """The APIs by key: each has its own file."""
    names = [EnumValue(str(key), name.title().replace("_", "")) for key, (name, _) in api_files().items()]
    return Enum(API_KEY, "code", "org.apache.kafka.common.protocol.ApiKeys", tuple(names))


def enum_by_name(name: str) -> Enum | None:
    """A table; None if there is none of that name."""
    return _table().get(name)


def enum_names(name: str) -> dict[object, str] | None:
    """The names of single values by the table `name`; None for sets and unknown tables."""
    table = _table().get(name)
    return None if table is None or table.kind == "bits" else _names(name)


@functools.cache
def _names(name: str) -> dict[object, str]:
    table = _table()[name]
    if table.kind in ("code", "special", "bits"):
        return {int(value.text, 0): value.name for value in table.values}
    if table.kind == "bool":
        return {value.text == "true": value.name for value in table.values}
    if table.kind == "uuid":
        return {uuid_text(bytes.fromhex(value.text.replace("-", ""))): value.name for value in table.values}
    return {value.text: value.name for value in table.values}


def enum_text(name: str, value: object) -> str | None:
    """The name of a value by the table `name`; bits as `READ|WRITE`; None if the table does not name it.

    A set with an unnamed bit gives None too, as does the value for "not requested" (only bit 31).
    """
    table = _table().get(name)
    if table is None or isinstance(value, dict | list):
        return None
    names = _names(name)
    if table.kind != "bits":
        return names.get(value)
    if not isinstance(value, int) or value < 0:
        return None
    masks = {bit: text for bit, text in names.items() if isinstance(bit, int)}
    if value & ~functools.reduce(int.__or__, masks, 0):
        return None
    return "|".join(text for bit, text in masks.items() if value & bit)
