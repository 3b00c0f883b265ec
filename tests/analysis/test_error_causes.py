"""Causes of errors in responses: every message of every definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kafkasniff.analysis.error_causes import CODE, MESSAGE, Cause, carries_messages, causes_in
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition


def with_errors(fields: tuple[FieldDefinition, ...], code: str | None, said: list[str]) -> dict[str, Any]:
    """A body in which every code is 87 and every string named `…message` contains its field's name."""
    body: dict[str, Any] = {}
    own = [field.name for field in fields if field.name.endswith(CODE)]
    for field in fields:
        value: Any = None
        if field.name in own:
            value = 87
        elif field.fields:
            value = with_errors(field.fields, own[0] if own else code, said)
        elif field.type == "string" and not field.array and "message" in field.name:
            value = f"said by {field.name} {len(said)}"
            said.append(value)
        body[field.name] = [value] if field.array and field.fields else value
    return body


def structs(fields: tuple[FieldDefinition, ...]) -> Iterator[tuple[FieldDefinition, ...]]:
    yield fields
    for field in fields:
        if field.fields:
            yield from structs(field.fields)


def found_in(key: int, body: dict[str, Any]) -> list[Cause]:
    return list(causes_in(key, msgspec.json.encode(body).decode()))


def test_every_message_of_every_definition_is_read() -> None:
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        fields = api.definition.response.fields
        said: list[str] = []
        found = {one.message for one in found_in(key, with_errors(fields, None, said))} - {None}
        # For a code with its own message and with messages of single records, those of the records are more specific.
        nested = {name for one in structs(fields) for name in [field.name for field in one] if name != MESSAGE}
        general = [one for one in said if one.split()[2] == MESSAGE and "batch_index_error_message" in nested]
        assert found == set(said) - set(general), api.name
        assert carries_messages(key) == bool(said), api.name
