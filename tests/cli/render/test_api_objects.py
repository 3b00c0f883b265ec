"""Definitions as JSON: every field of every API, over all versions and in each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.render.api_objects import definition_object, version_object
from kafkasniff.kafka.apis.dissectors import Api, api, api_keys
from kafkasniff.kafka.schema.data_schemas import data_definitions, data_schema
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.kafka.schema.definition_parser import parse_data
from kafkasniff.kafka.schema.layout import Field, Struct


def known(key: int) -> Api:
    found = api(key)
    assert found is not None
    return found


def objects(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for field in fields:
        yield field
        yield from objects(field.get("fields", []))


def definitions(fields: tuple[FieldDefinition, ...]) -> Iterator[FieldDefinition]:
    for field in fields:
        yield field
        yield from definitions(field.fields)


def layout(struct: Struct) -> Iterator[Field]:
    for field in (*struct.fields, *struct.tagged):
        yield field
        if field.struct is not None:
            yield from layout(field.struct)


def plain_type(field: FieldDefinition | Field) -> str:
    return ("[]" if field.array else "") + field.type


@pytest.mark.parametrize("key", sorted(api_keys()))
def test_every_field_of_an_api(key: int) -> None:
    found = known(key)
    whole = definition_object(found)
    json.dumps(whole)
    assert (whole["api_key"], whole["api"], whole["versions"]) == (key, found.name, str(found.definition.versions))
    assert set(whole["headers"]) == set(whole["first_releases"]) == {str(version) for version in found.versions}
    for name, message in (("request", found.definition.request), ("response", found.definition.response)):
        pairs = list(zip(objects(whole[name]), definitions(message.fields), strict=True))
        assert all((one["name"], one["type"]) == (field.name, plain_type(field)) for one, field in pairs)
        assert all(one["versions"] == str(field.versions) for one, field in pairs)
    for version in found.versions:
        schemas = [found.request(version), found.response(version)]
        one_version = version_object(found, version, schemas)
        for name, schema in zip(("request", "response"), schemas, strict=True):
            fields = list(zip(objects(one_version[name]), layout(schema.root), strict=True))
            assert all((one["name"], one["nullable"]) == (field.name, field.nullable) for one, field in fields)
            assert one_version[f"{name}_header"] == whole["headers"][str(version)][name]


def test_data_structures() -> None:
    for name, found in data_definitions().items():
        whole = definition_object(found)
        assert (whole["name"], whole["kind"]) == (name, found.kind)
        version = found.message.versions.high
        schema = data_schema(name, version)
        assert schema is not None
        one = version_object(found, version, [schema])
        assert [field["name"] for field in objects(one["fields"])] == [field.name for field in layout(schema.root)]


def test_attributes_are_there_only_if_they_mean_something() -> None:
    text = """data One   kind file   versions 0-1   flexible 1+
  plain   int32
  secret  string?  0+  nullable 1+  secret
  value   bytes    1+  payload  tag 3
"""
    (found,) = parse_data(Path("some.txt"), text)
    plain, secret, value = definition_object(found)["fields"]
    assert plain == {"name": "plain", "type": "int32", "versions": "0-1"}
    assert (secret["nullable"], secret["secret"]) == ("1", "value")
    assert (value["tag"], value["payload"]) == (3, True)
    assert "secret" not in value


def test_a_removed_api() -> None:
    whole = definition_object(known(4))
    assert (whole["api"], whole["removed_in"]) == ("LeaderAndIsr", "4.0")
    assert definition_object(known(0))["removed_in"] is None
