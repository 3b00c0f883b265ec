"""Compares what we decode from a vector with what Kafka's JSON says, field by field.

One set of rules for all messages:

- Kafka's names become ours by `our_name`, and both have the same set of names: Kafka's converters, like its classes on
  the wire, omit tagged fields at their default and nothing else.
- Values are equal and of the same type. Bytes are base64 in Kafka's JSON; a float64 NaN is a string there.
- Kafka writes the size of records in place of the records: what they hold is in the vectors of kind `records`.
- Names of ours that start with an underscore are additions to the wire's fields and are not compared; `_unknown_tags`
are.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

from kafkasniff.kafka.apis.kafka_json import our_name
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.schema import data_schema
from tests.renamed import as_released
from tests.vectors.reader import Vector, records_by_size

SHOWN = DecodeOptions(show_secrets=True, inside=False)
"""What lies in a vector's bytes fields was made up, too: nothing is to be read there."""
SIZE_OF_RECORDS = "SizeInBytes"

_MISSING = object()


def differences(vector: Vector) -> list[str]:
    """Where our decode departs from Kafka's JSON, a line each; none where they agree."""
    if vector.kind == "data":
        return list(_data(vector))
    if vector.kind == "records":
        return list(_records(vector))
    if vector.kind == "request":
        decoded = decode_request(vector.data, 0, len(vector.data), SHOWN)
    else:
        assert vector.key is not None
        decoded = decode_response(vector.data, 0, len(vector.data), vector.key, vector.version, SHOWN)
    return list(_message(vector, decoded))


def _message(vector: Vector, decoded: Decoded) -> Iterator[str]:
    yield from _problems(decoded.problems)
    if (decoded.api_key, decoded.api_version, decoded.body_version) != (vector.key, vector.version, None):
        yield f"read as {decoded.api_key} version {decoded.api_version}, body version {decoded.body_version}"
    if decoded.raw is not None:
        yield f"{len(decoded.raw)} bytes not decoded"
    tags = [{"tag": tag, "base64": base64.b64encode(value).decode()} for tag, value in decoded.header_tags]
    yield from compare(vector.header, {**(decoded.header or {}), **({"_unknown_tags": tags} if tags else {})}, "header")
    yield from compare(vector.body, decoded.body, "")
    expected, got = sorted(_errors(vector.body, "")), sorted((error.code, error.path) for error in decoded.errors)
    if expected != got:
        yield f"errors: {expected} in Kafka's JSON, {got} decoded"


def _data(vector: Vector) -> Iterator[str]:
    schema = data_schema(vector.name, vector.version)
    if schema is None:
        yield f"{vector.name} version {vector.version} has no definition"
        return
    context = DecodeContext(SHOWN)
    walk = schema.read(vector.data, 0, len(vector.data), context)
    yield from _problems(tuple(context.problems))
    if not walk.complete or walk.position != len(vector.data):
        yield f"read up to {walk.position} of {len(vector.data)} bytes"
    yield from compare(vector.body, walk.body, "")


def _records(vector: Vector) -> Iterator[str]:
    context = DecodeContext(SHOWN)
    got = decode_records(vector.data, 0, len(vector.data), context)
    yield from _problems(tuple(context.problems))
    yield from compare(vector.body, got, "")


def _problems(problems: tuple[Any, ...]) -> Iterator[str]:
    for problem in problems:
        yield f"problem {problem.kind}: {problem.detail}"


def compare(expected: Any, got: Any, path: str) -> Iterator[str]:
    """Where a value of ours departs from one of Kafka's JSON."""
    if isinstance(expected, dict) and isinstance(got, dict):
        yield from _struct(expected, got, path)
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            yield f"{path}: {len(expected)} elements in Kafka's JSON, {len(got)} decoded"
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            yield from compare(one, other, f"{path}[{index}]")
    elif not _same(expected, got):
        yield f"{path}: {expected!r} in Kafka's JSON, {got!r} decoded"


def _same(expected: Any, got: Any) -> bool:
    if isinstance(got, bytes):
        return isinstance(expected, str) and base64.b64encode(got).decode() == expected
    if isinstance(got, float):
        number = float(expected) if isinstance(expected, str) else expected
        return isinstance(number, float) and (got == number or (math.isnan(got) and math.isnan(number)))
    return type(expected) is type(got) and bool(expected == got)  # True is not 1


def _struct(expected: dict[str, Any], got: dict[str, Any], path: str) -> Iterator[str]:
    ours = {name: value for name, value in got.items() if not name.startswith("_") or name == "_unknown_tags"}
    for name_in_json, value in expected.items():
        name, wanted = our_name(name_in_json), value
        # A field may have this name, too (segmentSizeInBytes): then we have it under that name.
        records = name not in ours and name_in_json.endswith(SIZE_OF_RECORDS)
        if records:
            name = our_name(name_in_json.removesuffix(SIZE_OF_RECORDS))
        name = as_released(name, ours)
        place = f"{path}.{name}" if path else name
        mine = ours.pop(name, _MISSING)
        if mine is _MISSING:
            yield f"{place}: in Kafka's JSON alone"
            continue
        if records:
            wanted = records_by_size()[value].body
            if name == "unaligned_records":
                wanted = {"leading_bytes": 0, **wanted}
        yield from compare(wanted, mine, place)
    for name in ours:
        yield f"{path}.{name}: decoded, and not in Kafka's JSON"


def _errors(value: Any, path: str) -> Iterator[tuple[int, str]]:
    """The error codes other than 0 of Kafka's JSON, each with its path in our names."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from _errors(element, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name_in_json, inner in value.items():
            name = our_name(name_in_json)
            place = f"{path}.{name}" if path else name
            if name.endswith("error_code") and inner:
                yield inner, place
            else:
                yield from _errors(inner, place)
