from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages.message_spans import COMPRESSED, MALFORMED, Inside, Piece, record_spans
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.walker import Span
from tests.kafka.records_craft import Record, batch_of

RECORDS = [Record(0, 0, b"key", b"value", (("h", b"x"),)), Record(1, 5, None, b"")]


def pieces(data: bytes, *, opens: bool = True) -> list[Piece]:
    field = decode_records(data, 0, len(data), DecodeContext(DecodeOptions()))
    assert isinstance(field, dict)
    return list(record_spans(data, 0, len(data), "records", field, lambda *_: opens))


def spans(found: list[Piece]) -> list[Span]:
    return [one for one in found if isinstance(one, Span)]


def follow_one_another(found: list[Span], end: int) -> None:
    assert [one.start for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end == end


def test_a_batch_and_its_records() -> None:
    data = batch_of(RECORDS)
    found = spans(pieces(data))
    follow_one_another(found, len(data))
    values = {one.path: one.value for one in found}
    assert values["records.batches[0].record_count"] == 2
    assert values["records.batches[0].records[0].key"] == b"key"
    assert values["records.batches[0].records[0].headers[0].value"] == b"x"
    assert values["records.batches[0].records[1].key"] is None
    assert values["records.batches[0].records[1].timestamp_delta"] == 5


def test_compressed_records_have_offsets_of_their_own() -> None:
    data = batch_of(RECORDS, codec=1)
    found = pieces(data)
    outer, (inside,) = spans(found), [one for one in found if isinstance(one, Inside)]
    follow_one_another(outer, len(data))
    assert (outer[-1].type, outer[-1].value) == (COMPRESSED, "gzip")
    inner = [one for one in inside.spans if isinstance(one, Span)]
    follow_one_another(inner, len(inside.data))
    assert {one.path: one.value for one in inner}["records.batches[0].records[0].value"] == b"value"


def test_nothing_is_decompressed_if_it_may_not_be() -> None:
    assert not any(isinstance(one, Inside) for one in pieces(batch_of(RECORDS, codec=1), opens=False))
    damaged = bytearray(batch_of(RECORDS, codec=1))
    damaged[61] ^= 0xFF
    assert not any(isinstance(one, Inside) for one in pieces(bytes(damaged)))


def test_a_malformed_record_ends_its_batch() -> None:
    data = bytearray(batch_of(RECORDS))
    data[61] = 0x7F  # the length of the first record
    found = spans(pieces(bytes(data)))
    follow_one_another(found, len(data))
    assert found[-1].type == MALFORMED


@given(st.lists(st.binary(max_size=30), max_size=3), st.data())
def test_any_bytes_are_covered(parts: list[bytes], data: st.DataObject) -> None:
    made = bytearray(b"".join([batch_of(RECORDS), *parts, batch_of(RECORDS)]))
    made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(made[: data.draw(st.integers(1, len(made)))])
    follow_one_another(spans(pieces(cut)), len(cut))
