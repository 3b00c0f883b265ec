"""Payload that is dropped or hashed by the kernel: what `redact/payload.py` makes of the walker's bodies."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import orjson
import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.definition import ops_of
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.model import Direction
from kafkasniff.redact.payload import SALT_BYTES, Payload
from kafkasniff.sinks.jsonl import BytesForm
from tests import invented
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import agree, caller, program
from tests.native.test_bodies import CHOICES

SALT = b"pepper"
WAYS = (Payload("dropped"), Payload.hashed(SALT))
SIZES = (0, 1, 7, 63, 64, 127, 128, 129, 255, 256, 257, 384, 1000)


def schemas_of(key: int) -> Iterator[tuple[int, Direction, Schema]]:
    """Those in which there may be payload, but for messages in each other, which Python hides."""
    found = api(key)
    assert found is not None
    for version in found.versions:
        for direction, schema in (("request", found.request(version)), ("response", found.response(version))):
            nests = any(field.nests is not None for field in schema.root.fields)
            if schema.root.payload and not nests:
                yield version, direction, schema  # type: ignore[misc]


def hidden_alike(key: int, rng: random.Random, form: BytesForm = "auto") -> int:
    """Compares bodies of all versions; how many the kernel took."""
    taken = 0
    for version, direction, schema in schemas_of(key):
        walks = program(schema.root)
        for payload in WAYS:
            for shown in (False, True):
                for choices in CHOICES:
                    raw = Encoder(Plan(rng, **choices)).body(schema.root)
                    asks = caller(form=form, payload=payload, show_secrets=shown)
                    made = asks.body(walks, raw, 0, len(raw), lambda _: None)
                    options = DecodeOptions(show_secrets=shown)
                    hide = partial(payload.body, key, version, direction)
                    taken += agree(made, schema.root, raw, 0, len(raw), options, form, hide=hide)
    return taken


def test_bodies() -> None:
    for key in api_keys():
        schemas = list(schemas_of(key))
        # Records that are a slice of a log (FetchSnapshot) are Python's.
        records = [op for *_, schema in schemas for op in ops_of(schema.root) if op.kind == "records"]
        assert hidden_alike(key, random.Random(key)) or all("unaligned" in op.flags for op in records), key


def test_marked_fields(tmp_path: Path) -> None:
    """Strings and bytes that a definition marks, in arrays, structs and tags, and tags without a definition."""
    # Without what is Python's: settings, the metadata log, messages in each other, floats.
    left = re.sub(r"(?m)^  (settings|log|forwarded|rates?) .*\n(    .*\n)*", "", invented.DEFINITION)
    assert left.count("payload") > 10
    with invented.known(tmp_path, {f"{invented.KEY:03d}_invented.txt": left}):
        rng = random.Random(95)
        assert hidden_alike(invented.KEY, rng) > 50
        assert hidden_alike(invented.KEY, rng, "hex") > 50


def value_of(value: bytes | None, payload: Payload) -> object:
    """What stands for the value of a record."""
    field = craft.batch_of([craft.Record(0, 0, None, value)])
    made = caller(payload=payload).records(field, 0, len(field), lambda _: None)
    assert made is not None
    return orjson.loads(made.json)["batches"][0]["records"][0]["value"]


@pytest.mark.parametrize("salt", [b"", b"s", bytes(range(32)), bytes(SALT_BYTES), b"\xff" * SALT_BYTES])
def test_hashes_are_those_of_hashlib(salt: bytes) -> None:
    for size in SIZES:
        value = random.Random(size).randbytes(size)
        expected = hashlib.blake2b(value, digest_size=8, key=salt, person=b"kafkasniff").hexdigest()
        assert value_of(value, Payload("hashed", "", salt)) == {"hash": expected, "length": size}
    assert value_of(None, Payload("hashed", "", salt)) is None
    assert value_of(b"value", WAYS[0]) == {"length": 5}


def test_values_of_a_message_are_hashed_alike() -> None:
    """The state that begins with the salt serves all values of a call, empty ones in between."""
    values = [b"", b"a", b"", b"b" * 200, b"a", None]
    field = craft.batch_of([craft.Record(at, 0, value, b"a", (("h", value),)) for at, value in enumerate(values)])
    made = caller(payload=WAYS[1]).records(field, 0, len(field), lambda _: None)
    assert made is not None
    for record, value in zip(orjson.loads(made.json)["batches"][0]["records"], values, strict=True):
        expected = None if value is None else WAYS[1].stand_in(value)
        assert (record["key"], record["value"]) == (expected, WAYS[1].stand_in(b"a"))
        assert record["headers"] == [{"key": "h", "value": expected}]


def test_no_salt_in_what_is_made() -> None:
    field = craft.batch_of([craft.Record(0, 0, b"key", b"value", (("h", b"v"),))])
    asks = caller(payload=WAYS[1])
    made = asks.records(field, 0, len(field), lambda _: None)
    assert made is not None
    assert SALT not in bytes(asks.view)
    assert SALT not in made.json
