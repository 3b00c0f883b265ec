"""Fields of records: rendered by the kernel, they are what Python makes of them, or Python has to read them."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.record_facts.schema_registry import add_schema_ids
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.body_forms import RenderedRecords
from kafkasniff.kafka.schema.connect_configs import withhold_secrets
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, RenderingOptions
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, json_default
from tests.choice import examples
from tests.kafka import records_craft as craft
from tests.native.kernel_and_walker import hidden_records, the_kernel, without_kernel

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
    renderer = Renderer(the_kernel(), form, lambda *_: False, payload.hiding)
    rendering.options = RenderingOptions(**options, renderer=renderer)
    default = json_default(form)
    with without_kernel():
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


@examples(60)
@given(RECORDS, st.sampled_from(range(5)), st.sampled_from([0, 0x08, 0x10, 0x40, 0x58]), st.sampled_from([0, 1 << 40]))
def test_any_batch(records: list[craft.Record], codec: int, attributes: int, base: int) -> None:
    data = craft.batch_of(records, codec, attributes=attributes, base_offset=base)
    for form, payload in (("auto", SHOWN), ("hex", HASHED), ("base64", DROPPED)):
        both(data, form, payload=payload)
        both(data + data, form, payload=payload)
        both(data + data[:40], form, payload=payload)


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_taken(codec: int) -> None:
    """Else the tests here would compare Python with Python."""
    records = [craft.Record(at, at, b"key", b"value \xc3\xa4", (("h", None),)) for at in range(30)]
    data = craft.batch_of(records, codec)
    assert both(data)
    assert both(data * 3, "base64")
    assert both(data + data[:-1])
    assert both(craft.batch(b"", 0))
    assert both(data, payload=HASHED)
    assert both(data, payload=DROPPED)


@pytest.mark.parametrize(
    "data",
    [
        craft.batch_of([craft.Record(0, 0, None, b"\0\0\0\0\x11schema")]),
        craft.batch_of([craft.Record(0, 0, b"connector-x", b'{"properties":{}}')]),
        craft.batch_of([craft.Record(0, 0, None, b"v", (("__value_schema_id", bytes(5)),))]),
        craft.batch_of([craft.Record(0, 0, b"\0\0\0", b"\0\0\0\0\0\1")], attributes=0x20),
        craft.batch_of([craft.Record(0, 0, None, b"\0\0\0\0\0\1")], attributes=0x20),
        craft.batch_of([craft.Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\1\0")], attributes=0x20),
        craft.batch_of([craft.Record(0, 0, b"\0\0\0\4", b"\0\0\0rest")], attributes=0x20),
        craft.batch(b"", 0, attributes=0x80),
        craft.batch(b"", 0, attributes=5),
        craft.batch(b"x", 1, attributes=4),
        craft.batch(craft.record(craft.Record(0, 0, b"k", b"v")), 2),
        craft.batch(craft.record(craft.Record(0, 0, b"k", b"v")), -1),
        craft.batch(craft.record(craft.Record(0, 0, b"k", b"v"))[:-1], 1),
        craft.batch(craft.record(craft.Record(0, 0, b"k", b"v")) + b"\0", 1),
        craft.batch(b"", 0, crc=1),
        craft.batch(b"", 0, length=10),
        craft.batch(b"", 0, length=-1) + bytes(61),
        bytes(16) + b"\3" + bytes(60),
    ],
    ids=lambda data: data[57:70].hex(),
)
def test_messages_with_more_to_report_are_left_to_python(data: bytes) -> None:
    assert not both(data)


@pytest.mark.parametrize("size", [1_400, *range(1_480, 1_500), 3_000, 3_050, 10_000])
def test_checksums_of_large_batches(size: int) -> None:
    """Those of 1,536 bytes and more are made in parts."""
    text = random.Random(size).randbytes(size).hex()[:size]
    assert both(craft.batch_of([craft.Record(0, 0, None, text.encode())]))


@pytest.mark.parametrize("escaped", ['"', "\\", "\x1f", "\x7f", "é", "\U0001f600"])
def test_text_is_escaped_wherever_it_is(escaped: str) -> None:
    """Text is looked at 64, 16 and 8 bytes at a time."""
    texts = ["x" * front + escaped + "y" * behind for front in range(0, 150, 7) for behind in (0, 3, 9, 17, 70)]
    records = [craft.Record(at, 0, None, text.encode()) for at, text in enumerate(texts)]
    assert both(craft.batch_of(records))
    broken = "x" * 70 + escaped
    assert both(craft.batch_of([craft.Record(0, 0, None, broken.encode() + b"\xff")]))


@pytest.mark.parametrize(
    "data",
    [
        craft.batch_of([craft.Record(0, 0, b"a connector-x", b'{"properties":{}}')]),
        craft.batch_of([craft.Record(0, 0, b"connector-x", None)]),
        craft.batch_of([craft.Record(0, 0, bytes(8), b"\0\0\0\0\x11")]),
        craft.batch_of([craft.Record(0, 0, None, b"\0\0\0\0\x11schema"), craft.Record(1, 0, None, b"none")]),
        craft.batch_of([craft.Record(0, 0, None, b"\0\0\0\0\0schema")]),
        craft.batch_of([craft.Record(0, 0, None, b"\0\1\0\0\0schema"), craft.Record(0, 0, None, b"\0\1\0\0\0s")]),
    ],
    ids=lambda data: data[61:80].hex(),
)
def test_lookalikes_of_special_messages_are_accepted(data: bytes) -> None:
    for payload in (SHOWN, DROPPED, HASHED):
        assert both(data, payload=payload)


def test_hidden_payload_is_not_read() -> None:
    """Schema ids and trace ids go with the keys and values that they lie in."""
    for one in (
        craft.Record(0, 0, None, b"\0\0\0\0\x11schema"),
        craft.Record(0, 0, b"k", b"v", (("__value_schema_id", bytes(5)), ("traceparent", None))),
    ):
        data = craft.batch_of([one])
        assert not both(data)
        assert both(data, payload=HASHED)
        assert both(data, payload=DROPPED)


def test_secrets_of_kafka_connect_are_left_to_python() -> None:
    data = craft.batch_of([craft.Record(0, 0, b"session-key", b'{"key":"0123"}')])
    for payload in (SHOWN, DROPPED, HASHED):
        assert not both(data, payload=payload)
        assert both(data, payload=payload, show_secrets=True)


def test_identical_records_are_bounded() -> None:
    """A kilobyte must not become millions of records: the bounds on what a batch may hold are Python's to report."""
    one = craft.record(craft.Record(0, 0, None, None))
    assert not both(craft.batch(craft.COMPRESSORS[craft.GZIP](one * 50_000), 50_000, attributes=craft.GZIP))
    headers = craft.record(craft.Record(0, 0, None, None, (("", None),) * 3000))
    assert not both(craft.batch(craft.COMPRESSORS[craft.GZIP](headers), 1, attributes=craft.GZIP))


def test_bounds_of_the_options_hold() -> None:
    data = craft.batch_of([craft.Record(at, 0, None, bytes(100)) for at in range(50)], craft.GZIP)
    assert not both(data, max_decompressed=1000)
    assert not both(data, max_records=49)
    plain = craft.batch_of([craft.Record(at, 0, None, b"x" * 100) for at in range(50)], craft.GZIP)
    assert both(plain, max_records=50)


def test_changed_bytes() -> None:
    rng = random.Random(3)
    records = [craft.Record(at, at, b"key", b"value", (("h", b"v"),)) for at in range(5)]
    taken = 0
    for codec in range(5):
        whole = craft.batch_of(records, codec)
        for _ in range(300):
            changed = bytearray(whole[61:] if rng.random() < 0.7 else whole)
            for _ in range(rng.choice([0, 1, 1, 2])):
                changed[rng.randrange(len(changed))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            data = bytes(changed)
            taken += both(craft.batch(data, 5, attributes=codec) if len(data) != len(whole) else data)
    assert taken > 100
