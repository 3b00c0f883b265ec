"""Record batches of magic 2: round trips, other encoders, and everything that can be wrong with one."""

from __future__ import annotations

import pickle
import struct
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.kafka.records import record_sets
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
    varint,
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
    value=nullable | st.sampled_from([bytes(8191), bytes(8192), bytes(70_000)]),
    headers=st.lists(st.tuples(st.text(max_size=20), nullable), max_size=3).map(tuple) | st.just((("k", b"v"),) * 70),
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
@example([Record(-1, -(2**63), b"", None)], GZIP, -(2**63), -(2**63), False)
def test_round_trip(sources, codec, base_offset, base_timestamp, logged):
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


def test_the_keys_and_their_order():
    out, _ = decode(batch_of([Record(0, 0, None, b"", (("h", None),))], attributes=0x30, base_offset=7))
    (found,) = out["batches"]
    assert list(out) == ["batches", "truncated_bytes"]
    header = (
        *("base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "crc_ok", "compression"),
        *("timestamp_type", "transactional", "control", "last_offset_delta", "base_timestamp", "max_timestamp"),
        *("producer_id", "producer_epoch", "base_sequence", "record_count", "records"),
    )
    assert tuple(found) == header
    assert list(found["records"][0]) == ["offset", "timestamp", "key", "value", "headers", "_control"]
    assert found["records"][0]["headers"] == [{"key": "h", "value": None}]
    assert (found["transactional"], found["control"], found["compression"]) == (True, True, "none")


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("count", [1, 200])
def test_kafka_python_wrote_it(codec, count, monkeypatch):
    default_records = pytest.importorskip("kafka.record.default_records")
    from kafka import codec as kafka_codec

    # python-snappy is not installed: kafka-python's own xerial framing around the same raw blocks.
    snappy = SimpleNamespace(compress=lambda data: bytes(cramjam.snappy.compress_raw(data)))
    monkeypatch.setattr(kafka_codec, "snappy", snappy)
    builder = default_records.DefaultRecordBatchBuilder(2, codec, True, 9001, 4, 17, 1 << 20)
    sources = []
    for index in range(count):
        headers = [("trace", b"%d" % index), ("überschrift", None)] if index % 3 == 0 else []
        key = None if index % 5 == 0 else b"key %d" % index
        value = None if index % 7 == 3 else b"value" * (index % 40)
        assert builder.append(index, TIME + 97 * index, key, value, headers) is not None
        sources.append(Record(index, 97 * index, key, value, tuple(headers)))
    data = bytes(builder.build())
    out, where = decode(data)
    assert where.problems == []
    (found,) = out["batches"]
    assert found["records"] == [expected(source, 0, TIME) for source in sources]
    assert found["compression"] == ("none", "gzip", "snappy", "lz4", "zstd")[codec if count > 1 else codec_of(data)]
    assert (found["producer_id"], found["producer_epoch"], found["base_sequence"]) == (9001, 4, 17)
    assert (found["transactional"], found["max_timestamp"]) == (True, TIME + 97 * (count - 1))
    assert (found["crc_ok"], found["record_count"], found["last_offset_delta"]) == (True, count, count - 1)


def codec_of(data: bytes) -> int:
    """kafka-python does not compress a batch that would become larger."""
    return data[22] & 7


def test_wrong_crc():
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


def test_crc_is_unsigned():
    out, _ = decode(batch(b"", 0, crc=0xFFFFFFFE))
    assert out["batches"][0]["crc"] == 0xFFFFFFFE


@pytest.mark.parametrize("stated", [0, 2, 4, -1])
def test_record_count_differs(stated):
    out, where = decode(batch(b"".join(map(record, SIMPLE)), stated))
    assert kinds(where) == ["record-count"]
    assert where.problems[0].offset == 57
    assert len(out["batches"][0]["records"]) == 3
    assert out["batches"][0]["record_count"] == stated


def test_unknown_codec_and_bits():
    out, where = decode(batch(b"junk", 1, attributes=0x105))
    assert kinds(where) == ["batch-attributes", "compression-codec"]
    assert out["batches"][0]["compression"] == "unknown-5"
    assert out["batches"][0]["records"] == []
    out, where = decode(batch(b"junk", 1, attributes=6), records="batches")
    assert kinds(where) == ["compression-codec"]


def test_corrupt_compression_leaves_the_header():
    out, where = decode(batch(b"no gzip at all", 3, attributes=GZIP) + batch_of(SIMPLE))
    assert kinds(where) == ["decompression-failed"]
    assert out["batches"][0]["record_count"] == 3
    assert out["batches"][0]["records"] == []
    assert len(out["batches"][1]["records"]) == 3


def test_an_empty_batch_of_a_codec():
    """Compaction leaves a batch without records, and without compressed data."""
    out, where = decode(batch(b"", 0, attributes=ZSTD))
    assert where.problems == []
    assert out["batches"][0]["records"] == []


def test_the_bound_counts_over_the_message():
    one = batch_of([Record(0, 0, None, bytes(1000))], GZIP)
    out, where = decode(one * 5, max_decompressed=3200)
    assert kinds(where) == ["decompression-bound"] * 2
    assert [problem.offset for problem in where.problems] == [3 * len(one), 4 * len(one)]
    assert [len(found["records"]) for found in out["batches"]] == [1, 1, 1, 0, 0]
    assert where.decompressed >= 3000
    again = decode_records(one, 0, len(one), where)
    assert again["batches"][0]["records"] == []


def test_all_fields_of_a_message_have_one_bound():
    one = batch_of([Record(number, 0, None, None) for number in range(3)])
    out, where = decode(one, max_records=5)
    assert (len(out["batches"][0]["records"]), where.problems) == (3, [])
    again = decode_records(one, 0, len(one), where)
    assert len(again["batches"][0]["records"]) == 2
    assert kinds(where) == ["record-bound"]


def test_a_bomb_of_headers():
    body = b"\0\0\0\1\1" + varint(2_000) + b"\0\1" * 2_000
    bomb = batch(varint(len(body)) + body, 1)
    out, where = decode(bomb, max_records=1_000)
    assert kinds(where) == ["record-bound"]
    assert out["batches"][0]["records"] == []
    out, where = decode(bomb, max_records=2_001)
    assert where.problems == []
    assert out["batches"][0]["records"][0]["headers"] == [{"key": "", "value": None}] * 2_000


def test_the_number_of_batches_is_bounded(monkeypatch):
    monkeypatch.setattr(record_sets, "MAX_BATCHES", 3)
    data = batch_of(SIMPLE) * 5
    out, where = decode(data)
    assert kinds(where) == ["record-bound"]
    assert len(out["batches"]) == 3
    assert out["truncated_bytes"] == 2 * len(batch_of(SIMPLE))


@pytest.mark.parametrize("length", [-1, 0, 48, 2**30 + 1])
def test_batch_length(length):
    first = batch_of(SIMPLE)
    data = first + batch(b"", 0, length=length) + first
    out, where = decode(data, base=0)
    assert kinds(where) == ["batch-length"]
    assert where.problems[0].offset == len(first) + 8
    assert len(out["batches"]) == 1
    assert out["truncated_bytes"] == len(data) - len(first)


def test_magic_that_does_not_exist():
    first = batch_of(SIMPLE)
    data = bytearray(first * 2)
    data[len(first) + 16] = 3
    out, where = decode(bytes(data))
    assert kinds(where) == ["record-magic"]
    assert where.problems[0].offset == len(first) + 16
    assert (len(out["batches"]), out["truncated_bytes"]) == (1, len(first))


def test_problems_count_from_the_message():
    data = b"\xaa" * 100 + batch(b"\x01", 1)
    where = context(base=90)
    decode_records(data, 100, len(data), where)
    assert [(problem.kind, problem.offset) for problem in where.problems] == [("record-malformed", 10 + 61)]


def test_delete_horizon():
    out, _ = decode(batch_of(SIMPLE, attributes=0x40))
    assert out["batches"][0]["_delete_horizon"] == TIME
    assert out["batches"][0]["records"][1]["timestamp"] == TIME + 1
    assert "_delete_horizon" not in decode(batch_of(SIMPLE))[0]["batches"][0]


WHOLE = batch_of(SIMPLE, GZIP) + batch_of([Record(0, 5, None, bytes(200), (("a", b"b"),))]) + batch_of(SIMPLE, LZ4)


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=3), st.integers(0, 90)
)
def test_damage_never_raises(damage, cut):
    data = bytearray(WHOLE)
    for at, byte in damage:
        data[at] = byte
    data = data[: len(data) - cut]
    out, where = decode(bytes(data))
    sizes = sum(found["batch_length"] + 12 for found in out["batches"])
    assert sizes + out["truncated_bytes"] == len(data)
    for problem in where.problems:
        assert 0 <= problem.offset <= len(data)


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


@given(st.binary(max_size=300))
def test_garbage_never_raises(data):
    out, _ = decode(data)
    assert sum(found["batch_length"] + 12 for found in out["batches"]) + out["truncated_bytes"] == len(data)
    decode(data, records="batches")


def test_hostile_lengths_cost_nothing():
    """Each record claims the length of everything that follows in a large buffer: no quadratic copying."""
    hostile = batch((varint(1 << 27) + bytes(50)) * 20_000, 20_000)
    data = hostile + bytes(1 << 22)
    tracemalloc.start()
    start = time.process_time()
    where = context()
    decode_records(data, 0, len(hostile), where)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kinds(where) == ["record-malformed"]
    assert seconds < 1
    assert peak < 1 << 23


@pytest.mark.parametrize("records", ["full", "columns"])
def test_batches_travel_between_processes(records):
    """States of a run contain them, with the records' bytes or with the records."""
    where = context(records=records)
    field = batch_of(SIMPLE, GZIP)
    (found,) = decode_records(field, 0, len(field), where)["batches"]
    field = message(0, b"key", b"value")
    (legacy,) = decode_records(field, 0, len(field), where)["batches"]
    for one in (found, legacy):
        again = pickle.loads(pickle.dumps(one))
        assert again.__class__ is one.__class__
        assert again == one
        for name in ("held", "records", "uncompressed"):
            assert getattr(again, name, None) == getattr(one, name, None)
    assert (found.held is None) == (records == "full")
    assert found.uncompressed == (len(batch_of(SIMPLE)) if records == "full" else None)
