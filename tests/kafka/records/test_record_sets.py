"""Consecutive batches: where each one is, and slices of a log at any byte position, as FetchSnapshot has them."""

from __future__ import annotations

import itertools
import random

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


def test_a_batch_with_a_wrong_crc_does_not_start_a_slice():
    damaged = bytearray(LOG)
    damaged[30] ^= 1
    out, where = decode(bytes(damaged))
    assert out["leading_bytes"] == BORDERS[1]
    assert len(out["batches"]) == 4
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


@pytest.mark.parametrize(("length", "reported"), [(13, True), (14, False), (1 << 30, False), ((1 << 30) + 1, True)])
def test_a_length_without_a_magic(length, reported):
    """12 to 16 bytes of a batch: enough for its length."""
    where = context()
    assert find_batches(bytes(8) + length.to_bytes(4, "big") + bytes(2), 0, 14, where) == ([], 14)
    assert kinds(where) == (["batch-length"] if reported else [])
