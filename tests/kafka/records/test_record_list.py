"""The records of a batch one by one: malformed ones, and bounds on their number."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.records import record_list
from tests.kafka.records.test_batches import SIMPLE
from tests.kafka.records_craft import (
    COMPRESSORS,
    LZ4,
    NONE,
    ZSTD,
    Record,
    batch,
    batch_of,
    decode,
    kinds,
    record,
    record_body,
    sized,
    varint,
    zstd,
)

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
