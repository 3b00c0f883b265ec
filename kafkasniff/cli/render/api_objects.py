"""Definitions and schemas as plain values for `kafkasniff api --format json`."""

from __future__ import annotations

from typing import Any

from kafkasniff.kafka.apis.dissectors import Api
from kafkasniff.kafka.apis.releases import first_release, removed_in
from kafkasniff.kafka.schema.definition import DataDefinition, EntityChoice, Field, FieldDefinition, Struct, Versions
from kafkasniff.kafka.schema.schema import Schema

__all__ = ["definition_object", "version_object"]


def definition_object(found: Api | DataDefinition) -> dict[str, Any]:
    """Everything in a definition, over all versions."""
    if isinstance(found, Api):
        definition = found.definition
        return {
            "api_key": found.key,
            "api": found.name,
            "former_names": list(found.former_names),
            "summary": found.summary,
            "versions": str(definition.versions),
            "flexible": str(definition.flexible),
            "listeners": list(found.listeners),
            "first_releases": {str(version): first_release(found.key, version) for version in found.versions},
            "removed_in": removed_in(found.key),
            "headers": {
                str(version): {"request": found.request_header(version), "response": found.response_header(version)}
                for version in found.versions
            },
            "request": [_definition(field) for field in definition.request.fields],
            "response": [_definition(field) for field in definition.response.fields],
        }
    message = found.message
    return {
        "name": message.name,
        "summary": found.summary,
        "kind": found.kind,
        "id": found.id,
        "versions": str(message.versions),
        "flexible": str(message.flexible),
        "fields": [_definition(field) for field in message.fields],
    }


def version_object(found: Api | DataDefinition, version: int, schemas: list[Schema]) -> dict[str, Any]:
    """One version: its fields in wire order, tagged ones last."""
    if isinstance(found, Api):
        request, response = schemas
        return {
            "api_key": found.key,
            "api": found.name,
            "version": version,
            "flexible": request.flexible,
            "first_release": first_release(found.key, version),
            "request_header": found.request_header(version),
            "response_header": found.response_header(version),
            "request": _struct(request.root),
            "response": _struct(response.root),
        }
    (schema,) = schemas
    return {
        "name": found.message.name,
        "version": version,
        "flexible": schema.flexible,
        "fields": _struct(schema.root),
    }


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _range(versions: Versions) -> str | None:
    return None if versions.low > versions.high else str(versions)


def _definition(field: FieldDefinition) -> dict[str, Any]:
    inside = [_definition(child) for child in field.fields] if field.type == "struct" else None
    return _described(field, {"versions": str(field.versions), "nullable": _range(field.nullable)}, inside)


def _described(field: FieldDefinition | Field, more: dict[str, Any], inside: list[Any] | None) -> dict[str, Any]:
    """What fields and their definitions have in common, with what each says in its own way."""
    return _without_nothing(
        {
            "name": field.name,
            "type": ("[]" if field.array else "") + field.type,
            **more,
            "tag": field.tag,
            "entity": field.entity,
            "entity_by": _choice(field.entity_by),
            "enum": field.enum,
            "default": field.default,
            "secret": None if field.secret == "no" else field.secret,
            "payload": True if field.payload or field.type == "records" else None,
            "nests": field.nests,
            "unaligned": field.unaligned or None,
            "whole": field.whole or None,
            "fields": inside,
        }
    )


def _choice(choice: EntityChoice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "field": choice.field,
        "entities": [{"value": value, "entity": entity} for value, entity in choice.entities],
    }


def _struct(struct: Struct) -> list[dict[str, Any]]:
    return [_field(field) for field in (*struct.fields, *struct.tagged)]


def _field(field: Field) -> dict[str, Any]:
    inside = None if field.struct is None else _struct(field.struct)
    return _described(field, {"nullable": field.nullable}, inside)
