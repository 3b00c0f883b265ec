"""Structures that are not requests or responses: headers, records, embedded structures. They contain no record sets."""

from __future__ import annotations

import functools

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.data_files import data_folder, read_text, sorted_files
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.definition_parser import parse_data
from kafkasniff.kafka.schema.schema import Schema

__all__ = ["data_definition", "data_definitions", "data_schema"]


@functools.cache
def data_definitions() -> dict[str, DataDefinition]:
    """All of them by name."""
    folder = data_folder()
    found: dict[str, DataDefinition] = {}
    records = (path for path in sorted_files(folder / "records") if path.name.endswith(".txt"))
    for path in (folder / "headers.txt", *records):
        for definition in parse_data(path, read_text(path)):
            name = definition.message.name
            if name in found:
                raise DefinitionError(f"{path}: {name} is also in {found[name].file}.txt")
            found[name] = definition
    return found


def data_definition(kind: str, number: int, file: str | None = None) -> DataDefinition | None:
    """The definition of a record type, by kind and id; None if unknown.

    For coordinator records the file matters too, since each topic has its own ids: `group_coordinator`,
    `transaction_coordinator`, `share_coordinator`.
    """
    for definition in data_definitions().values():
        if (definition.kind, definition.id) == (kind, number) and file in (None, definition.file):
            return definition
    return None


@functools.lru_cache(maxsize=1024)
def data_schema(name: str, version: int) -> Schema | None:
    """The schema of a `data` block; None if name or version are unknown."""
    definition = data_definitions().get(name)
    if definition is None or version not in definition.message.versions:
        return None
    return Schema(definition.message, version)
