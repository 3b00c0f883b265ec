"""A Lua dissector for Wireshark: the definitions of all versions as tables, and the walker of `kafkasniff.lua`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import kafkasniff
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.codes import enum_by_name, enum_names, error_codes, error_name
from kafkasniff.kafka.schema.definition import FieldDefinition, MessageDefinition, with_inner

_NEVER = 0x7FFF
"""A version that no message has."""


def lua_dissector() -> str:
    """The text of the script. MIT, which Wireshark's licence, GPL-2.0-or-later, can be combined with."""
    apis = [api for key in dissectors.api_keys() if (api := dissectors.api(key)) is not None]
    tables = {
        api.key: {
            "name": api.name,
            "low": api.min_version,
            "high": api.max_version,
            "request": _message(api.definition.request),
            "response": _message(api.definition.response),
        }
        for api in apis
    }
    fields = (
        field for api in apis for side in (api.definition.request, api.definition.response) for field in side.fields
    )
    enums = {
        field_definition.enum for field_definition in with_inner(tuple(fields)) if field_definition.enum is not None
    }
    parts = (
        "-- Kafka for Wireshark. SPDX-License-Identifier: MIT",
        f"-- Written by kafkasniff {kafkasniff.__version__}: `kafkasniff wireshark` writes it again.",
        f"local APIS = {_lua(tables)}",
        f"local ERRORS = {_lua({code: error_name(code) for code in error_codes()})}",
        f"local ENUMS = {_lua({name: names for name in sorted(enums) if (names := _numbers(name))})}",
        "",
        files(__package__).joinpath("kafkasniff.lua").read_text(),
    )
    return "\n".join(parts)


def extcap_script(command: str, version: str) -> str:
    """The program of Wireshark's interface; `command` runs kafkasniff, in words of a shell."""
    text = files(__package__).joinpath("extcap.sh").read_text()
    return text.replace("COMMAND", command).replace("VERSION", version)


def _message(message: MessageDefinition) -> dict[str, Any]:
    flexible = message.flexible
    return {
        "low": message.versions.low,
        "flexible": flexible.low if flexible.low <= flexible.high else _NEVER,
        "headers": [[versions.low, header] for versions, header in message.headers],
        "fields": [_field(field) for field in message.fields],
    }


def _field(field: FieldDefinition) -> dict[str, Any]:
    nulls = field.nullable
    return {
        "name": field.name,
        "type": field.type,
        "low": field.versions.low,
        "high": field.versions.high,
        **({"array": True} if field.array else {}),
        **({"nulls": [nulls.low, nulls.high]} if nulls.low <= nulls.high else {}),
        **({"tag": field.tag} if field.tag is not None else {}),
        **({"classic": True} if field.classic else {}),
        **({"enum": field.enum} if field.enum is not None and _numbers(field.enum) else {}),
        **({"fields": [_field(one) for one in field.fields]} if field.type == "struct" else {}),
    }


def _numbers(name: str) -> dict[int, str]:
    """The names of numbers in a table; empty for a set of bits, and for tables of other values."""
    table = enum_by_name(name)
    if table is None or table.kind not in ("code", "special"):
        return {}
    return {number: text for number, text in (enum_names(name) or {}).items() if isinstance(number, int)}


def _lua(value: Any) -> str:
    """A value as a Lua expression."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            assert value.isascii()
            assert value.isprintable()
            assert not {'"', "\\"} & {*value}
            return f'"{value}"'
        case list():
            return "{" + ",".join(map(_lua, value)) + "}"
    names = {key: key if isinstance(key, str) else f"[{key}]" for key in value}
    return "{" + ",".join(f"{names[key]}={_lua(one)}" for key, one in value.items()) + "}"
