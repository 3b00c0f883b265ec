"""A second opinion on Avro: fastavro writes values of random schemas, and reads the same from them."""

from __future__ import annotations

import io
import json
import random
from itertools import count
from typing import Any

import pytest

from kafkasniff.values.avro import AvroReader

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
