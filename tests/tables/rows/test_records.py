"""Records as columns and records one by one: the same rows and problems for any bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import MAX_RECORDS, DecodeContext, DecodeOptions
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.tables.rows import records as module
from kafkasniff.tables.rows.records import RecordRows
from kafkasniff.tables.rows.staged import STAGED
from tests.kafka import records_craft as craft
from tests.kafka.records_craft import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record

ID = "AAECAwQFBgcICQoLDA0ODw"
CONTROL, APPEND_TIME, TRANSACTIONAL = 0x20, 0x08, 0x10

NUMBERS = st.one_of(st.integers(-3, 300), st.integers(-(2**31), 2**31 - 1))
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "trace", "ü", ""]), st.none() | st.binary(max_size=4)), max_size=3)
RECORDS = st.builds(
    Record, NUMBERS, NUMBERS, st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=90), HEADERS.map(tuple)
)
SOUND = st.builds(
    craft.batch_of,
    st.lists(RECORDS, max_size=6),
    st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    attributes=st.sampled_from([0, 0, APPEND_TIME, TRANSACTIONAL, CONTROL, CONTROL | TRANSACTIONAL]),
    base_offset=st.integers(0, 2**40),
)
LEGACY = st.builds(
    craft.message,
    st.integers(0, 99),
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=5),
    magic=st.integers(0, 1),
)
WRAPPED = st.builds(
    lambda offset, count, codec, magic, inner: craft.wrapper(
        offset, [craft.message(at, b"k", None if at else b"v", magic=inner) for at in range(count)], codec, magic=magic
    ),
    st.integers(0, 2**40),
    st.integers(0, 4),
    st.sampled_from([GZIP, SNAPPY, LZ4]),
    st.integers(0, 1),
    st.integers(0, 1),
)
"""Some with another magic inside, which is a problem."""
BATCHES = st.lists(SOUND | LEGACY | WRAPPED, max_size=5)


def exchange(records: dict[str, Any] | None, problems: tuple[Problem, ...] = (), number: int = 1) -> Exchange:
    parts = [{"partition_index": 3, "records": records}, {"partition_index": 4, "records": None}]
    body = {"responses": [{"topic_id": ID, "_topic_name": "orders", "partitions": parts}]}
    about: dict[str, Any] = {"api_key": 1, "api": "Fetch", "api_version": 13, "time_ns": 1_781_000_000_123_456_789}
    response = Message("response", 9, body=body, problems=problems, capture="a.pcap", **about)
    return Exchange(number, 1, "answered", None, response, connection_id=-7, exchange_id=number)


def made(
    data: bytes, how: str, most: int = MAX_RECORDS
) -> tuple[list[dict[str, Any]], list[tuple[str, str, int | None]]]:
    options = DecodeOptions(records=how, max_records=most)  # type: ignore[arg-type]
    context = DecodeContext(options)
    one = exchange(decode_records(data, 0, len(data), context), tuple(context.problems))
    rows = RecordRows(limits=options)
    found = rows.feed([one])
    problems = [*context.problems, *(problem for _, problem in found.get(1, ()))]
    table = pa.Table.from_batches(rows.take(), schema=STAGED["records"])
    return table.to_pylist(), sorted(((one.kind, one.detail, one.offset) for one in problems), key=repr)


@given(BATCHES, st.data())
def test_valid_and_damaged_batches(batches: list[bytes], draw: st.DataObject) -> None:
    data = bytearray(b"".join(batches))
    assert made(bytes(data), "columns") == made(bytes(data), "full")
    for at in draw.draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=4)):
        if at < len(data):
            data[at] = draw.draw(st.integers(0, 255))
    del data[draw.draw(st.integers(0, len(data))) :]
    assert made(bytes(data), "columns") == made(bytes(data), "full")


def test_a_header_key_that_is_not_utf8() -> None:
    odd = craft.record(Record(1, 0, b"k", b"v", (("x", b"1"),))).replace(b"\x02x\x02", b"\x02\xff\x02")
    data = craft.batch_of([Record(0, 0, b"a", None)]) + craft.batch(odd, 1) + craft.batch_of([Record(0, 0, None, b"z")])
    rows, problems = made(data, "columns")
    assert [row["headers"] for row in rows] == [[], [{"key": "\\xff", "value": b"1"}], []]
    assert [kind for kind, _, _ in problems] == ["string-not-utf8"]
    assert made(data, "full") == (rows, problems)


def test_invalid_timestamps() -> None:
    for moment in (-1, 2**62, -(2**62)):
        data = craft.batch(craft.record(Record(0, 0, None, None)), 1, base_timestamp=moment)
        (row,) = made(data, "columns")[0]
        assert row["timestamp"] is None


@given(st.lists(BATCHES, max_size=6), st.integers(1, 400), st.integers(1, 5))
def test_grouping_of_batches_changes_nothing(fields: list[list[bytes]], joined: int, plain: int) -> None:
    """Positions continue across batches that are parsed together."""

    def rows() -> list[dict[str, Any]]:
        made = RecordRows()
        exchanges = []
        for number, batches in enumerate(fields):
            data = b"".join(batches)
            context = DecodeContext(DecodeOptions(records="columns"))
            exchanges.append(exchange(decode_records(data, 0, len(data), context), number=number))
        made.feed(exchanges)
        return pa.Table.from_batches(made.take(), schema=STAGED["records"]).to_pylist()

    expected = rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "JOINED_BYTES", joined)
        patch.setattr(module, "MAX_PLAIN", plain)
        assert rows() == expected
    for number in range(len(fields)):
        positions = [row["_position"] for row in expected if row["exchange_id"] == number]
        assert positions == list(range(len(positions)))


def test_the_bound_of_a_field() -> None:
    """All batches of a field together have no more records than a field may have."""
    four = craft.batch_of([Record(0, place, None, b"v") for place in range(4)], ZSTD)
    for count in (2, 3, 5):
        rows, problems = made(four * count, "columns", 10)
        assert len(rows) == min(4 * count, 10)
        assert ("record-bound" in {kind for kind, _, _ in problems}) == (count > 2)
        assert made(four * count, "full", 10) == (rows, problems)


def test_a_repeated_batch_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = craft.batch_of([Record(at, 0, b"k", b"value" * 50) for at in range(10)], LZ4)
    data += data[:12] + b"\0\0\0\x09" + data[16:]
    calls, real = [], module.batch_payload
    monkeypatch.setattr(module, "batch_payload", lambda *given, **named: calls.append(1) or real(*given, **named))
    rows, context = RecordRows(), DecodeContext(DecodeOptions(records="columns"))
    rows.feed([exchange(decode_records(data, 0, len(data), context), number=number) for number in range(3)])
    assert (sum(batch.num_rows for batch in rows.take()), len(calls)) == (60, 1)


def test_large_results_are_emitted_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few messages may expand to gigabytes: rows are emitted in batches, in the same order."""
    value = b"v" * 1_000
    batches = [
        craft.batch_of([Record(n, 0, b"%d" % at, value) for n in range(10)], LZ4, base_offset=10 * at)
        for at in range(20)
    ]
    exchanges = []
    for number, batch in enumerate(batches):
        field = decode_records(batch, 0, len(batch), DecodeContext(DecodeOptions(records="columns")))
        exchanges.append(exchange(field, number=number))
    whole = RecordRows()
    whole.feed(exchanges)
    monkeypatch.setattr(module, "JOINED_BYTES", 20_000)
    handed: list[pa.RecordBatch] = []
    parts: RecordRows
    most = 0

    def full() -> None:
        nonlocal most
        most = max(most, parts.size)
        handed.extend(parts.take())

    parts = RecordRows(full=full)
    parts.feed(exchanges)
    assert len(handed) > 3
    assert most < 60_000
    assert parts.take() == []
    rows = [row for batch in handed for row in batch.to_pylist()]
    assert rows == pa.Table.from_batches(whole.take()).to_pylist()
