"""Avro values: what each type becomes, and the bounds of hostile schemas and values."""

from __future__ import annotations

import io
import json
import random
import struct
import time
from itertools import count
from typing import Any

import pytest

from kafkasniff.values.avro import NODES_PER_VALUE, AvroReader
from kafkasniff.values.schemas import MAX_DEPTH, MAX_SCHEMA, MalformedValueError, SchemaError
from tests.values.avro_bytes import blocks, double, long, sized, string, union

LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


def decoded(schema: Any, data: bytes, *references: Any) -> Any:
    return AvroReader(json.dumps(schema), [json.dumps(one) for one in references]).read(b"\xff" + data, 1).value


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": one} for key, one in fields.items()]}


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\1", True),
        ("int", long(-3), -3),
        ("long", long(2**63 - 1), 2**63 - 1),
        ("long", long(-(2**63)), -(2**63)),
        ("long", bytes.fromhex("8001"), 64),  # the specification's example
        ("float", struct.pack("<f", 0.5), 0.5),
        ("double", double(-1e300), -1e300),
        ("double", double(float("nan")), "NaN"),
        ("double", double(float("-inf")), "-Infinity"),
        ("string", string("größe"), "größe"),
        ("bytes", b"\x02raw", b"\x02raw"),  # Confluent's serializers write no length
        (["null", "bytes"], union(1, sized(b"\0\1")), b"\0\1"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, long(1), "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        ({"type": "array", "items": "int"}, blocks(long(1), long(2)), [1, 2]),
        ({"type": "array", "items": "int"}, long(-2) + long(2) + long(1) + long(2) + b"\0", [1, 2]),
        ({"type": "map", "values": "int"}, blocks(string("a") + long(1)), {"a": 1}),
        (["null", "string"], union(0), None),
        (["null", "string"], union(1, string("x")), "x"),
        (record("R", id="long", item={"type": "string", "avro.java.string": "String"}), long(7) + string("lamp"),
         {"id": 7, "item": "lamp"}),
        (LIST, union(1, union(1, union(0))), {"next": {"next": {"next": None}}}),
        # Logical types.
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, sized(b"\xff\x85"), "-1.23"),
        ({"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2}, b"\x05", "5"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long(1_700_000_000_000), 1_700_000_000_000),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, bytes(range(16)),
         "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)  # fmt: skip
def test_types(schema: Any, data: bytes, value: Any) -> None:
    assert decoded(schema, data) == value
    if data and schema != "bytes":
        with pytest.raises(MalformedValueError):
            decoded(schema, data[:-1])
        with pytest.raises(MalformedValueError, match="1 bytes follow"):
            decoded(schema, data + b"\0")


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("{", "not JSON"),
        ("[", "not JSON"),
        ('"' + "a" * MAX_SCHEMA + '"', "larger than 1 MiB"),
        ("[" * 300 + "]" * 300, "nested more than 100 levels"),
        ('"Order"', 'the type "Order"'),
        ("3", "a type is 3"),
        ("[]", "a union has no types"),
        ('{"type": "record", "name": "R"}', "no list of fields"),
        ('{"type": "record", "fields": []}', "has the name None"),
        ('{"type": "record", "name": "R", "fields": [3]}', "has no name"),
        ('{"type": "enum", "name": "E", "symbols": [1]}', "no list of symbols"),
        ('{"type": "fixed", "name": "F", "size": -1}', "has the size -1"),
        ('[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]', "twice"),
    ],
)
def test_unusable_schemas(schema: str, what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        AvroReader(schema)


@pytest.mark.parametrize(
    ("schema", "data", "what"),
    [
        ("boolean", b"\2", "a boolean that is neither"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("string", long(-1), "an impossible length"),
        ("string", long(2**62), "an impossible length"),
        ("string", sized(b"\xff"), "not UTF-8"),
        (["null"], long(1), "an unknown type"),
        (["null"], long(-1), "an unknown type"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, long(1), "an unknown symbol"),
    ],
)
def test_malformed_values(schema: Any, data: bytes, what: str) -> None:
    with pytest.raises(MalformedValueError, match=what):
        decoded(schema, data)


def test_values_have_a_bound_of_levels() -> None:
    def nested(levels: int) -> bytes:
        return b"\x02" * levels + b"\0"

    # A union and a record take one level each.
    found = decoded(LIST, nested(MAX_DEPTH // 3))
    assert found["next"]["next"]["next"]
    for levels in (MAX_DEPTH, 1_000_000):
        with pytest.raises(MalformedValueError, match="nested more than 100 levels"):
            decoded(LIST, nested(levels))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": record("Empty")},
        {"type": "array", "items": record("Nulls", **{f"f{n}": "null" for n in range(1000)})},
        {"type": "array", "items": ["null", {"type": "array", "items": "null"}]},
    ],
)
def test_elements_without_bytes_have_a_bound(schema: Any) -> None:
    start = time.process_time()
    for number in (2**62, -(2**62), 10 * NODES_PER_VALUE):
        data = long(number) + (long(1) if number < 0 else b"") + b"\0" * 8
        with pytest.raises(MalformedValueError, match=r"more elements than its size allows|ends too early"):
            decoded(schema, data)
    assert time.process_time() - start < 1


def test_records_that_multiply_have_a_bound() -> None:
    """40 types, each with two fields of the one before: 2^40 nulls of no byte."""
    inside: Any = "null"
    for number in range(40):
        inner = inside if number < 1 else f"T{number - 1}"
        inside = record(f"T{number}", a=inside, b=inner)
    with pytest.raises(MalformedValueError, match="more elements"):
        decoded(inside, b"")


fastavro = pytest.importorskip("fastavro")
utils = pytest.importorskip("fastavro.utils")

pytestmark = pytest.mark.extended

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def schema(chance: random.Random, names: count[int], depth: int = 0) -> Any:
    """A random schema: a record with fields of any types."""
    name = f"N{next(names)}"
    match 6 if depth == 0 else chance.randrange(8 if depth < 4 else 4):
        case 0:
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
        case 1:
            return {"type": "fixed", "name": name, "size": chance.randrange(5)}
        case 4:
            return {"type": "array", "items": schema(chance, names, depth + 1)}
        case 5:
            return {"type": "map", "values": schema(chance, names, depth + 1)}
        case 6:
            types = [schema(chance, names, depth + 1) for _ in range(chance.randrange(1, 6))]
            fields = [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]
            return {"type": "record", "name": name, "namespace": chance.choice(("", "a.b")), "fields": fields}
        case 7:
            return ["null", chance.choice(PRIMITIVES[1:])]
        case _:
            return chance.choice(PRIMITIVES)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_values(seed: int) -> None:
    random.seed(seed)  # for the values
    for number in range(50):
        made = schema(random.Random(seed * 1000 + number), count())
        parsed = fastavro.parse_schema(json.loads(json.dumps(made)))
        reader = AvroReader(json.dumps(made))
        for value in utils.generate_many(parsed, 5):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, value)
            data = stream.getvalue()
            assert reader.read(data, 0).value == fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
