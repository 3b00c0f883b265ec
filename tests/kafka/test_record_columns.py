"""Columns of records against the loop that makes a dict of each: the same for any bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.record_columns import MAX_COLUMN_HEADERS, RecordColumns, parse_records
from kafkasniff.kafka.record_list import decode_record_list

BASE_OFFSET, BASE_TIMESTAMP = 1_000, 1_700_000_000_000


def varint(value: int, bits: int = 32) -> bytes:
    """A zigzag varint, as `ByteUtils.writeVarint` of Kafka writes it."""
    left = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while left > 127:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    timestamp: int, offset: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> bytes:
    body = b"\0" + varint(timestamp, 64) + varint(offset) + field(key) + field(value) + varint(len(headers))
    body += b"".join(field(name.encode()) + field(content) for name, content in headers)
    return varint(len(body)) + body


RECORDS = st.builds(
    record,
    st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.integers(0, 300), st.integers(-(2**31), 2**31 - 1)),
    st.none() | st.binary(max_size=20) | st.integers(50, 200).map(bytes),
    st.none() | st.binary(max_size=20) | st.integers(8_000, 9_000).map(bytes),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4),
)
BATCHES = st.lists(st.lists(RECORDS, max_size=5).map(b"".join), max_size=4)


def loop(data: bytes, start: int, end: int) -> tuple[list[dict[str, Any]], bool]:
    """What the loop makes of a batch, and whether it is right in every byte."""
    context = DecodeContext(DecodeOptions())
    records, complete, _ = decode_record_list(
        data,
        start,
        end,
        base_offset=BASE_OFFSET,
        base_timestamp=BASE_TIMESTAMP,
        append_timestamp=None,
        context=context,
        batch_position=None,
        budget=1_000_000,
    )
    return records, complete


def rows(data: bytes, columns: RecordColumns, batch: int) -> list[dict[str, Any]]:
    """The rows of one batch in the form of the loop."""

    def piece(start: int, length: int) -> bytes | None:
        return None if length < 0 else data[start : start + length]

    def text(value: bytes | None) -> str | bytes | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            return value

    found = []
    for row in (columns.batch == batch).nonzero()[0].tolist():
        headers = (columns.header_record == row).nonzero()[0].tolist()
        timestamp = BASE_TIMESTAMP + int(columns.timestamp_delta[row])
        found.append(
            {
                "offset": BASE_OFFSET + int(columns.offset_delta[row]),
                "timestamp": (timestamp + 2**63) % 2**64 - 2**63,
                "key": piece(int(columns.key_start[row]), int(columns.key_length[row])),
                "value": piece(int(columns.value_start[row]), int(columns.value_length[row])),
                "headers": [
                    {
                        "key": text(piece(int(columns.header_key_start[index]), int(columns.header_key_length[index]))),
                        "value": piece(int(columns.header_value_start[index]), int(columns.header_value_length[index])),
                    }
                    for index in headers
                ],
            }
        )
    return found


def place(batches: list[bytes], between: bytes = b"\xff\xff") -> tuple[bytes, list[tuple[int, int]]]:
    """Batches one behind the other with bytes between them that belong to none."""
    data, spans = b"", []
    for batch in batches:
        data += between
        spans.append((len(data), len(data) + len(batch)))
        data += batch
    return data + between, spans


def agree(batches: list[bytes]) -> None:
    data, spans = place(batches)
    columns, refused = parse_records(data, spans)
    for index, (start, end) in enumerate(spans):
        records, complete = loop(data, start, end)
        if complete:
            assert index not in refused
            assert rows(data, columns, index) == records
        else:
            assert index in refused
            assert index not in columns.batch.tolist()


@given(BATCHES)
def test_sound_batches_are_read_alike(batches: list[bytes]) -> None:
    agree(batches)


@given(BATCHES, st.data())
def test_damaged_batches_are_left_to_the_loop(batches: list[bytes], draw: st.DataObject) -> None:
    damaged: list[bytes] = []
    for batch in batches:
        changed = bytearray(batch)
        for at in draw.draw(st.lists(st.integers(0, max(len(batch) - 1, 0)), max_size=3)):
            if at < len(changed):
                changed[at] = draw.draw(st.integers(0, 255))
        if draw.draw(st.booleans()):
            del changed[draw.draw(st.integers(0, len(changed))) :]
        damaged.append(bytes(changed))
    agree(damaged)


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_garbage_is_left_to_the_loop(batches: list[bytes]) -> None:
    agree(batches)


def test_numbers_at_the_ends_of_their_range() -> None:
    ends = [(-(2**63), -(2**31)), (2**63 - 1, 2**31 - 1), (0, 0), (-1, -1), (63, 63), (64, 64), (-65, -65)]
    agree([b"".join(record(timestamp, offset, b"k", None, []) for timestamp, offset in ends)])


def test_records_of_every_length_of_the_length() -> None:
    agree([record(0, 0, None, bytes(size), []) for size in (0, 50, 56, 57, 8_182, 8_183, 1_048_570, 1_048_571)])


def test_bounds() -> None:
    many = record(0, 0, None, None, [("h", None)] * (MAX_COLUMN_HEADERS + 1))
    few = record(0, 0, None, None, [("h", None)] * MAX_COLUMN_HEADERS)
    data, spans = place([many, few * 3, few])
    columns, refused = parse_records(data, spans)
    assert refused == [0]
    assert columns.batch.tolist() == [1, 1, 1, 2]
    columns, refused = parse_records(data, spans, limit=2 * MAX_COLUMN_HEADERS)
    assert refused == [0, 1]
    assert columns.batch.tolist() == [2]
    columns, refused = parse_records(data, spans, limit=0)
    assert refused == [0, 1, 2]
    assert not len(columns.batch)


def test_nothing() -> None:
    columns, refused = parse_records(b"", [])
    assert not refused
    assert all(not len(column) for column in columns)
    columns, refused = parse_records(b"", [(0, 0)])
    assert not refused
    assert not len(columns.batch)
