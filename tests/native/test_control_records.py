"""Records of control batches: as JSON by the kernel they are what Python makes of them, or Python has to read them."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from kafkasniff.kafka.records.record_list import VALUE_SCHEMAS, control_types
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.native import kernel
from tests.craft import kafka_bytes as kafka
from tests.engine.shown import agree
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.test_lines import speech, spoken
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
    exchanges = []
    for key in (b"\0\0\0\1", b"\1\0\0\1"):
        control = craft.batch_of([craft.Record(0, 0, key, marker)], attributes=CONTROL)
        for records in (control + framed, framed + control, framed + control + framed):
            body = b"\xff\xff\xff\xff\0\0\0\1" + kafka.array(
                [kafka.string("orders") + kafka.array([bytes(4) + kafka.int32(len(records)) + records])]
            )
            exchanges.append(speech(0, 3, body, b""))
    found, _ = agree("json", spoken(exchanges))
    assert found.native == 2 * (3 + len(exchanges))
