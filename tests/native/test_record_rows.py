"""Rows of `records` of crafted batches: the same by the kernel and by Python.

`tests/tables/exports/test_columns.py` compares exports of captures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.kafka.records.record_batch import Batch
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.tables.rows.record_arrays import BatchPiece
from kafkasniff.tables.rows.records import RecordRows
from kafkasniff.tables.rows.staged import STAGED
from tests.kafka import records_craft as craft
from tests.kafka.records_craft import GZIP, LZ4, SNAPPY, Record
from tests.native.kernel_and_walker import records_by_python
from tests.tables.rows.test_records import exchange


@contextmanager
def one_by_one() -> Iterator[None]:
    """Rows are made of records that Python reads."""

    def decoded(_rows: RecordRows, piece: BatchPiece, _batch: Batch) -> bool:
        piece.decode()
        return True

    with records_by_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordRows, "_hold", decoded)
        yield


Found = tuple[list[dict[str, Any]], list[Any]]


def rows(data: bytes, times: int = 1, **options: Any) -> Found:
    """Rows and problems of `times` messages with the same field of records."""
    chosen = DecodeOptions(records="columns", **options)
    made, exchanges, problems = RecordRows(limits=chosen), [], []
    for number in range(times):
        context = DecodeContext(chosen)
        field = decode_records(data, 0, len(data), context)
        problems.append(list(context.problems))
        exchanges.append(exchange(field, tuple(context.problems), number))
    for _, found in sorted(made.feed(exchanges).items()):
        problems.append([problem for _, problem in found])
    return pa.Table.from_batches(made.take(), schema=STAGED["records"]).to_pylist(), problems


def same(data: bytes, **options: Any) -> Found:
    found = rows(data, **options)
    with one_by_one():
        assert found == rows(data, **options)
    return found


@pytest.mark.parametrize(("magic", "codec", "attributes"), [(0, GZIP, 0), (1, SNAPPY, 0), (1, LZ4, 8)])
def test_wrapped_messages(magic: int, codec: int, attributes: int) -> None:
    inner = [craft.message(at, b"k%d" % at, None if at == 1 else b"v", magic=magic) for at in range(4)]
    wrapped = craft.wrapper(900, inner, codec, magic=magic, attributes=attributes * magic, timestamp=craft.TIME + 5)
    made, problems = same(craft.message(3, b"a", b"b", magic=magic) + wrapped)
    base = 897 if magic == 1 else 0
    assert [row["offset"] for row in made] == [3, *(base + at for at in range(4))]
    assert [row["key"] for row in made] == [b"a", b"k0", b"k1", b"k2", b"k3"]
    assert {row["headers"] for row in made} == {None}
    assert {row["sequence"] for row in made} == {None}
    late = magic == 1 and attributes == 8
    assert [row["timestamp"] is not None for row in made] == [magic == 1] * 5
    assert (made[0]["timestamp"] != made[1]["timestamp"]) == late
    assert problems == [[]]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (craft.message(0, b"k", b"v", crc=1), "crc-mismatch"),
        (craft.message(0, b"k", b"v", attributes=0x40), "batch-attributes"),
        (craft.message(0, b"k", b"v")[:26] + b"\x7f\xff\xff\xff" + bytes(6), "message-malformed"),
        (craft.wrapper(0, [craft.message(0, b"k", b"v", crc=1)]), "crc-mismatch"),
        (craft.wrapper(0, [craft.message(0, b"k", b"v", magic=0)]), "message-magic"),
        (craft.wrapper(0, [craft.message(0, b"k", b"v"), b"\0"]), "message-malformed"),
        (craft.wrapper(0, [craft.wrapper(0, [craft.message(0, b"k", b"v")])]), None),
        (craft.wrapper(0, [craft.message(0, b"", b"")] * 3000), "record-bound"),
    ],
    ids=["crc", "attributes", "length", "crc inside", "magic inside", "cut inside", "nested", "too many"],
)
def test_messages_with_problems(data: bytes, kind: str | None) -> None:
    right = craft.message(7, b"right", b"v")
    made, problems = same(right + data + right)
    assert [row["key"] for row in made][:: len(made) - 1] == [b"right", b"right"]
    kinds = {problem.kind for found in problems for problem in found}
    assert kinds == (set() if kind is None else {kind}) or (kind is not None and kind in kinds)


def test_bounds_of_a_message() -> None:
    """Records and headers of all batches of a message count together, no matter who reads them."""
    one = craft.batch_of([Record(at, 0, None, b"x", (("h", None),) * 2) for at in range(10)])
    for most, kept in ((60, 30), (59, 29), (20, 10), (19, 9), (5, 2)):
        made, problems = same(one * 3, max_records=most)
        assert len(made) == kept
        assert bool(problems[1:]) == (most < 60)
    headers = craft.record(Record(0, 0, None, None, (("", None),) * 3000))
    bomb = craft.batch(craft.COMPRESSORS[GZIP](headers), 1, attributes=GZIP)
    made, problems = same(bomb)
    assert [problem.kind for problem in problems[1]] == ["record-bound"]
    records = craft.COMPRESSORS[GZIP](craft.record(Record(0, 0, None, None)) * 50_000)
    made, problems = same(craft.batch(records, 50_000, attributes=GZIP))
    assert 0 < len(made) < 50_000


def test_a_repeated_batch_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts each time towards what its message may decompress to."""
    data = craft.batch_of([Record(at, 0, b"k", b"value" * 50) for at in range(10)], LZ4)
    again = data[:8] + data[8:12] + b"\0\0\0\x09" + data[16:]
    calls = []
    from kafkasniff.tables.rows import records as module

    real = module.batch_payload
    monkeypatch.setattr(module, "batch_payload", lambda *given, **named: calls.append(1) or real(*given, **named))
    made, problems = rows(data + again, times=3)
    assert len(made) == 60
    assert len(calls) == 1
    assert problems == [[], [], []]
    made, problems = same(data + again, max_decompressed=4_000)
    assert len(made) == 10
    assert [problem.kind for problem in problems[1]] == ["decompression-bound"]
    other = data[:-1] + bytes((data[-1] ^ 1,))
    made, _ = same(data + other)
    assert len(made) >= 10


def test_secrets_and_trace_ids() -> None:
    secret = b'{"properties":{"connection.password":"p"}}'
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    records = [
        Record(0, 0, b"connector-x", secret),
        Record(1, 0, b"my-connector-x", secret),
        Record(2, 0, None, b"v", (("h", b"v"), ("traceparent", trace))),
    ]
    made, _ = same(craft.batch_of(records))
    assert [row["value"] for row in made] == [None, secret, b"v"]
    assert [row["trace_ids"] for row in made] == [None, None, ["0af7651916cd43dd8448eb211c80319c"]]
