"""Damaged schemas and values: SchemaError and MalformedValueError are all that comes of them."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kafkasniff.sinks.jsonl import json_default
from kafkasniff.values.avro import AvroReader
from kafkasniff.values.protobuf import ProtobufReader, descriptor_file
from kafkasniff.values.schemas import MAX_DEPTH, MalformedValueError, MessagePlace, SchemaError, ValueReader
from kafkasniff.values.stage import JsonReader
from tests.choice import one_in
from tests.values.avro_bytes import blocks, double, long, string, union
from tests.values.test_protobuf import ORDER, Kinds, add, file_of, filled, order

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "names", "type": {"type": "array", "items": "string"}},
            {"name": "sizes", "type": {"type": "map", "values": ["null", "double"]}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "next", "type": ["null", "Order"]},
        ],
    }
)
INNER = long(5) + blocks(string("a"), string("ü")) + blocks(string("k") + union(1, double(1.5))) + long(1) + b"ab"
AVRO_VALUE = INNER + union(1, INNER + union(0))
JSON_VALUE = b'{"a": [1, 2, {"b": "\\u00e9"}], "c": 1e5}'
PLACES: tuple[MessagePlace, ...] = ((0,), (0, 1), (5,), "Other", "x")
SEEDS = one_in(10, range(40))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, removed, added or repeated."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(found) + 1)
        end = min(len(found), at + chance.randrange(1, 40))
        match chance.randrange(4):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = chance.randbytes(chance.randrange(9))
            case _:
                found[at:at] = found[at:end]
    return bytes(found)


def tried(reader: ValueReader, data: bytes, place: MessagePlace = (0,)) -> bool:
    """Whether a value can be decoded; then JSON lines can have it."""
    try:
        found = reader.read(data, 0, place)
    except MalformedValueError:
        return False
    return bool(orjson.dumps([[[[found.value]]]], default=json_default()))


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_values(seed: int) -> None:
    chance = random.Random(seed)
    protobuf = ProtobufReader([descriptor_file(ORDER, "value")])
    readers: list[tuple[ValueReader, bytes]] = [
        (AvroReader(AVRO), AVRO_VALUE),
        (JsonReader("{}"), JSON_VALUE),
        (protobuf, filled(protobuf).SerializeToString()),
    ]
    for reader, data in readers:
        assert tried(reader, data)
        found = {tried(reader, damaged(data, chance), chance.choice(PLACES)) for _ in range(300)}
        assert found == {True, False}


def test_levels_of_json() -> None:
    """Brackets alone say little."""
    reader = JsonReader("{}")
    for allowed in (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b"[" + b"{},[]," * MAX_DEPTH + b"0]"):
        assert tried(reader, allowed)
    assert not tried(reader, b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_schemas(seed: int) -> None:
    chance = random.Random(seed)
    value = filled(ProtobufReader([descriptor_file(ORDER, "value")])).SerializeToString()
    made: list[tuple[Callable[[bytes], Any], bytes, bytes]] = [
        (lambda data: AvroReader(data.decode(errors="replace")), AVRO.encode(), AVRO_VALUE),
        (lambda data: ProtobufReader([descriptor_file(data.decode(errors="replace"), "value")]), ORDER.encode(), value),
        (
            lambda data: ProtobufReader([descriptor_file(b64encode(data).decode(), "value")]),
            order().SerializeToString(),
            value,
        ),
    ]
    usable = 0
    for make, schema, data in made:
        for _ in range(100):
            try:
                reader = make(damaged(schema, chance))
            except SchemaError:
                continue
            usable += 1
            tried(reader, data)
    assert 0 < usable < 300


@pytest.mark.parametrize("label", [Kinds.LABEL_OPTIONAL, Kinds.LABEL_REPEATED])
@pytest.mark.parametrize("names", [("key", "other"), ("key",), ("key", "value", "more"), ("value", "key")])
def test_map_entries_with_other_fields(names: tuple[str, ...], label: Any) -> None:
    file = file_of()
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="E")
    entry.options.map_entry = True
    for name in names:
        add(entry, name, Kinds.TYPE_STRING)
    add(message, "m", Kinds.TYPE_MESSAGE, ".shop.M.E", label)
    with pytest.raises(SchemaError, match="map entry 'E'"):
        ProtobufReader([file])


def test_a_map_entry_outside_of_a_map() -> None:
    file = file_of()
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="E")
    entry.options.map_entry = True
    add(entry, "key", Kinds.TYPE_STRING)
    add(entry, "value", Kinds.TYPE_STRING)
    add(message, "m", Kinds.TYPE_MESSAGE, ".shop.M.E")
    found = ProtobufReader([file]).read(b"\x0a\6\x0a\1k\x12\1v", 0)
    # Google's library skips it.
    assert found == ("shop.M", {})
