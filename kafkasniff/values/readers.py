"""Readers of values by schema: each schema is asked for and compiled once; values of JSON Schema need none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from kafkasniff.errors import UsageError
from kafkasniff.values.avro import AvroReader
from kafkasniff.values.registries import Registry, RegistryError, path_of, schema_at
from kafkasniff.values.schemas import (
    FIRST_MESSAGE,
    MAX_DEPTH,
    MAX_SCHEMA,
    DecodedValue,
    MalformedValueError,
    MessagePlace,
    Reference,
    RegisteredSchema,
    SchemaError,
    SchemaKind,
    ValueReader,
)

_OPENING: Final = (b"{", b"[")


class JsonReader:
    """Decodes values that are JSON. Whether they follow the schema is not checked."""

    kind: SchemaKind = "JSON"

    def __init__(self, schema: str) -> None:
        self._name = _title(schema)

    def read(self, data: bytes, start: int, _place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]`. Raises MalformedValueError."""
        text = data[start:]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedValueError(f"it is not JSON: {error}") from None
        if sum(map(text.count, _OPENING)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise MalformedValueError(f"nested more than {MAX_DEPTH} levels deep")
        return DecodedValue(self._name, value)


def _title(schema: str) -> str | None:
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError:
        return None
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else None


def _depth(value: Any) -> int:
    """Levels of lists and objects."""
    levels, inside = 0, [value]
    while inside:
        levels += any(isinstance(one, list | dict) for one in inside)
        inside = [
            item
            for one in inside
            if isinstance(one, list | dict)
            for item in (one if isinstance(one, list) else one.values())
        ]
    return levels


VALUE_FILE: Final = "value"
"""Name of a Protobuf file that no other one imports: registries have none."""
MAX_REFERENCES: Final = 200
"""Schemas that one schema refers to, also indirectly."""
MAX_IDS: Final = 10_000
"""Ids that a run asks for: they come from the wire, and may be no ids at all."""
MAX_GUESSES: Final = 200
"""Ids that are asked for though they may be no ids: then only the others are."""

Report = Callable[[str, str], None]
Resolve = Callable[[Reference], RegisteredSchema]


class Readers:
    """The readers of a registry's schemas."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int | str, ValueReader | None] = {}
        self._reported: set[int | str] = set()
        self._guesses = 0
        self.missing: list[int | str] = []
        """Ids without a schema that may be no ids."""
        self._resolved: dict[Reference, RegisteredSchema] = {}

    def get(self, key: int | str, report: Report, *, sure: bool) -> ValueReader | None:
        """The reader of the schema with an id or GUID; None if there is none. Hot.

        `report`: called with the kind and the detail of a problem, once for each schema. `sure`: the bytes leave no
        doubt that `key` is an id, so it is a problem if the registry does not have it.
        """
        try:
            value_reader = self._known[key]
        except KeyError:
            if not sure:
                if self._guesses >= MAX_GUESSES:
                    return None
                self._guesses += 1
            value_reader = self._new(key, report)
            if value_reader is None and not sure:
                self.missing.append(key)
        if value_reader is None and sure and key not in self._reported:
            self._reported.add(key)
            report("schema-unknown", f"schema {key} is not in {self._registry.name}")
        return value_reader

    def _new(self, key: int | str, report: Report) -> ValueReader | None:
        if len(self._known) >= MAX_IDS:
            self._once("", "schema-bound", f"more than {MAX_IDS:,} schema ids: further ones are not looked up", report)
            return None
        value_reader: ValueReader | None = None
        try:
            schema = schema_at(self._registry, f"schemas/{'ids' if isinstance(key, int) else 'guids'}/{key}")
            if schema is not None:
                value_reader = self._compiled(schema)
        except RegistryError as error:
            # Asked again later, so it is not known.
            self._reported.add(key)
            self._once(str(error), "schema-registry", str(error), report)
            return None
        except SchemaError as error:
            self._reported.add(key)
            report("schema-invalid", f"schema {key} of {self._registry.name} cannot be used: {error}")
        self._known[key] = value_reader
        return value_reader

    def _once(self, key: str, kind: str, detail: str, report: Report) -> None:
        if key not in self._reported:
            self._reported.add(key)
            report(kind, detail)

    def _compiled(self, schema: RegisteredSchema) -> ValueReader:
        if schema.schema_type == "JSON":
            return JsonReader(schema.schema)
        others = list(references_of(schema, self._resolve))
        if schema.schema_type == "AVRO":
            return AvroReader(schema.schema, [registered_schema.schema for _, registered_schema in others])
        from kafkasniff.values.protobuf import ProtobufReader, descriptor_file  # noqa: PLC0415 - for these schemas only

        files = [descriptor_file(registered_schema.schema, reference.name) for reference, registered_schema in others]
        return ProtobufReader([*files, descriptor_file(schema.schema, VALUE_FILE)])

    def _resolve(self, reference: Reference) -> RegisteredSchema:
        registered_schema = self._resolved.get(reference)
        if registered_schema is None:
            registered_schema = schema_at(self._registry, path_of(reference.subject, reference.version))
            if registered_schema is None:
                raise SchemaError(f"it refers to version {reference.version} of {reference.subject}, which is missing")
            self._resolved[reference] = registered_schema
        return registered_schema


def references_of(schema: RegisteredSchema, resolve: Resolve) -> Iterator[tuple[Reference, RegisteredSchema]]:
    """The schemas that a schema refers to, each once, after those to which it refers itself.

    Raises SchemaError, and what `resolve` raises.
    """
    seen: set[Reference] = set()

    def inside(one: RegisteredSchema) -> Iterator[tuple[Reference, RegisteredSchema]]:
        for reference in one.references or ():
            if reference in seen:
                continue
            if len(seen) >= MAX_REFERENCES:
                raise SchemaError(f"it refers to more than {MAX_REFERENCES} schemas")
            seen.add(reference)
            registered_schema = resolve(reference)
            yield from inside(registered_schema)
            yield reference, registered_schema

    return inside(schema)


def file_reader(name: str) -> ValueReader:
    """The reader for the schema in a file: Avro (`.avsc`), JSON (`.json`), Protobuf (`.proto`, else descriptors).

    `FILE#MESSAGE` names a message of Protobuf; else it is the first of the last file. Raises UsageError.
    """
    path, _, message = name.partition("#")
    from kafkasniff.values.protobuf import ProtobufReader, descriptor_file, descriptor_set  # noqa: PLC0415 - rare

    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_SCHEMA + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_SCHEMA:
        raise UsageError(f"{path} is longer than {MAX_SCHEMA >> 20} MiB")
    try:
        if path.endswith(".avsc"):
            return AvroReader(data.decode())
        if path.endswith(".json"):
            return JsonReader(data.decode())
        if path.endswith(".proto"):
            return ProtobufReader([descriptor_file(data.decode(), VALUE_FILE)], message or None)
        return ProtobufReader(descriptor_set(data), message or None)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8") from None
    except SchemaError as error:
        raise UsageError(f"{path}: {error}") from None
