"""Message sets (magic 0 and 1) as JSON by the kernel: what Python makes of them, or Python has to read them."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.choice import examples
from tests.kafka import records_craft as craft
from tests.native.test_records import DROPPED, HASHED, SHOWN, TEXTS, both

LOG_APPEND_TIME = 0x08
OFFSETS = st.one_of(st.integers(0, 1000), st.sampled_from([-1, (1 << 63) - 1, -(1 << 63)]))
TIMES = st.one_of(st.integers(0, 1 << 41), st.sampled_from([-1, (1 << 63) - 1, -(1 << 63)]))
MESSAGES = st.lists(st.tuples(OFFSETS, TIMES, TEXTS, TEXTS), max_size=5)
Content = tuple[int, int, bytes | None, bytes | None]


def plain(found: list[Content], magic: int) -> list[bytes]:
    return [craft.message(at, key, value, magic=magic, timestamp=time) for at, time, key, value in found]


@examples(80)
@given(MESSAGES, st.sampled_from([0, 1]), st.sampled_from(range(4)), st.booleans(), OFFSETS, TIMES)
def test_any_set(  # noqa: PLR0917 - drawn apart
    found: list[Content], magic: int, codec: int, appends: bool, offset: int, time: int
) -> None:
    attributes = LOG_APPEND_TIME if appends and magic == 1 else 0
    data = b"".join(plain(found, magic))
    if codec:
        wrapped = craft.wrapper(offset, plain(found, magic), codec, magic=magic, attributes=attributes, timestamp=time)
        data = wrapped + data + wrapped
    for form, payload in (("auto", SHOWN), ("hex", HASHED), ("base64", DROPPED)):
        both(data, form, payload=payload)
        both(data + data[:40], form, payload=payload)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(4))
def test_sets_are_taken(magic: int, codec: int) -> None:
    """Else the tests here would compare Python with Python."""
    inside = plain([(at, at, b"key", b"value \xc3\xa4\n") for at in range(20)], magic)
    data = b"".join(inside) if codec == 0 else craft.wrapper(119, inside, codec, magic=magic)
    modern = craft.batch_of([craft.Record(0, 0, b"k", b"v")], codec)
    for payload in (SHOWN, DROPPED, HASHED):
        assert both(data, payload=payload)
        assert both(data + modern + data[:-1], payload=payload)
    assert both(b"".join(plain([(5, 5, None, None)], magic)))


def test_offsets_and_timestamps_inside() -> None:
    """KIP-31 and KIP-32: those inside count from the wrapper's, unless it is 0 or they are absolute."""
    inside = plain([(0, 7, b"a", b"b"), (2, 8, b"c", b"d")], 1)
    for offset in (0, 1, 2, 102, -5, (1 << 63) - 1, -(1 << 63)):
        for attributes in (0, LOG_APPEND_TIME):
            assert both(craft.wrapper(offset, inside, attributes=attributes, timestamp=99))
    last = plain([((1 << 63) - 1, 7, b"a", b"b"), (-(1 << 63), 8, b"c", b"d")], 1)
    assert both(craft.wrapper((1 << 63) - 1, last))


ONE = craft.message(0, b"key", b"value")


@pytest.mark.parametrize(
    "data",
    [
        craft.message(0, b"k", b"v" * 40, crc=1),
        craft.message(0, b"k", b"v" * 40, magic=0, attributes=LOG_APPEND_TIME),
        craft.message(0, b"k", b"v" * 40, attributes=0x10),
        craft.message(0, b"k", b"v" * 40, attributes=5),
        craft.message(0, b"k", b"v" * 40, attributes=1),
        craft.message(0, None, None, attributes=1) + bytes(40),
        craft.wrapper(0, []),
        craft.wrapper(0, [ONE[:-1]]),
        craft.wrapper(0, [ONE, b"more"]),
        craft.wrapper(0, [craft.message(0, b"k", b"v", crc=1)]),
        craft.wrapper(0, [craft.wrapper(0, [ONE])]),
        craft.wrapper(0, [craft.message(0, b"k", b"v", magic=0)]),
        craft.message(0, b"key", craft.COMPRESSORS[craft.GZIP](ONE), attributes=craft.GZIP),
        craft.message(0, None, craft.COMPRESSORS[craft.GZIP](ONE)[:-9], attributes=craft.GZIP),
        craft.message(0, b"k", b"\0\0\0\0\x11" + b"schema" * 9),
        craft.wrapper(0, [craft.message(0, None, b"\0\0\0\0\x11schema")]),
        craft.message(0, b"session-key", b"{}" + b" " * 40),
        ONE * 2 + bytes(8) + struct.pack(">i", 3) + bytes(40),
    ],
    ids=lambda data: f"{zlib.crc32(data):08x}",
)
def test_messages_with_more_to_report_are_left_to_python(data: bytes) -> None:
    assert not both(data)


def test_bounds_hold() -> None:
    """Python reports what reaches a bound."""
    many = craft.wrapper(0, [craft.message(0, None, None)] * 50_000)
    assert not both(many)
    some = craft.wrapper(49, plain([(at, at, b"key", b"value") for at in range(50)], 1))
    assert both(some, max_records=50)
    assert not both(some, max_records=49)
    assert not both(some, max_decompressed=100)
    zeros = craft.wrapper(0, [craft.message(0, None, bytes(3 << 20))], craft.GZIP)
    assert not both(zeros)  # JSON takes six bytes for each
    assert both(zeros, payload=HASHED)


def test_only_the_headers_of_batches() -> None:
    """A wrapper is decompressed for its count all the same."""
    for codec in range(4):
        inside = plain([(at, at, b"key", b"value") for at in range(20)], 1)
        both(b"".join(inside) if codec == 0 else craft.wrapper(19, inside, codec), records="batches")


def test_changed_bytes() -> None:
    rng = random.Random(4)
    taken = 0
    for codec in range(4):
        for magic in (0, 1):
            inside = plain([(at, at, b"key", b"value") for at in range(4)], magic)
            whole = inside[0] if codec == 0 else craft.wrapper(3, inside, codec, magic=magic)
            for _ in range(200):
                changed = bytearray(whole)
                for _ in range(rng.choice([0, 1, 1, 2])):
                    changed[rng.randrange(len(changed))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
                if rng.random() < 0.8:
                    changed[12:16] = zlib.crc32(changed[16:]).to_bytes(4, "big")
                taken += both(bytes(changed) + whole)
    assert taken > 200
