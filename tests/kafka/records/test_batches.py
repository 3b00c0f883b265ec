"""Record batches: round trips, other encoders, and everything that can be wrong with one, record by record."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.kafka.records import batches, record_list, record_sets
from kafkasniff.kafka.records.batches import MAX_NESTING
from kafkasniff.kafka.records.compression import MAX_UNRATED
from kafkasniff.kafka.records.record_list import control_record
from kafkasniff.kafka.records.record_sets import decode_records
from tests.kafka.records_craft import (
    COMPRESSORS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    TIME,
    ZSTD,
    Record,
    batch,
    batch_of,
    context,
    decode,
    kinds,
    message,
    record,
    record_body,
    sized,
    varint,
    wrapper,
    zstd,
)

SIMPLE = [Record(index, index, b"key", b"value %d" % index) for index in range(3)]

nullable = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=70)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
any_record = st.builds(
    Record,
    offset=st.integers(0, 200) | int32,
    timestamp=st.integers(-200, 10_000) | int64,
    key=nullable,
    value=nullable | st.sampled_from([bytes(8191), bytes(8192)]),
    headers=st.lists(st.tuples(st.text(max_size=20), nullable), max_size=3).map(tuple),
)


def expected(source: Record, base_offset: int, base_timestamp: int) -> dict[str, Any]:
    return {
        "offset": wrap(base_offset + source.offset),
        "timestamp": wrap(base_timestamp + source.timestamp),
        "key": source.key,
        "value": source.value,
        "headers": [{"key": name, "value": value} for name, value in source.headers],
    }


def wrap(value: int) -> int:
    return struct.unpack(">q", struct.pack(">Q", value & (2**64 - 1)))[0]


@given(
    st.lists(any_record, max_size=5),
    st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    st.integers(0, 2**40) | int64,
    st.just(TIME) | int64,
    st.booleans(),
)
@example([Record(2**31 - 1, 2**63 - 1, None, b"")], NONE, 2**63 - 1, 2**63 - 1, False)
@example([Record(0, 0, b"k", bytes(70_000), (("k", b"v"),) * 70)], LZ4, 0, TIME, False)
@example([Record(-1, -(2**63), b"", None)], GZIP, -(2**63), -(2**63), False)
def test_round_trip_of_a_batch(sources, codec, base_offset, base_timestamp, logged):
    data = batch(
        COMPRESSORS[codec](b"".join(map(record, sources))),
        len(sources),
        attributes=codec | (8 if logged else 0),
        base_offset=base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=77,
    )
    out, where = decode(data)
    assert where.problems == []
    assert out["truncated_bytes"] == 0
    (found,) = out["batches"]
    reported = [expected(source, base_offset, base_timestamp) for source in sources]
    if logged:
        reported = [{**one, "timestamp": 77} for one in reported]
    assert found["records"] == reported
    assert found["timestamp_type"] == ("LogAppendTime" if logged else "CreateTime")
    assert found["crc_ok"] is True


def test_wrong_crc_of_a_batch():
    data = bytearray(batch_of(SIMPLE))
    data[-2] ^= 0x10
    out, where = decode(bytes(data))
    assert kinds(where) == ["crc-mismatch"]
    assert where.problems[0].offset == 0
    assert out["batches"][0]["crc_ok"] is False
    assert [one["value"] for one in out["batches"][0]["records"]] == [b"value 0", b"value 1", b'value "']
    headers, where = decode(bytes(data), records="batches")
    assert kinds(where) == ["crc-mismatch"]
    assert headers["batches"][0]["crc_ok"] is False


@pytest.mark.parametrize("stated", [0, 2, 4, -1])
def test_record_count_differs(stated):
    out, where = decode(batch(b"".join(map(record, SIMPLE)), stated))
    assert kinds(where) == ["record-count"]
    assert where.problems[0].offset == 57
    assert len(out["batches"][0]["records"]) == 3
    assert out["batches"][0]["record_count"] == stated


def test_unknown_codec_and_bits() -> None:
    out, where = decode(batch(b"junk", 1, attributes=0x105))
    assert kinds(where) == ["batch-attributes", "compression-codec"]
    assert (out["batches"][0]["compression"], out["batches"][0]["records"]) == ("unknown-5", [])
    out, where = decode(batch(b"junk", 1, attributes=6), records="batches")
    assert kinds(where) == ["compression-codec"]


def test_records_that_cannot_be_decompressed() -> None:
    """The header is kept, and the next batch is read. Compaction leaves batches without compressed data."""
    out, where = decode(
        batch(b"no gzip at all", 3, attributes=GZIP) + batch_of(SIMPLE) + batch(b"", 0, attributes=ZSTD)
    )
    assert kinds(where) == ["decompression-failed"]
    assert [one["record_count"] for one in out["batches"]] == [3, 3, 0]
    assert [len(one["records"]) for one in out["batches"]] == [0, 3, 0]


@pytest.mark.parametrize(
    ("place", "wrong", "kind"),
    [
        *((8, length.to_bytes(4, "big", signed=True), "batch-length") for length in (-1, 0, 48, 2**30 + 1)),
        (16, b"\3", "record-magic"),
    ],
)
def test_batches_that_end_the_field(place: int, wrong: bytes, kind: str) -> None:
    first = batch_of(SIMPLE)
    data = bytearray(first * 3)
    data[len(first) + place : len(first) + place + len(wrong)] = wrong
    out, where = decode(bytes(data))
    assert [(problem.kind, problem.offset) for problem in where.problems] == [(kind, len(first) + place)]
    assert (len(out["batches"]), out["truncated_bytes"]) == (1, 2 * len(first))


def test_the_bound_counts_over_the_message():
    one = batch_of([Record(0, 0, None, bytes(1000))], GZIP)
    out, where = decode(one * 5, max_decompressed=3200)
    assert kinds(where) == ["decompression-bound"] * 2
    assert [problem.offset for problem in where.problems] == [3 * len(one), 4 * len(one)]
    assert [len(found["records"]) for found in out["batches"]] == [1, 1, 1, 0, 0]
    assert where.decompressed >= 3000
    again = decode_records(one, 0, len(one), where)
    assert again["batches"][0]["records"] == []
    # So has the number of records, over all fields.
    one = batch_of([Record(number, 0, None, None) for number in range(3)])
    out, where = decode(one, max_records=5)
    assert (len(out["batches"][0]["records"]), where.problems) == (3, [])
    assert len(decode_records(one, 0, len(one), where)["batches"][0]["records"]) == 2
    assert kinds(where) == ["record-bound"]


def test_the_number_of_batches_is_bounded(monkeypatch):
    monkeypatch.setattr(record_sets, "MAX_BATCHES", 3)
    data = batch_of(SIMPLE) * 5
    out, where = decode(data)
    assert kinds(where) == ["record-bound"]
    assert len(out["batches"]) == 3
    assert out["truncated_bytes"] == 2 * len(batch_of(SIMPLE))


def test_every_bit_flip_in_a_batch_is_reported():
    """CRC-32C detects all that it covers; the other bits are the offset, the epoch and the framing itself."""
    data = batch_of(SIMPLE)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        out, where = decode(bytes(flipped))
        if bit // 8 >= 17:
            assert kinds(where)[0] == "crc-mismatch"
        elif 8 <= bit // 8 < 12 or bit // 8 == 16:
            assert where.problems or out["truncated_bytes"] == len(data)


def test_hostile_lengths_cost_nothing() -> None:
    """Each record claims the length of everything that follows in a large buffer: nothing is copied."""
    hostile = batch((varint(1 << 27) + bytes(50)) * 20_000, 20_000)
    data = hostile + bytes(1 << 22)
    tracemalloc.start()
    where = context()
    decode_records(data, 0, len(hostile), where)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kinds(where) == ["record-malformed"]
    assert peak < 1 << 23


def reported(key, value):
    where = context(base=10)
    found = control_record(key, value, where, 17)
    assert all(problem.offset == 7 for problem in where.problems)
    return found, kinds(where)


def test_odd_ones():
    assert reported(b"\0\0\0\1", struct.pack(">hi", 0, 12)) == (
        {"version": 0, "type": 1, "name": "COMMIT", "value": {"version": 0, "coordinator_epoch": 12}},
        [],
    )
    newer = {"version": 1, "type": 0, "name": "ABORT", "value": {"version": 3, "coordinator_epoch": -1}}
    assert reported(b"\0\1\0\0more", struct.pack(">hiq", 3, -1, 5)) == (newer, [])
    unknown = {"version": 0, "type": 9, "name": None, "value": None}
    assert reported(b"\0\0\0\x09", b"?") == (unknown, [])
    no_value = {"version": 0, "type": 1, "name": "COMMIT", "value": None}
    assert reported(b"\0\0\0\1", None) == (no_value, [])
    assert reported(b"\0\0\0\1", b"\0\0\0") == (no_value, ["control-record"])
    assert reported(b"\0\0\0\2", b"\0\7rest")[1] == ["control-record"]
    assert reported(b"\0\0\0\4", b"\0\0\0rest") == (
        {"version": 0, "type": 4, "name": "SNAPSHOT_FOOTER", "value": {"version": 0}},
        ["control-record"],
    )
    assert reported(b"\0\0\0", b"") == (None, ["control-record"])
    assert reported(None, b"") == (None, ["control-record"])


def test_a_package_without_that_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_EXTENSION", "crc32c._not_there")
    found = batches._load()
    assert found(b"123456789") == 0xE3069283


nullable_bytes = st.none() | st.binary(max_size=30)
messages = st.lists(st.tuples(nullable_bytes, nullable_bytes, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5)


@given(messages, st.integers(0, 1), st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]), st.integers(0, 2**62))
def test_round_trip_of_a_message_set(sources, magic, codec, first):
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


def test_wrong_crc_of_a_message():
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


HEADER = varint(9) + b"\0\0\0\1\1" + varint(1)
"""The beginning of a record of 9 bytes with one header."""
MALFORMED = {
    "inner length too long": (varint(len(record_body(SIMPLE[0])) + 1) + record_body(SIMPLE[0]) + b"\0", "surplus"),
    "inner length too short": (varint(len(record_body(SIMPLE[0])) - 1) + record_body(SIMPLE[0]), "is truncated"),
    "past the end": (varint(500) + record_body(SIMPLE[0]), "its length is 500"),
    "negative length": (varint(-9) + bytes(40), "its length is -9"),
    "no length": (b"\x00", "its length is 0"),
    "key past the record": (varint(6) + b"\0\0\0" + varint(30) + b"\0\0" + bytes(60), "the key of 30 bytes"),
    "key length -2": (varint(6) + b"\0\0\0" + varint(-2) + b"\0\0", "the key has the length -2"),
    "value past the record": (varint(6) + b"\0\0\0\1" + varint(20) + b"\0" + bytes(60), "the value of 20 bytes"),
    "value length -7": (varint(6) + b"\0\0\0\1" + varint(-7) + b"\0", "the value has the length -7"),
    "headers that are not there": (varint(6) + b"\0\0\0\1\1" + varint(5), "5 headers, but 0 bytes are left"),
    "-1 headers": (varint(6) + b"\0\0\0\1\1" + varint(-1), "-1 headers"),
    "header key of length -1": (HEADER + b"\1\1\1", "the key of header 0 has the length -1"),
    "header value of length -3": (HEADER + sized(b"k") + varint(-3), "the value of header 0 has the length -3"),
    "header key past the record": (HEADER + varint(40) + b"\1" + bytes(80), "the key of header 0 of 40 bytes"),
    "length without end": (b"\x80" * 5 + b"\0" * 20, "its length is a varint of more than 5 bytes"),
    "timestamp without end": (varint(20) + b"\0" + b"\xff" * 10 + b"\0" * 9, "the timestamp delta is a varint of more"),
    "cut in the length": (b"\x80", "its length is truncated"),
    "too short for its fields": (varint(3) + b"\0\0\0", "the length of the key is truncated"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_record(name: str) -> None:
    """The records before it are kept, nothing after it is read, and the next batch is."""
    bad, detail = MALFORMED[name]
    good = b"".join(map(record, SIMPLE[:2]))
    for codec, after in ((NONE, b""), (NONE, batch_of(SIMPLE)), (LZ4, batch_of(SIMPLE))):
        data = batch(COMPRESSORS[codec](good + bad), 3, attributes=codec)
        out, where = decode(data + after)
        (problem,) = where.problems
        assert problem.kind == "record-malformed"
        assert detail in problem.detail
        assert "record 2 " in problem.detail
        assert ("of the decompressed records" in problem.detail) is (codec == LZ4)
        assert problem.offset == 0 if codec else 61 + len(good) <= problem.offset <= len(data)
        values = [[one["value"] for one in found["records"]] for found in out["batches"]]
        assert values == [[b"value 0", b"value 1"], [b"value 0", b"value 1", b"value 2"]][: len(values)]
        assert len(values) == 1 + bool(after)


def test_a_bomb_of_records(monkeypatch):
    """A record without content takes seven bytes that compress to nothing: the number of records is bounded."""
    monkeypatch.setattr(record_list, "MAX_RECORD_RATE", 1_000)
    bomb = batch(zstd(record(Record(0, 0, None, None)) * 3_000), 3_000, attributes=ZSTD)
    out, where = decode(bomb, max_records=1_000)
    assert kinds(where) == ["record-bound"]
    assert len(out["batches"][0]["records"]) == 1_000
    out, where = decode(bomb * 2, max_records=1_000)
    assert [len(found["records"]) for found in out["batches"]] == [1_000, 0]
    out, where = decode(bomb, max_records=3_000)
    assert where.problems == []
    assert len(out["batches"][0]["records"]) == 3_000


def test_identical_records_are_bounded_by_the_bytes_on_the_wire():
    """No writer produces them: it numbers its records, so they compress to 0.6 bytes each at best."""
    alike = batch(zstd(record(Record(0, 0, None, None)) * 5_000), 5_000, attributes=ZSTD)
    out, where = decode(alike + batch_of(SIMPLE))
    assert len(alike) < 200
    assert kinds(where) == ["record-bound"]
    assert [len(found["records"]) for found in out["batches"]] == [4 * len(alike), len(SIMPLE)]
    numbered = batch_of([Record(number, 0, None, None) for number in range(5_000)], ZSTD)
    out, where = decode(numbered)
    assert where.problems == []
    assert len(out["batches"][0]["records"]) == 5_000


def test_identical_headers_are_bounded_by_the_bytes_on_the_wire():
    body = b"\0\0\0\1\1" + varint(20_000) + b"\0\1" * 20_000
    alike = batch(zstd(varint(len(body)) + body), 1, attributes=ZSTD)
    out, where = decode(alike)
    assert kinds(where) == ["record-bound"]
    assert out["batches"][0]["records"] == []
    headers = tuple((f"header-{number}", b"the same") for number in range(20))
    honest = batch_of([Record(number, 0, None, b"v", headers) for number in range(2_000)], ZSTD)
    out, where = decode(honest)
    assert where.problems == []
    assert len(out["batches"][0]["records"]) == 2_000
