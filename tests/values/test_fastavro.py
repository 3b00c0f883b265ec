"""A second opinion on Avro: fastavro writes values of random schemas, and reads the same from them."""

from __future__ import annotations

import io
import json
import math
import random
from typing import Any

import pytest

from kafkasniff.values.avro import AvroReader

fastavro = pytest.importorskip("fastavro")

pytestmark = pytest.mark.extended

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Made:
    """A random schema, and values of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = 0
        self.schema = self.record(0)

    def name(self) -> str:
        self.names += 1
        return f"N{self.names}"

    def record(self, depth: int) -> dict[str, Any]:
        name = self.name()
        fields = [{"name": f"f{number}", "type": self.type(depth + 1)} for number in range(self.chance.randrange(1, 6))]
        if self.chance.random() < 0.3:
            fields.append({"name": "again", "type": ["null", name]})
        return {"type": "record", "name": name, "namespace": self.chance.choice(("", "a.b")), "fields": fields}

    def type(self, depth: int) -> Any:
        kind = self.chance.randrange(8 if depth < 4 else 4)
        match kind:
            case 4:
                return {"type": "array", "items": self.type(depth + 1)}
            case 5:
                return {"type": "map", "values": self.type(depth + 1)}
            case 6:
                return self.record(depth)
            case 7:
                return ["null", self.chance.choice(PRIMITIVES[1:])]
            case 0:
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            case 1:
                return {"type": "fixed", "name": self.name(), "size": self.chance.randrange(5)}
            case _:
                return self.chance.choice(PRIMITIVES)

    def value(self, schema: Any) -> Any:
        chance = self.chance
        if isinstance(schema, list):
            # Records that contain themselves end here.
            return self.value(chance.choice(schema)) if schema[1] in PRIMITIVES else None
        if isinstance(schema, dict):
            match schema["type"]:
                case "record":
                    return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
                case "enum":
                    return chance.choice(schema["symbols"])
                case "fixed":
                    return chance.randbytes(schema["size"])
                case "array":
                    return [self.value(schema["items"]) for _ in range(chance.randrange(4))]
                case "map":
                    return {chr(65 + number): self.value(schema["values"]) for number in range(chance.randrange(4))}
        values = {
            "null": None,
            "boolean": chance.random() < 0.5,
            "int": chance.choice((0, -1, 2**31 - 1, -(2**31), chance.randrange(1000))),
            "long": chance.choice((0, 2**63 - 1, -(2**63), chance.randrange(-(2**40), 2**40))),
            "float": chance.choice((0.5, -1.0, math.inf)),
            "double": chance.choice((chance.random(), -math.inf, 1e300)),
            "bytes": chance.randbytes(chance.randrange(5)),
            "string": chance.choice(("", "größe", "\0", "x" * 200)),
        }
        return values[schema]


def plain(value: Any) -> Any:
    """As kafkasniff has it: infinities are strings."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


@pytest.mark.parametrize("seed", range(20))
def test_the_same_values(seed: int) -> None:
    for number in range(50):
        made = Made(seed * 1000 + number)
        parsed = fastavro.parse_schema(json.loads(json.dumps(made.schema)))
        reader = AvroReader(json.dumps(made.schema))
        for _ in range(5):
            stream = io.BytesIO()
            value = made.value(made.schema)
            fastavro.schemaless_writer(stream, parsed, value)
            data = stream.getvalue()
            again = fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
            assert reader.read(data, 0).value == plain(again)
