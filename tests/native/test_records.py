"""Batches of records and message sets: the kernel makes the JSON that Python makes, or Python has to read them."""

from __future__ import annotations

import random
import struct
import zlib
from copy import deepcopy
from random import Random
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.record_facts import add_schema_ids
from kafkasniff.kafka.records.record_list import VALUE_SCHEMAS, control_types
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, RenderedRecords, RenderingOptions
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.kafka.schema.secrets import withhold_secrets
from kafkasniff.native import kernel
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, json_default
from tests.choice import examples, fewer
from tests.craft import kafka_bytes as kafka
from tests.engine.shown import agree
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import hidden_records, records_by_python
from tests.native.test_lines import speech, spoken

TEXTS = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode))
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "größe", "trace", "", '"\\']), TEXTS), max_size=3)
RECORDS = st.lists(
    st.builds(
        lambda offset, timestamp, key, value, headers: craft.Record(offset, timestamp, key, value, tuple(headers)),
        st.one_of(st.integers(0, 200), st.sampled_from([-1, (1 << 31) - 1, -(1 << 31)])),
        st.one_of(st.integers(0, 1 << 40), st.sampled_from([-1, (1 << 63) - 1, -(1 << 63)])),
        TEXTS,
        TEXTS,
        HEADERS,
    ),
    max_size=6,
)


DROPPED, HASHED = Payload("dropped"), Payload.hashed(b"some salt")


def both(data: bytes, form: BytesForm = "auto", *, payload: Payload = SHOWN, **options: Any) -> bool:
    """Whether the kernel takes a field; raises AssertionError where the lines or the contexts differ."""
    plain, rendering = DecodeContext(DecodeOptions(**options)), DecodeContext(DecodeOptions())
    renderer = Renderer(kernel(), form, lambda *_: False, payload.hiding)
    rendering.options = RenderingOptions(**options, renderer=renderer)
    default = json_default(form)
    with records_by_python():
        expected = decode_records(b"\1" + data + b"\1", 1, 1 + len(data), plain)
    packed = DecodeContext(DecodeOptions(**options))
    assert decode_records(b"\1" + data + b"\1", 1, 1 + len(data), packed) == expected
    for name in ("problems", "decompressed", "truncated", "records", "interpretable"):
        assert getattr(packed, name) == getattr(plain, name), name
    found = decode_records(b"\1" + data + b"\1", 1, 1 + len(data), rendering)
    is_rendered = isinstance(found, RenderedRecords)
    shown = hidden_records(expected, payload) if is_rendered else expected
    assert orjson.dumps(found, default=default) == orjson.dumps(shown, default=default)
    assert rendering.problems == plain.problems
    assert (rendering.decompressed, rendering.truncated) == (plain.decompressed, plain.truncated)
    if not isinstance(found, RenderedRecords):
        return False
    # Interpreters have nothing else to add that is shown.
    reported = deepcopy(expected)
    withhold_secrets(reported, plain)
    add_schema_ids(reported)
    assert found.decode() == reported
    assert hidden_records(reported, payload) == shown
    # What counts towards the bound is no less.
    assert rendering.records >= plain.records
    return True


Message = tuple[int, int, bytes | None, bytes | None]
LOG_APPEND_TIME = 0x08
OFFSETS = st.one_of(st.integers(0, 1000), st.sampled_from([-1, (1 << 63) - 1, -(1 << 63)]))
TIMES = st.one_of(st.integers(0, 1 << 41), st.sampled_from([-1, (1 << 63) - 1, -(1 << 63)]))
MESSAGES = st.lists(st.tuples(OFFSETS, TIMES, TEXTS, TEXTS), max_size=5)
WAYS: list[tuple[BytesForm, Payload]] = [("auto", SHOWN), ("hex", HASHED), ("base64", DROPPED)]


def plain(found: list[Message], magic: int) -> list[bytes]:
    return [craft.message(at, key, value, magic=magic, timestamp=time) for at, time, key, value in found]


def some(count: int, magic: int = 1) -> list[bytes]:
    """Messages of a set."""
    return plain([(at, at, b"key", b"value \xc3\xa4\n") for at in range(count)], magic)


def set_of(count: int, codec: int, magic: int = 1) -> bytes:
    return (
        b"".join(some(count, magic)) if codec == 0 else craft.wrapper(count - 1, some(count, magic), codec, magic=magic)
    )


@examples(60)
@given(RECORDS, st.sampled_from(range(5)), st.sampled_from([0, 0x08, 0x10, 0x40, 0x58]), st.sampled_from([0, 1 << 40]))
def test_any_batch(records: list[craft.Record], codec: int, attributes: int, base: int) -> None:
    data = craft.batch_of(records, codec, attributes=attributes, base_offset=base)
    for form, payload in WAYS:
        both(data + data, form, payload=payload)
        both(data + data[:40], form, payload=payload)


@examples(60)
@given(MESSAGES, st.sampled_from([0, 1]), st.sampled_from(range(4)), st.booleans(), OFFSETS, TIMES)
def test_any_set(  # noqa: PLR0917 - drawn apart
    found: list[Message], magic: int, codec: int, appends: bool, offset: int, time: int
) -> None:
    attributes = LOG_APPEND_TIME if appends and magic == 1 else 0
    data = b"".join(plain(found, magic))
    if codec:
        wrapped = craft.wrapper(offset, plain(found, magic), codec, magic=magic, attributes=attributes, timestamp=time)
        data = wrapped + data + wrapped
    for form, payload in WAYS:
        both(data + data[:40], form, payload=payload)


@pytest.mark.parametrize("codec", range(5))
def test_batches_and_sets_are_taken(codec: int) -> None:
    """Else the tests here would compare Python with Python."""
    modern = craft.batch_of([craft.Record(at, at, b"key", b"value \xc3\xa4", (("h", None),)) for at in range(9)], codec)
    assert both(modern * 3, "base64")
    assert both(craft.batch(b"", 0))
    fields = [modern + modern[:-1], *(set_of(9, codec % 4, magic) + modern + modern[:-1] for magic in (0, 1))]
    for data in fields:
        for payload in (SHOWN, DROPPED, HASHED):
            assert both(data, payload=payload)
        both(data, records="batches")


def one(key: bytes | None, value: bytes | None, headers: Any = (), **more: Any) -> bytes:
    """A batch of one record."""
    return craft.batch_of([craft.Record(0, 0, key, value, headers)], **more)


KV, ONE = craft.record(craft.Record(0, 0, b"k", b"v")), craft.message(0, b"key", b"value")
ZIPPED = craft.COMPRESSORS[craft.GZIP]
PYTHONS = {
    "schema id": one(None, b"\0\0\0\0\x11schema"),
    "connector": one(b"connector-x", b'{"properties":{}}'),
    "schema id in a header": one(None, b"v", (("__value_schema_id", bytes(5)),)),
    "control: key cut": one(b"\0\0\0", b"\0\0\0\0\0\1", attributes=0x20),
    "control: no key": one(None, b"\0\0\0\0\0\1", attributes=0x20),
    "control: value cut": one(b"\0\0\0\1", b"\0\0\0\0\0\1\0", attributes=0x20),
    "control: more": one(b"\0\0\0\4", b"\0\0\0rest", attributes=0x20),
    "attributes": craft.batch(b"", 0, attributes=0x80),
    "codec": craft.batch(b"", 0, attributes=5),
    "not compressed": craft.batch(b"x", 1, attributes=4),
    "count too large": craft.batch(KV, 2),
    "count below zero": craft.batch(KV, -1),
    "record cut": craft.batch(KV[:-1], 1),
    "bytes after records": craft.batch(KV + b"\0", 1),
    "checksum": craft.batch(b"", 0, crc=1),
    "length too small": craft.batch(b"", 0, length=10),
    "length below zero": craft.batch(b"", 0, length=-1) + bytes(61),
    "magic 3": bytes(16) + b"\3" + bytes(60),
    "set: checksum": craft.message(0, b"k", b"v" * 40, crc=1),
    "set: time type of magic 0": craft.message(0, b"k", b"v" * 40, magic=0, attributes=LOG_APPEND_TIME),
    "set: attributes": craft.message(0, b"k", b"v" * 40, attributes=0x10),
    "set: codec": craft.message(0, b"k", b"v" * 40, attributes=5),
    "set: not compressed": craft.message(0, b"k", b"v" * 40, attributes=1),
    "set: no value": craft.message(0, None, None, attributes=1) + bytes(40),
    "wrapper: empty": craft.wrapper(0, []),
    "wrapper: cut": craft.wrapper(0, [ONE[:-1]]),
    "wrapper: more": craft.wrapper(0, [ONE, b"more"]),
    "wrapper: checksum inside": craft.wrapper(0, [craft.message(0, b"k", b"v", crc=1)]),
    "wrapper: nested": craft.wrapper(0, [craft.wrapper(0, [ONE])]),
    "wrapper: another magic inside": craft.wrapper(0, [craft.message(0, b"k", b"v", magic=0)]),
    "wrapper: with a key": craft.message(0, b"key", ZIPPED(ONE), attributes=craft.GZIP),
    "wrapper: gzip cut": craft.message(0, None, ZIPPED(ONE)[:-9], attributes=craft.GZIP),
    "set: schema id": craft.message(0, b"k", b"\0\0\0\0\x11" + b"schema" * 9),
    "wrapper: schema id": craft.wrapper(0, [craft.message(0, None, b"\0\0\0\0\x11schema")]),
    "set: session key of Connect": craft.message(0, b"session-key", b"{}" + b" " * 40),
    "set: size too small": ONE * 2 + bytes(8) + struct.pack(">i", 3) + bytes(40),
    # A kilobyte must not become millions of records: the bounds on what a batch may hold are Python's to report.
    "identical records": craft.batch(
        ZIPPED(craft.record(craft.Record(0, 0, None, None)) * 50_000), 50_000, attributes=1
    ),
    "identical headers": one(None, None, (("", None),) * 3000, codec=craft.GZIP),
    "identical messages": craft.wrapper(0, [craft.message(0, None, None)] * 20_000),
}


@pytest.mark.parametrize("name", PYTHONS)
def test_what_has_more_to_report_is_left_to_python(name: str) -> None:
    assert not both(PYTHONS[name])


def test_lookalikes_of_special_records_are_taken() -> None:
    for data in (
        one(b"a connector-x", b'{"properties":{}}'),
        one(b"connector-x", None),
        one(bytes(8), b"\0\0\0\0\x11"),
        craft.batch_of([craft.Record(0, 0, None, b"\0\0\0\0\x11schema"), craft.Record(1, 0, None, b"none")]),
        one(None, b"\0\0\0\0\0schema"),
        craft.batch_of([craft.Record(0, 0, None, b"\0\1\0\0\0schema"), craft.Record(0, 0, None, b"\0\1\0\0\0s")]),
    ):
        for payload in (SHOWN, DROPPED, HASHED):
            assert both(data, payload=payload), data


def test_hidden_payload_is_not_read() -> None:
    """Schema ids and trace ids go with the keys and values that they lie in. Secrets of Connect stay Python's."""
    headers = (("__value_schema_id", bytes(5)), ("traceparent", None))
    for data in (PYTHONS["schema id"], one(b"k", b"v", headers)):
        assert not both(data)
        assert both(data, payload=HASHED)
        assert both(data, payload=DROPPED)
    secret = one(b"session-key", b'{"key":"0123"}')
    for payload in (SHOWN, DROPPED, HASHED):
        assert not both(secret, payload=payload)
        assert both(secret, payload=payload, show_secrets=True)


def test_bounds_of_the_options_hold() -> None:
    batch = craft.batch_of([craft.Record(at, 0, None, b"x" * 100) for at in range(50)], craft.GZIP)
    for data in (batch, set_of(50, craft.GZIP)):
        assert both(data, max_records=50)
        assert not both(data, max_records=49)
        assert not both(data, max_decompressed=100)
    zeros = craft.wrapper(0, [craft.message(0, None, bytes(3 << 20))], craft.GZIP)
    assert not both(zeros)  # JSON takes six bytes for each
    assert both(zeros, payload=HASHED)


def test_checksums_of_large_batches() -> None:
    """Those of 1,536 bytes and more are made in parts."""
    for size in (1_400, *range(1_480, 1_500), 3_000, 3_050, 10_000):
        text = random.Random(size).randbytes(size).hex()[:size]
        assert both(one(None, text.encode())), size


@pytest.mark.parametrize("escaped", ['"', "\\", "\x1f", "\x7f", "é", "\U0001f600"])
def test_text_is_escaped_wherever_it_is(escaped: str) -> None:
    """Text is looked at 64, 16 and 8 bytes at a time."""
    texts = ["x" * front + escaped + "y" * behind for front in range(0, 150, 7) for behind in (0, 3, 9, 17, 70)]
    assert both(craft.batch_of([craft.Record(at, 0, None, text.encode()) for at, text in enumerate(texts)]))
    assert both(one(None, ("x" * 70 + escaped).encode() + b"\xff"))


def test_changed_bytes() -> None:
    rng = random.Random(3)
    records = [craft.Record(at, at, b"key", b"value", (("h", b"v"),)) for at in range(5)]
    taken = 0
    for codec in range(5):
        modern, old = craft.batch_of(records, codec), set_of(4, codec % 4, codec % 2)
        for turn in range(fewer(160, 600)):
            is_old = turn % 2 == 0
            whole = old if is_old else modern[61:] if rng.random() < 0.7 else modern
            changed = bytearray(whole)
            for _ in range(rng.choice([0, 1, 1, 2])):
                changed[rng.randrange(len(changed))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            if is_old and rng.random() < 0.8:
                changed[12:16] = zlib.crc32(changed[16:]).to_bytes(4, "big")
            data = bytes(changed)
            taken += both(data + old if is_old else data if whole is modern else craft.batch(data, 5, attributes=codec))
    assert taken > 150


# -- control batches ---------------------------------------------------------------------------------------------------


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
