"""Names of codes: access to the definitions' layouts, enums and errors."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.dissectors import message_of
from kafkasniff.kafka.schema.codes import enum_text
from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.model import Body, Direction, ErrorCode, Message

_INDEX: Final = re.compile(r"\[\d+\]")


def error_name(error: ErrorCode) -> str:
    """`NOT_LEADER_OR_FOLLOWER`; `error 999` for a code without a name."""
    return error.name or f"error {error.code}"


@lru_cache(maxsize=4096)
def _name(enum: str, value: int | str) -> str | None:
    return enum_text(enum, value)


def enum_name(enum: str, value: object) -> str | None:
    """Name of a value by a table of `dissectors/enums.txt`; None if it has none."""
    return _name(enum, value) if isinstance(value, int | str) else None


def layout_of(message: Message) -> Struct | None:
    """The fields of the message's body; None if its version is unknown."""
    version = message.api_version if message.body_version is None else message.body_version
    found = dissectors.api(message.api_key) if message.api_key is not None else None
    if found is None or version is None or version not in found.versions:
        return None
    return (found.request(version) if message.type == "request" else found.response(version)).root


def nested_field(message: Message) -> str | None:
    """The field with a nested message; None if there is none."""
    return None if message.api_key is None else _nested_field(message.api_key, message.type)


@lru_cache(maxsize=1024)  # keys come from the wire
def _nested_field(api_key: int, direction: Direction) -> str | None:
    message = message_of(api_key, direction)
    return None if message is None or message.nested is None else message.nested[0]


def layout_inside(body: Body) -> Struct | None:
    """The fields of `value` in a record's `{"type", "version", "value"}`, of `body` in the message of an Envelope.

    None for any other struct, which may have such names, too, with values of any kind.
    """
    match body:
        case {"type": str(name), "version": int(version)}:
            return _data_layout(name, version)
        case {"api_key": int(key), "api_version": int(version)}:
            # Only requests have a client id.
            kind: Direction = "request" if "client_id" in body else "response"
            read_as = body.get("body_version")
            return layout_of(
                Message(kind, 0, api_key=key, api_version=version if read_as is None else read_as),
            )
    return None


@lru_cache(maxsize=1024)
def _data_layout(name: str, version: int) -> Struct | None:
    definition = data_definitions().get(name)
    if definition is not None and definition.kind == "coordinator-key":
        version = definition.message.versions.low  # in this place is the record's type
    schema = data_schema(name, version)
    return None if schema is None else schema.root


def field_at(layout: Struct | None, path: str) -> Field | None:
    """The field at a path as in error codes and spans, `topics[0].partitions[1].index`; None if there is none."""
    field: Field | None = None
    for name in _INDEX.sub("", path).split("."):
        if layout is None:
            return None
        field = next((one for one in (*layout.fields, *layout.tagged) if one.name == name), None)
        if field is None:
            return None
        layout = field.struct
    return field
