"""Columns by the kernel: records against Python's readers, and exchanges with what is left to Python.

`tests/tables/exports/test_columns.py` compares exports with those of Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.roles import EVERY_BODY, NO_BODY, ExchangeKinds, WantedBodies
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native import columns as module
from kafkasniff.native import kernel
from kafkasniff.native.columns import (
    BATCH,
    PAIR,
    ColumnReader,
    ExchangeColumns,
    ExchangeReader,
    Strings,
    buffer_address,
)
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, REQUEST, VERSIONS
from tests.craft import kafka_bytes as kafka
from tests.kafka import records_craft as craft
from tests.kafka.records_craft import Record
from tests.native.kernel_columns import Given, read

BASE_OFFSET, BASE_TIMESTAMP = 1_000, 1_700_000_000_000


HUGE = b"\xfe\xff\xff\xff\x0f"
"""2^31 - 1 as a zigzag varint."""
MESSAGE_COLUMNS = craft.message(0, b"k", b"v")
PYTHONS: list[tuple[bytes, int]] = [
    *((one, 1) for one in (craft.message(0, b"k", b"v", crc=1), craft.message(0, b"k", b"v", attributes=1))),
    (craft.message(0, b"k", b"v", magic=0), 1),
    *((MESSAGE_COLUMNS[:8] + size + MESSAGE_COLUMNS[12:], 1) for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")),
    (HUGE + bytes(20), 2),
    (b"\x20\0\0\0" + HUGE + bytes(20), 2),
    (b"\x20\0\0\0\x01" + HUGE + bytes(20), 2),
    # So many headers, in a record that is as long as it says.
    (craft.varint(10) + b"\0\0\0\1\1" + HUGE, 2),
    (craft.varint(7) + b"\0\0\0\1\1" + craft.varint(1) + b"\0", 2),
    (craft.varint(6) + b"\0\0\0\1\1" + craft.varint(-1), 2),
    (craft.varint(6) + b"\0\0\0\1\3" + b"\0", 2),
    (craft.varint(9) + b"\0\0\0\1\1\2" + b"\1\0\0", 2),
    # Varints that do not end, or have more bits than their type.
    (b"\xff" * 11, 2),
    (craft.varint(15) + b"\0" + b"\xff" * 10 + b"\0\1\1\0", 2),
    (craft.varint(10) + b"\0\0\xff\xff\xff\xff\x7f\1\1\0", 2),
    (craft.record(Record(0, 0, None, None, (("h", None),))).replace(b"\x02h", b"\x02\xff"), 2),
]
"""Bytes, and their magic."""


def test_what_is_left_to_python() -> None:
    for data, magic in PYTHONS:
        right = MESSAGE_COLUMNS if magic == 1 else craft.record(Record(1, 1, b"k", b"v"))
        (before, found, after), columns = read([Given(right, magic), Given(data, magic), Given(right, magic)])
        assert found is None, data
        assert before == after != []
        assert len(columns.offset) == 2


def test_a_batch_may_not_hold_more_than_its_bounds() -> None:
    one = craft.record(Record(0, 0, None, None, (("", None),) * 3))
    assert read([Given(one * 4, most_records=4, most_headers=12)])[0] != [None]
    assert read([Given(one * 4, most_records=3, most_headers=12)])[0] == [None]
    assert read([Given(one * 4, most_records=4, most_headers=11)])[0] == [None]
    assert read([Given(b"", most_records=0)])[0] == [[]]


def test_records_with_secrets_or_trace_ids_are_noticed() -> None:
    plain = craft.record(Record(0, 0, b"my-connector-x", b"v", (("Traceparent", b"v"),)))
    connect = craft.record(Record(0, 0, b"connector-x", b"v"))
    traced = craft.record(Record(0, 0, None, b"v", (("h", None), ("traceparent", b"v"))))
    found = [read([Given(plain), Given(one)])[1] for one in (plain, connect, traced)]
    assert [(one.marked, one.listed) for one in found] == [(False, False), (True, False), (False, True)]


def test_timestamps_out_of_range_are_null() -> None:
    times = [-1, 0, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000]
    data = b"".join(craft.record(Record(0, time, None, None)) for time in times)
    _, columns = read([Given(data)])
    shown = [time * 1000 if bit else None for time, bit in zip(times, (0, 1, 1, 0, 1, 0), strict=True)]
    assert [row["timestamp"] for row in read([Given(data)])[0][0] or ()] == shown
    assert columns.timestamp_nulls == 3


def test_columns_that_are_too_small_are_never_overrun() -> None:
    """The sizes of a batch that say less than it holds: nothing is written beyond them."""
    data = b"".join(craft.record(Record(at, 0, b"key", b"value", (("h", b"v"),))) for at in range(10))
    given_batch = (buffer_address(data), len(data), 0, 0, 0, 100, 100, -1, 2, 0, *(0,) * 10)
    reader = ColumnReader(kernel(), marks=(), headers=(), times=(0, 1))
    for name in ("rows", "headers", "key_bytes", "value_bytes", "header_key_bytes", "header_value_bytes"):
        batches = np.array([given_batch], BATCH)
        right = reader.measure(batches)
        assert right.all()
        batches[name] -= 1
        assert reader.read(batches, right) is None
    batches = np.array([given_batch], BATCH)
    right = reader.measure(batches)
    batches["value_bytes"] = 1 << 31
    assert reader.read(batches, right) is None


# -- exchanges ---------------------------------------------------------------------------------------------------------


TIME = 1_781_000_000_000_000_000
CLIENT_ID = b"crafted"


def batch(count: int, base: int = 0, **options: Any) -> bytes:
    return kafka.record_batch([kafka.record(at, b"k%d" % at, b"v") for at in range(count)], base, **options)


PRODUCE = (kafka.produce_request(1, "orders", batch(3)), kafka.produce_response(1, "orders", 40))
FAILED = (kafka.produce_request(2, "orders", batch(1)), kafka.produce_response(2, "orders", -1, error=6))
FETCH = (kafka.fetch_request(3, "paid", 7), kafka.fetch_response(3, "paid", batch(5, 7), 12))
EMPTY = (kafka.fetch_request(4, "paid", 12), kafka.fetch_response(4, "paid", b"", 12))

Talk = tuple[bytes, bytes]


class Call:
    """Exchanges as the feed has them: requests in the buffer of the batch, responses in the arena."""

    def __init__(self, talks: Sequence[Talk]) -> None:
        rows = np.zeros(2 * len(talks), MESSAGE)
        self.buffer = self.arena = b""
        for number, talk in enumerate(talks):
            key, version = (int.from_bytes(talk[0][at : at + 2], "big") for at in (4, 6))
            asked, answered = (one[4:] for one in talk)
            for row, data in ((rows[2 * number], asked), (rows[2 * number + 1], answered)):
                row["code"], row["size"] = key * VERSIONS + version, len(data)
                row["time"] = row["first_time"] = TIME + number
            first, second = rows[2 * number], rows[2 * number + 1]
            first["start"], first["flags"], first["client_id"] = len(self.buffer), REQUEST, len(CLIENT_ID)
            first["body"] = 10 + len(CLIENT_ID) + (request_plan(key, version).header > 1)
            second["start"], second["flags"], second["client_id"] = len(self.arena), ARENA, -1
            second["body"] = 4 + (response_plan(key, version).header > 0)
            self.buffer += asked
            self.arena += answered
        self.messages = rows
        self.pairs = np.array([(2 * at, 2 * at + 1) for at in range(len(talks))], PAIR)

    def read(self, reader: ExchangeReader, first: int = 0) -> tuple[ExchangeColumns, int]:
        return reader.read(self.messages, self.buffer, self.arena, self.pairs, first)

    def every(self, reader: ExchangeReader) -> list[ExchangeColumns]:
        """One call after the other."""
        found, first = [], 0
        while first < len(self.pairs):
            columns, after = self.read(reader, first)
            assert after > first
            found.append(columns)
            first = after
        return found


def reader_of(*, names: Any = None, bodies: WantedBodies = EVERY_BODY, **options: Any) -> ExchangeReader:
    kinds = ExchangeKinds(kernel(), show_secrets=False, names=True, bodies=bodies)
    kinds.are_known(np.arange(KEYS * VERSIONS))
    options = {"headers": False, "records": True, "most": 1 << 20, "max_records": 1000, **options}
    reader = ExchangeReader(kernel(), kinds.programs, names=names, bodies=kinds.bodies, **options)
    reader.kinds = kinds  # type: ignore[attr-defined] # owns the programs
    return reader


def texts(strings: Strings) -> list[str]:
    ends = strings.offsets.tolist()
    assert ends[-1] == len(strings.data)
    return [strings.data[start:end].tobytes().decode() for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_rows_of_several_calls(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """A call ends where the output is full; the next one continues there."""
    talks = [PRODUCE, FAILED, FETCH, EMPTY, PRODUCE]
    whole, _ = Call(talks).read(reader_of())
    monkeypatch.setattr(module, "MAX_ROWS", at_once)
    found = Call(talks).every(reader_of())
    assert [len(one.rows) for one in found] == [at_once] * (5 // at_once) + [5 % at_once] * (5 % at_once > 0)
    assert [text for one in found for text in texts(one.requests)] == texts(whole.requests)
    assert np.concatenate([one.rows["pair"] for one in found]).tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate([one.shared["count"] for one in found]).tolist() == whole.shared["count"].tolist()


@pytest.mark.parametrize(("bound", "room"), [("MAX_TEXT", 300), ("MAX_INSIDE", 1), ("MAX_NAME_BYTES", 14)])
def test_an_exchange_that_never_fits_is_pythons(monkeypatch: pytest.MonkeyPatch, bound: str, room: int) -> None:
    """Such an exchange is skipped; those around it have rows."""
    large = [
        (kafka.metadata_request(9, [f"topic-{at}" for at in range(40)]), kafka.metadata_response(9, "b", 9092, [])),
        (kafka.produce_request(9, "orders" * 9, batch(1)), kafka.produce_response(9, "orders" * 9, 0)),
    ]
    which = {"MAX_TEXT": large[0], "MAX_NAME_BYTES": large[1]}.get(bound, FAILED)
    fits = (kafka.fetch_request(4, "paid", 12), kafka.fetch_response(4, "paid", b"", 12))
    monkeypatch.setattr(module, bound, room)
    found = Call([fits, which, fits]).every(reader_of(bodies=EVERY_BODY if bound == "MAX_TEXT" else NO_BODY))
    pairs = np.concatenate([one.rows["pair"] for one in found]).tolist()
    assert pairs == ([0, 1, 2] if bound == "MAX_INSIDE" else [0, 2])


def test_misuse_raises() -> None:
    """A place after the last pair, instead of memory that is not theirs."""
    with pytest.raises(RuntimeError, match="the kernel refuses to read exchanges"):
        Call([PRODUCE]).read(reader_of(), 2)
