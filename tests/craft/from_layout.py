"""Messages with given values, by their layout. Fields that are not given are zero, empty or null, or not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.kafka_json import encode
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.kafka.schema.schema import data_schema
from tests.craft.kafka_bytes import request, response


def encoded(struct: Struct, values: Mapping[str, Any]) -> bytes:
    assert values.keys() <= {field.name for field in (*struct.fields, *struct.tagged)}
    return encode(struct, values)


def request_bytes(api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
    """A request with its length prefix."""
    api = dissectors.api(api_key)
    body = encoded(api.request(version).root, values)
    return request(api_key, version, correlation_id, body, flexible=api.request_header(version) > 1)


def response_bytes(api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
    """A response with its length prefix."""
    api = dissectors.api(api_key)
    body = encoded(api.response(version).root, values)
    return response(correlation_id, body, flexible=api.response_header(version) > 0)


def data_bytes(name: str, version: int, /, **values: Any) -> bytes:
    """The fields of a `data` block."""
    schema = data_schema(name, version)
    return encoded(schema.root, values)
