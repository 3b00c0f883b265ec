"""Consecutive batches: where each one is, and slices of a log at any byte position, as FetchSnapshot has them."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.records.record_sets import decode_records, decode_unaligned, find_batches
from tests.kafka.records_craft import GZIP, ZSTD, Record, batch, batch_of, context, kinds, message

BATCHES = [
    batch_of([Record(0, 0, b"\0\0\0\3", bytes(2 + 8 + 1))], attributes=0x20),
    batch_of([Record(index, 0, None, b"record %d" % index) for index in range(20)], base_offset=1),
    batch_of([Record(0, 0, None, b"\x02" * 90)], base_offset=21),
    batch_of([Record(index, 0, None, bytes(50)) for index in range(20)], ZSTD, base_offset=22),
    batch_of([Record(0, 0, None, b"footer")], GZIP, base_offset=42),
]
LOG = b"".join(BATCHES)
BORDERS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES) + 1)]


def decode(data):
    where = context()
    return decode_unaligned(data, 0, len(data), where), where


def test_every_start():
    whole, _ = decode(LOG)
    assert whole == {"leading_bytes": 0, **decode_records(LOG, 0, len(LOG), context())}
    # Nothing, a part of a batch, and message sets, which no snapshot has.
    legacy = message(0, None, b"x" * 100)
    for data in (b"", LOG[BORDERS[1] + 5 : BORDERS[2] - 5], legacy, legacy[3:]):
        assert decode(data)[0] == {"leading_bytes": len(data), "batches": [], "truncated_bytes": 0}
    for start in range(len(LOG)):
        out, where = decode(LOG[start:])
        first = next(index for index, border in enumerate(BORDERS) if border >= start)
        assert out["leading_bytes"] == BORDERS[first] - start
        assert out["batches"] == whole["batches"][first:]
        assert out["truncated_bytes"] == 0
        assert where.problems == []


def test_every_end():
    whole, _ = decode(LOG)
    for end in range(1, len(LOG)):
        out, where = decode(LOG[:end])
        complete = sum(1 for border in BORDERS[1:] if border <= end)
        assert out["batches"] == whole["batches"][:complete]
        assert out["leading_bytes"] + BORDERS[complete] + out["truncated_bytes"] == end
        if end >= 61:
            assert out["leading_bytes"] == 0
        assert where.problems == []


def test_the_search_is_bounded(monkeypatch):
    monkeypatch.setattr(record_sets, "MAX_SEARCH", 1000)
    out, where = decode(bytes(2000) + LOG)
    assert out["leading_bytes"] == 2000 + len(LOG)
    assert kinds(where) == ["record-search"]
    out, where = decode(bytes(900) + LOG)
    assert out["leading_bytes"] == 900
    assert where.problems == []


def test_hostile_candidates_cost_little():
    """Headers that all promise a batch over the rest of the slice: the number of checksummed bytes is bounded."""
    head = batch(b"", 1)[:61]
    generator = random.Random(1)
    size = 6 << 20
    data = bytearray(b"".join(head for _ in range(size // 61)))
    for position in range(61, len(data) - 61, 61):
        length = len(data) - position - 12 - generator.randrange(1000)
        data[position + 8 : position + 12] = max(length, 49).to_bytes(4, "big")
        data[position + 17] ^= 0xFF
    data[17] ^= 1
    out, where = decode(bytes(data))
    assert out["leading_bytes"] == len(data)
    assert kinds(where) == ["record-search"]


@given(
    st.lists(st.sampled_from([*BATCHES, message(7, b"k", b"v"), message(8, None, b"", magic=0)]), max_size=6), st.data()
)
def test_batches_of_any_magic_are_located(parts, data):
    """Cut anywhere: the whole ones, and the bytes of the last one."""
    field = b"".join(parts)
    start = data.draw(st.integers(0, 3))
    end = data.draw(st.integers(0, len(field)))
    where = context()
    spans, rest = find_batches(b"\xff" * start + field[:end], start, start + end, where)
    places = [sum(map(len, parts[:index])) for index in range(len(parts) + 1)]
    whole = [(a, b) for a, b in itertools.pairwise(places) if b <= end]
    assert [(a - start, b - start) for a, b, _ in spans] == whole
    assert [magic for *_, magic in spans] == [parts[index][16] for index in range(len(whole))]
    assert rest == end - places[len(whole)]
    assert where.problems == []


VECTORS = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "records.json").read_text())
}
each_vector = pytest.mark.parametrize("name", VECTORS)


def value(reported: Any) -> bytes | None:
    if isinstance(reported, dict):
        return bytes.fromhex(reported["byte"]) * reported["times"]
    return None if reported is None else bytes.fromhex(reported)


def reported_record(reported: dict[str, Any]) -> dict[str, Any]:
    record = {
        "offset": reported["offset"],
        "timestamp": reported["timestamp"],
        "key": value(reported["key"]),
        "value": value(reported["value"]),
    }
    if "headers" in reported:
        record["headers"] = [{"key": header["key"], "value": value(header["value"])} for header in reported["headers"]]
    return record


def decoded_vector(data: bytes, records: str = "full") -> tuple[dict[str, Any], list[str]]:
    where = context(records)
    return decode_records(data, 0, len(data), where), kinds(where)


@each_vector
def test_as_kafka_reads_it(name):
    vector = VECTORS[name]
    data = bytes.fromhex(vector["data"])
    out, problems = decoded_vector(data)
    assert problems == []
    assert list(out) == ["batches", "truncated_bytes"]
    assert out["truncated_bytes"] == vector["truncated_bytes"]
    assert len(out["batches"]) == len(vector["batches"])
    for decoded, reported in zip(out["batches"], vector["batches"], strict=True):
        assert decoded["crc_ok"] is reported["valid"] is True
        assert decoded["batch_length"] == reported["size"] - 12
        for field in ("magic", "compression"):
            assert decoded[field] == reported[field]
        records = decoded["records"]
        assert [{k: v for k, v in record.items() if k != "_control"} for record in records] == [
            reported_record(record) for record in reported["records"]
        ]
        assert decoded["record_count"] == len(reported["records"])
        if reported["magic"] < 2:
            assert decoded["base_offset"] == reported["last_offset"]
            same = () if reported["magic"] == 0 else ("timestamp_type", "max_timestamp")
            lacking = {"partition_leader_epoch", "transactional", "producer_id", "last_offset_delta", "base_timestamp"}
            assert not lacking & set(decoded)
        else:
            assert decoded["base_offset"] + decoded["last_offset_delta"] == reported["last_offset"]
            assert decoded.get("_delete_horizon") == reported["delete_horizon"]
            same = (
                *("base_offset", "crc", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
                *("transactional", "control", "record_count", "timestamp_type", "max_timestamp"),
            )
        for field in same:
            assert decoded[field] == reported[field], field
        for record, reported_one in zip(records, reported["records"], strict=True):
            assert ("_control" in record) == ("control" in reported_one)
            if "control" in reported_one:
                assert record["_control"]["name"] == reported_one["control"]
            if "coordinator_epoch" in reported_one:
                assert record["_control"]["value"]["coordinator_epoch"] == reported_one["coordinator_epoch"]


@each_vector
def test_other_ways_to_read_them(name: str) -> None:
    """Only the headers; and among other bytes, even if they look like more of the same."""
    data = bytes.fromhex(VECTORS[name]["data"])
    alone, _ = decoded_vector(data)
    for before, after in ((data, data), (b"\xff" * 7, b"\0" * 90)):
        where = context(base=len(before))
        assert decode_records(before + data + after, len(before), len(before) + len(data), where) == alone
        assert where.problems == []
    headers, problems = decoded_vector(data, "batches")
    assert problems == []
    for decoded in alone["batches"]:
        del decoded["records"]
    assert headers == alone
