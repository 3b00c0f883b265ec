"""The layouts of all messages and data blocks."""

from __future__ import annotations

from collections.abc import Iterator

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.schema import Schema, data_definitions, data_schema


def schemas_of(key: int) -> Iterator[Schema]:
    found = api(key)
    assert found is not None
    for version in found.versions:
        yield found.request(version)
        yield found.response(version)


def data_schemas() -> list[Schema]:
    pairs = ((name, d.message.versions) for name, d in data_definitions().items())
    found = [data_schema(name, version) for name, span in pairs for version in range(span.low, span.high + 1)]
    assert None not in found
    return [schema for schema in found if schema is not None]
