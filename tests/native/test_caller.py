"""Bodies of every version in both directions: the kernel against the walker, on bytes that are right and others."""

from __future__ import annotations

import itertools
import random

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.body_problems import NOT_TEXT, NUMBERED
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.program import ops_of
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.sinks.jsonl import BytesForm
from tests.choice import DEEP
from tests.kafka.encode import Encoder, Plan
from tests.kafka.schemas import data_schemas, schemas_of
from tests.native.kernel_and_walker import agree, agree_on_dicts, caller, program

SHOW = DecodeOptions(show_secrets=True)
CHOICES = [
    {"nulls": True, "tagged": False, "unknown_tags": False, "count": 1},
    {"nulls": False, "tagged": True, "unknown_tags": False, "count": 1},
    {"nulls": False, "tagged": True, "unknown_tags": True, "count": 2},
    {"nulls": False, "tagged": False, "unknown_tags": False, "count": 0},
    {},
]
FORMS: tuple[BytesForm, ...] = ("auto", "base64", "hex")
EDGES = (0, 1, 0x5C, 0x7F, 0x80, 0xC3, 0xED, 0xF4, 0xFF)


def leaves(schema: Schema) -> bool:
    """Whether bodies of a layout may be left to Python though nothing is wrong with them."""
    ops = ops_of(schema.root)
    if any("set" in op.flags for op in ops):
        return True  # names of operations are put beside a set
    return any(op.kind == "float64" or (op.kind == "records" and {"secret", "unaligned"} & {*op.flags}) for op in ops)


def check(schema: Schema, rng: random.Random, choices: dict, form: BytesForm) -> None:
    raw, _ = Encoder(Plan(rng, **choices)).body(schema.root)
    data = b"\x01" * 3 + raw + b"\xfe" * 5
    end = 3 + len(raw)
    made = caller(form=form).body(program(schema.root), data, 3, end, lambda _: None)
    taken = agree(made, schema.root, data, 3, end, SHOW, form)
    assert taken or leaves(schema), f"{schema!r} was left to Python: {raw.hex()}"


@pytest.mark.parametrize("key", api_keys())
def test_every_version_of_an_api(key: int) -> None:
    rng = random.Random(key)
    for schema, (number, choices) in itertools.product(schemas_of(key), enumerate(CHOICES)):
        check(schema, rng, choices, FORMS[number % 3])


def test_every_data_block() -> None:
    for schema in data_schemas():
        rng = random.Random(schema.name)
        for number, choices in enumerate(CHOICES):
            check(schema, rng, choices, FORMS[number % 3])


@pytest.mark.parametrize("key", api_keys())
def test_changed_and_cut_bytes(key: int) -> None:
    """Where the kernel takes a body, the walker reports the same of it; else Python reads it."""
    rng = random.Random(2000 + key)
    asks = caller()
    for schema in schemas_of(key):
        raw, _ = Encoder(Plan(rng)).body(schema.root)
        walks = program(schema.root)
        for _ in range(40 if DEEP else 6):
            changed = bytearray(raw or b"\x00")
            for _ in range(rng.choice([0, 1, 1, 2, 5])):
                changed[rng.randrange(len(changed))] = rng.choice([*EDGES, rng.randrange(256)])
            data = bytes(changed)
            end = rng.choice([len(data), len(data), rng.randrange(len(data) + 1)])
            agree(asks.body(walks, data, 0, end, lambda _: None), schema.root, data, 0, end, SHOW)
            agree_on_dicts(schema.root, data, 0, end, SHOW)


@pytest.mark.parametrize("key", api_keys())
def test_secrets_are_withheld(key: int) -> None:
    """Without leave to show them, secrets and unknown tags beside them stand as their lengths, or Python reads them."""
    rng = random.Random(key)
    hide = DecodeOptions()
    asks = caller(show_secrets=False)
    for schema in schemas_of(key):
        if not schema.has_secrets:
            continue
        for choices in CHOICES:
            raw, _ = Encoder(Plan(rng, **choices)).body(schema.root)
            agree(
                asks.body(program(schema.root), raw, 0, len(raw), lambda _: None), schema.root, raw, 0, len(raw), hide
            )


def test_text_that_is_not_utf8_is_bytes() -> None:
    found = api(12)
    assert found is not None
    schema = found.request(0)
    for text in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe6\x97", b"ab\xff", b"\xf8\x88\x80\x80\x80"):
        for front in (0, 13, 16, 31):
            word = b"x" * front + text
            raw = len(word).to_bytes(2, "big") + word + bytes(4) + b"\x00\x00"
            made = caller().body(program(schema.root), raw, 0, len(raw), lambda _: None)
            assert agree(made, schema.root, raw, 0, len(raw), SHOW)
            assert made is not None
            assert NUMBERED[made.problems[0].number - 1] is NOT_TEXT


def test_every_character_is_escaped_as_orjson_does() -> None:
    found = api(12)
    assert found is not None
    schema = found.request(0)
    asks, heartbeat = caller(), program(schema.root)
    for code in [*range(0x250), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]:
        for front in (0, 15, 16, 40):
            word = ("y" * front + chr(code) + "z" * 20).encode()
            raw = len(word).to_bytes(2, "big") + word + bytes(4) + b"\x00\x00"
            made = asks.body(heartbeat, raw, 0, len(raw), lambda _: None)
            assert agree(made, schema.root, raw, 0, len(raw), SHOW)


def test_bounds_hold() -> None:
    """Counts and sizes that the bytes cannot hold are refused before anything is made of them."""
    metadata = api(3)
    assert metadata is not None
    schema = metadata.request(1)
    for count in (1, 2, 1000, 0x7FFFFFFF, -2):
        raw = count.to_bytes(4, "big", signed=True)
        made = caller().body(program(schema.root), raw, 0, 4, lambda _: None)
        assert agree(made, schema.root, raw, 0, 4, SHOW)
        assert made is not None
        assert made.json == b"{}"
    zero_sized = api(18)
    assert zero_sized is not None
    assert caller().body(program(zero_sized.request(0).root), b"", 0, 0, lambda _: None) is not None


def test_a_body_too_large_for_its_room_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.native.caller.FIRST_OUTPUT", 64)
    found = api(3)
    assert found is not None
    schema = found.request(1)
    raw = (200).to_bytes(4, "big") + b"\x00\x05topic" * 200
    made = caller().body(program(schema.root), raw, 0, len(raw), lambda _: None)
    assert agree(made, schema.root, raw, 0, len(raw), SHOW)
    monkeypatch.setattr("kafkasniff.native.caller.MAX_OUTPUT", 1024)
    assert caller().body(program(schema.root), raw, 0, len(raw), lambda _: None) is None
