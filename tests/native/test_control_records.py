"""Records of control batches: as JSON by the kernel they are what Python makes of them, or Python has to read them."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records.control_records import VALUE_SCHEMAS, control_types
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.data_schemas import data_definitions, data_schema
from kafkasniff.native import kernel
from kafkasniff.redact.payload import SHOWN, Payload
from tests.choice import examples
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.feed_messages import Native, batches, by_sink, crafted
from tests.native.test_lines import compare
from tests.native.test_records import both

CONTROL: Final = 0x20
FRAMED: Final = b"\0\0\0\0\x11schema"
FRONTED: Final = "EndTxnMarker"


def value(rng: Random, control_type: int, version: int) -> bytes:
    """The value of a control record of a type that is known."""
    name = VALUE_SCHEMAS[control_type]
    schema = data_schema(name, 0 if name == FRONTED else version)
    assert schema is not None
    data = Encoder(Plan(rng)).body(schema.root)
    return struct.pack(">h", version) + (data if name == FRONTED else data[2:])


def versions(control_type: int) -> range:
    name = VALUE_SCHEMAS[control_type]
    known = data_definitions()[name].message.versions
    return range(5) if name == FRONTED else range(known.low, known.high + 1)


def record(rng: Random) -> craft.Record:
    """A control record, of which anything may be odd."""
    control_type = rng.choice([*VALUE_SCHEMAS] * 4 + [-1, 7, 256])
    data: bytes | None = rng.randbytes(rng.randrange(12))
    if control_type in VALUE_SCHEMAS:
        data = value(rng, control_type, rng.choice(versions(control_type)))
    key = struct.pack(">hh", rng.choice([0, 0, 0, 1, 300]), control_type) + rng.choice([b"", b"", b"more"])
    odd = rng.randrange(16)
    if odd == 0:
        key = key[: rng.randrange(4)]
    elif odd == 1:
        data = data and data[: rng.randrange(len(data))]
    elif odd == 2:
        data = data and data + bytes(rng.randrange(3))
    elif odd == 3:
        data = None
    headers = (("h", b"v"),) if odd == 4 else (("b3", b"0123456789abcdef-0123456789abcdef"),) if odd == 5 else ()
    return craft.Record(rng.randrange(5), rng.randrange(5), None if odd == 6 else key, data, headers)


def field(rng: Random) -> bytes:
    """Some batches, of which the others have records that may be framed."""
    found = b""
    for _ in range(rng.randrange(1, 4)):
        codec = rng.choice([0, 0, 0, 1, 4])
        if rng.random() < 0.7:
            records = [record(rng) for _ in range(rng.randrange(3))]
            found += craft.batch_of(records, codec, attributes=CONTROL | rng.choice([0, 0x10, 0x50, 0x08]))
        else:
            texts = [rng.choice([FRAMED, FRAMED, FRAMED, None, b"plain"]) for _ in range(rng.randrange(3))]
            found += craft.batch_of([craft.Record(at, at, text, text) for at, text in enumerate(texts)], codec)
    return found


def line(records: bytes, payload: Payload = SHOWN) -> bool:
    """Whether the kernel writes the line of a Produce request with these records; raises where it is another one."""
    topic = struct.pack(">ih", 1, 6) + b"orders" + struct.pack(">iii", 1, 0, len(records)) + records
    data = struct.pack(">hhih", 0, 3, 5, -1) + struct.pack(">hhi", -1, -1, 1000) + topic
    one = crafted(data, None, DecodeOptions())
    assert one is not None
    (batch,) = batches([one], 1)
    (piece,) = Native([one.connection], ["capture"], DecodeOptions(), payload=payload).of(batch)
    return not isinstance(piece, int) and compare([piece], by_sink(batch, payload=payload)) == []


@examples(90)
@given(st.randoms(use_true_random=False))
def test_any_control_batch(rng: Random) -> None:
    data = field(rng)
    for payload in (SHOWN, Payload("dropped")):
        both(data, payload=payload)
        line(data, payload)
    both(data, records="batches")


def test_all_types_and_versions_are_taken() -> None:
    """Else the test above would compare Python with Python."""
    rng = Random(1)
    assert {one.type for one in control_types(kernel())} == set(VALUE_SCHEMAS)
    for control_type in VALUE_SCHEMAS:
        for version in versions(control_type):
            for at in range(5):
                key = struct.pack(">hh", at % 2, control_type)
                one = craft.Record(0, 0, key, value(rng, control_type, version))
                assert both(craft.batch_of([one, one], at % 5, attributes=CONTROL | 0x10))
    assert both(craft.batch_of([craft.Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\1")], attributes=CONTROL | 0x40))


def test_control_batches_between_framed_records() -> None:
    """They have no schema ids, but the first batch says whether anybody looks for them."""
    marker, framed = b"\0\0\0\0\0\1", craft.batch_of([craft.Record(0, 0, FRAMED, FRAMED)])
    for key in (b"\0\0\0\1", b"\1\0\0\1"):
        control = craft.batch_of([craft.Record(0, 0, key, marker)], attributes=CONTROL)
        assert line(control + framed)
        assert line(framed + control)
        assert line(framed + control + framed)
