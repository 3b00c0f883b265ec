"""Columns of records by the kernel against Python's readers, which make a dict of each: the same for any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records.record_list import decode_record_list
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.native import kernel
from kafkasniff.native.columns import BATCH, ColumnReader, address_of, count_messages
from tests.choice import examples
from tests.kafka import records_craft as craft
from tests.kafka.records_craft import Record
from tests.native.kernel_columns import Given, expected, read

BASE_OFFSET, BASE_TIMESTAMP = 1_000, 1_700_000_000_000
EDGES = [-(2**31), 2**31 - 1, -1, 63, 64, -65, 8_191, 8_192]

TEXTS = st.none() | st.binary(max_size=20) | st.sampled_from([50, 63, 64, 200, 8_190, 9_000]).map(bytes)
RECORDS = st.builds(
    Record,
    st.one_of(st.integers(0, 300), st.sampled_from(EDGES)),
    st.one_of(st.integers(-3, 300), st.sampled_from([*EDGES, -(2**63), 2**63 - 1])),
    TEXTS,
    TEXTS,
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(tuple),
)
BATCHES = st.lists(st.lists(RECORDS, max_size=5).map(lambda some: b"".join(map(craft.record, some))), max_size=4)
MESSAGES = st.lists(
    st.builds(
        lambda offset, key, value, timestamp, attributes: (offset, key, value, timestamp, attributes),
        st.one_of(st.integers(0, 99), st.sampled_from([-(2**63), 2**63 - 1])),
        TEXTS,
        TEXTS,
        st.one_of(st.integers(0, 1 << 41), st.sampled_from([-1, -(2**63), 2**63 - 1])),
        st.sampled_from([0, 0, 8, 0x10]),
    ),
    min_size=1,
    max_size=5,
)


def loop(one: Given) -> tuple[list[dict[str, Any]], bool]:
    """What the loop makes of a batch, and whether it is right in every byte."""
    context = DecodeContext(DecodeOptions())
    records, complete, _ = decode_record_list(
        *(one.data, 0, len(one.data), one.base_offset, one.base_timestamp, one.append_timestamp, context, None),
        1_000_000,
    )
    return records, complete and not context.problems


def agree(batches: list[bytes], **more: Any) -> int:
    """How many batches the kernel takes; raises AssertionError where it says anything else than the loop."""
    taken = [
        Given(batch, base_offset=BASE_OFFSET, base_timestamp=BASE_TIMESTAMP, base_sequence=2**31 - 3, **more)
        for batch in batches
    ]
    found, _ = read(taken)
    for one, rows in zip(taken, found, strict=True):
        records, clean = loop(one)
        if rows is None:
            continue
        assert clean
        sequences = [(2**31 - 3 + record["offset"] - BASE_OFFSET) & 0x7FFFFFFF for record in records]
        assert [row.pop("sequence") for row in rows] == sequences
        assert rows == [expected(record) for record in records]
    return sum(rows is not None for rows in found)


@examples(80)
@given(BATCHES, st.data())
def test_any_batches(batches: list[bytes], draw: st.DataObject) -> None:
    assert agree(batches) == len(batches)
    assert agree(batches, append_timestamp=5) == len(batches)
    damaged: list[bytes] = [draw.draw(st.binary(max_size=60))]
    for batch in batches:
        changed = bytearray(batch)
        for at in draw.draw(st.lists(st.integers(0, max(len(batch) - 1, 0)), max_size=3)):
            if at < len(changed):
                changed[at] = draw.draw(st.integers(0, 255))
        if draw.draw(st.booleans()):
            del changed[draw.draw(st.integers(0, len(changed))) :]
        damaged.append(bytes(changed))
    agree(damaged)


@examples(80)
@given(MESSAGES, st.integers(0, 1), st.booleans())
def test_sets_of_messages(made: list[Any], magic: int, appended: bool) -> None:
    data = b"".join(
        craft.message(offset, key, value, magic=magic, timestamp=timestamp, attributes=attributes)
        for offset, key, value, timestamp, attributes in made
    )
    (rows,), _ = read([Given(data, magic, append_timestamp=7 if appended else None)])
    assert rows is not None
    records = [batch["records"][0] for batch in decode_records(data, 0, len(data), craft.context())["batches"]]
    for record in records:
        if appended and magic == 1:
            record["timestamp"] = 7
    assert [row.pop("sequence") for row in rows] == [-1] * len(rows)
    assert rows == [expected(record) for record in records]
    assert count_messages(kernel(), data, magic, len(made)) == len(made)
    assert count_messages(kernel(), data, magic, len(made) - 1) == 0
    assert count_messages(kernel(), data, 1 - magic, len(made)) == 0


HUGE = b"\xfe\xff\xff\xff\x0f"
"""2^31 - 1 as a zigzag varint."""
MESSAGE = craft.message(0, b"k", b"v")
PYTHONS: list[tuple[bytes, int]] = [
    *((one, 1) for one in (craft.message(0, b"k", b"v", crc=1), craft.message(0, b"k", b"v", attributes=1))),
    (craft.message(0, b"k", b"v", magic=0), 1),
    *((MESSAGE[:8] + size + MESSAGE[12:], 1) for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")),
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
        right = MESSAGE if magic == 1 else craft.record(Record(1, 1, b"k", b"v"))
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
    given_batch = (address_of(data), len(data), 0, 0, 0, 100, 100, -1, 2, 0, *(0,) * 10)
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
