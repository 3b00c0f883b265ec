"""`kafkasniff wireshark`: what lets Wireshark decode Kafka in all versions, and capture only Kafka."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

import kafkasniff
from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.shared_options import definitions_option
from kafkasniff.errors import OutputError
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
        files("kafkasniff.cli").joinpath("wireshark", "kafkasniff.lua").read_text(),
    )
    return "\n".join(parts)


def extcap_script(command: str, version: str) -> str:
    """The program of Wireshark's interface; `command` runs kafkasniff, in words of a shell."""
    text = files("kafkasniff.cli").joinpath("wireshark", "extcap.sh").read_text()
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


@click.command("wireshark", cls=SectionedCommand)
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder; the files in it are replaced.")
@definitions_option
@click.pass_obj
def wireshark_command(environment: Environment, /, output: str) -> int:
    """Write a Lua dissector and an extcap interface for Wireshark.

    DIR/plugins/kafkasniff.lua decodes all APIs and versions that kafkasniff knows. DIR/extcap/kafkasniff captures the
    packets of Kafka's connections on any port. Wireshark reads both folders in ~/.local/lib/wireshark (before 4.2:
    ~/.config/wireshark).
    """
    import kafkasniff
    from kafkasniff.browse.commands import program
    from kafkasniff.cli.commands.wireshark import extcap_script, lua_dissector

    texts = {
        "plugins/kafkasniff.lua": (lua_dissector(), 0o644),
        "extcap/kafkasniff": (extcap_script(shlex.join(program(["kafkasniff"])), kafkasniff.__version__), 0o755),
    }
    for name, (text, mode) in texts.items():
        path = Path(output) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        environment.say(f"wrote {path}")
    return Exit.OK
