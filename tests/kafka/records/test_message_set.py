"""Message sets of magic 0 and 1: wrappers, offsets, nesting, and everything that can be wrong with them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records.compression import MAX_UNRATED
from kafkasniff.kafka.records.message_set import MAX_NESTING
from tests.kafka.records_craft import (
    COMPRESSORS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    batch_of,
    decode,
    kinds,
    message,
    wrapper,
)

LOG_APPEND = 8


def offsets(out):
    return [one["offset"] for found in out["batches"] for one in found["records"]]


nullable = st.none() | st.binary(max_size=30)
messages = st.lists(st.tuples(nullable, nullable, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5)


@given(messages, st.integers(0, 1), st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]), st.integers(0, 2**62))
def test_round_trip(sources, magic, codec, first):
    last = first + len(sources) - 1
    inner_first = 0 if magic == 1 and codec else first
    inner = [
        message(inner_first + index, key, value, magic=magic, timestamp=timestamp)
        for index, (key, value, timestamp) in enumerate(sources)
    ]
    data = b"".join(inner) if codec == NONE else wrapper(last, inner, codec, magic=magic)
    out, where = decode(data)
    assert where.problems == []
    assert [one for found in out["batches"] for one in found["records"]] == [
        {"offset": first + index, "timestamp": timestamp if magic else None, "key": key, "value": value}
        for index, (key, value, timestamp) in enumerate(sources)
    ]
    assert len(out["batches"]) == (len(sources) if codec == NONE else 1)
    assert sum(found["record_count"] for found in out["batches"]) == len(sources)
    assert all(found["crc_ok"] for found in out["batches"])


def test_offsets_in_a_wrapper() -> None:
    """Relative to its last one, with holes; some writers left the wrapper at 0. They stay 64-bit."""
    for inner, outer, expected in (
        ((0, 3, 9), 1009, [1000, 1003, 1009]),
        ((0, 1, 2), 0, [0, 1, 2]),
    ):
        assert offsets(decode(wrapper(outer, [message(one, None, b"x") for one in inner]))[0]) == expected
    far = [message(-(2**63), None, b"x"), message(-(2**63), None, b"y")]
    assert all(-(2**63) <= offset < 2**63 for offset in offsets(decode(wrapper(2**63 - 1, far))[0]))


def test_log_append_time_of_the_wrapper_holds_inside():
    inner = [message(index, None, b"x", timestamp=5) for index in range(2)]
    out, where = decode(wrapper(1, inner, attributes=LOG_APPEND, timestamp=99))
    assert where.problems == []
    assert [one["timestamp"] for one in out["batches"][0]["records"]] == [99, 99]
    out, _ = decode(wrapper(1, inner, timestamp=99))
    assert [one["timestamp"] for one in out["batches"][0]["records"]] == [5, 5]


def test_nested_wrappers():
    level = [message(0, None, b"a"), message(1, None, b"b")]
    data = wrapper(51, [wrapper(1, level, LZ4), message(2, None, b"c"), wrapper(4, level, SNAPPY)])
    out, where = decode(data)
    assert where.problems == []
    assert offsets(out) == [47, 48, 49, 50, 51]
    assert [one["value"] for one in out["batches"][0]["records"]] == [b"a", b"b", b"c", b"a", b"b"]


@pytest.mark.parametrize("depth", range(1, MAX_NESTING + 3))
def test_depth_is_bounded(depth):
    data = message(0, None, b"x", magic=0)
    for _ in range(depth):
        data = wrapper(0, [data, message(1, None, b"beside", magic=0)], magic=0)
    out, where = decode(data)
    values = [one["value"] for one in out["batches"][0]["records"]]
    if depth <= MAX_NESTING:
        assert where.problems == []
        assert values == [b"x", *[b"beside"] * depth]
    else:
        assert kinds(where) == ["message-nesting"]
        assert values == [b"beside"] * MAX_NESTING
        assert out["batches"][0]["record_count"] is None


def test_wrong_crc():
    bad = message(1, None, b"inner", crc=0x12345678)
    out, where = decode(message(0, None, b"x", crc=1) + wrapper(3, [message(0, None, b"y"), bad]))
    assert kinds(where) == ["crc-mismatch", "crc-mismatch"]
    assert [problem.offset for problem in where.problems] == [0, len(message(0, None, b"x"))]
    assert "of the decompressed set" in where.problems[1].detail
    assert [found["crc_ok"] for found in out["batches"]] == [False, True]
    assert len(out["batches"][1]["records"]) == 2


def with_lengths(key_length: int, value_length: int, rest: bytes) -> bytes:
    """A message of magic 0 whose lengths are those given."""
    import zlib

    checked = b"\0\0" + struct.pack(">i", key_length) + struct.pack(">i", value_length) + rest
    return struct.pack(">qiI", 0, len(checked) + 4, zlib.crc32(checked)) + checked


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (with_lengths(50, -1, b""), "the key runs past"),
        (with_lengths(-2, -1, b""), "the key runs past"),
        (with_lengths(2**31 - 1, -1, b""), "the key runs past"),
        (with_lengths(-1, 9, b"short"), "the value runs past"),
        (with_lengths(-1, -5, b""), "the value runs past"),
        (with_lengths(-1, 2, b"longer"), "4 surplus bytes"),
        (message(0, None, None, attributes=GZIP), "has no value"),
        (message(0, None, COMPRESSORS[GZIP](b""), attributes=GZIP), "holds no messages"),
        (wrapper(0, [b"ten bytes."]), "ends with 10 bytes"),
        (wrapper(0, [message(0, None, b"x")[:-1]]), "has the size"),
        (wrapper(0, [batch_of([Record(0, 0, None, b"new")])]), "magic 2"),
    ],
)
def test_malformed(data, detail):
    out, where = decode(data + message(7, None, b"after"))
    assert kinds(where) == ["message-malformed"]
    assert detail in where.problems[0].detail
    assert where.problems[0].offset == 0
    assert out["batches"][1]["records"][0]["offset"] == 7


def test_oddities_are_reported():
    out, where = decode(message(0, b"key", COMPRESSORS[GZIP](message(0, None, b"x", magic=0)), attributes=GZIP))
    assert kinds(where) == ["message-wrapper-key", "message-magic"]
    assert len(out["batches"][0]["records"]) == 1
    _, where = decode(message(0, None, b"x", magic=0, attributes=0x88))
    assert kinds(where) == ["batch-attributes"]
    assert where.problems[0].offset == 17


@pytest.mark.parametrize("mode", ["full", "batches"])
def test_data_that_cannot_be_decompressed(mode):
    data = (
        message(0, None, b"no gzip", attributes=GZIP)
        + message(1, None, b"?", attributes=7)
        + wrapper(2, [message(0, None, bytes(5000))])
    )
    out, where = decode(data, records=mode, max_decompressed=1000)
    assert kinds(where) == ["decompression-failed", "compression-codec", "decompression-bound"]
    assert [found["compression"] for found in out["batches"]] == ["gzip", "unknown-7", "gzip"]
    assert [found["record_count"] for found in out["batches"]] == [None] * 3
    assert all(found.get("records", []) == [] for found in out["batches"])


def test_the_number_of_records_is_bounded():
    out, where = decode(wrapper(199, [message(index, None, None) for index in range(200)]), max_records=100)
    assert kinds(where) == ["record-bound"]
    assert len(out["batches"][0]["records"]) == 100
    assert out["batches"][0]["record_count"] is None
    out, where = decode(wrapper(99, [message(index, None, None) for index in range(100)]), max_records=100)
    assert where.problems == []
    assert out["batches"][0]["record_count"] == 100


def test_levels_share_the_bound_on_decompressed_bytes():
    """A kilobyte of nested wrappers became a hundred megabytes when each level had its own bound."""
    leaf = wrapper(0, [bytes(30 << 20)], ZSTD)
    data = wrapper(0, [leaf] * 100, ZSTD)
    assert len(data) < 2_000
    _, where = decode(data, max_decompressed=1 << 40)
    assert "decompression-bound" in kinds(where)
    assert where.decompressed <= MAX_UNRATED + (1 << 20)


def test_levels_share_the_bound_on_messages():
    """Wrappers count: messages of all levels together are limited by the bytes on the wire."""
    inner = wrapper(0, [message(0, None, b"")] * 1_000, ZSTD)
    data = wrapper(0, [inner] * 1_000, ZSTD)
    out, where = decode(data)
    assert kinds(where) == ["record-bound"]
    assert len(out["batches"][0]["records"]) < 4 * len(data)
    assert out["batches"][0]["record_count"] is None
