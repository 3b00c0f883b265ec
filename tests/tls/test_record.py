"""The record layer: the same records in any pieces, with marks of the packets that contained them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.tls.record import HEADER, MAX_FRAGMENT, Record, RecordCutter, may_be_header


def record(kind: int, data: bytes) -> bytes:
    return bytes((kind, 3, 3)) + len(data).to_bytes(2) + data


RECORDS = [(22, b"hello"), (20, b"\1"), (23, b"x" * 300), (23, b""), (23, bytes(MAX_FRAGMENT)), (21, b"ab")]
WIRE = b"".join(record(*one) for one in RECORDS)


def feed(cutter: RecordCutter, data: bytes, number: int) -> list[Record]:
    cutter.add(data, number, number * 10, number, number * 10 + 1)
    found = []
    while (one := cutter.cut()) is not None:
        found.append(one)
    return found


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for cut in cuts:
        found.append(data[at : at + cut])
        at += cut
    return [piece for piece in (*found, data[at:]) if piece]


@given(st.lists(st.integers(1, 700), max_size=30))
def test_records_do_not_depend_on_segments(cuts: list[int]) -> None:
    cutter = RecordCutter()
    found = []
    ends = []
    at = 0
    for number, piece in enumerate(pieces(WIRE, cuts)):
        at += len(piece)
        ends.append(at)
        found += feed(cutter, piece, number)
    assert [(one.content_type, one.data) for one in found] == RECORDS
    assert len(cutter) == 0
    assert not cutter.flawed
    # Each byte of a fragment belongs to the packet that contained it.
    at = 0
    for one in found:
        first = at + 5
        at = first + len(one.data)
        place = first
        for mark in one.marks:
            assert mark.time_ns == mark.packet * 10
            if one.data:
                assert place < ends[mark.packet]
                assert first + mark.end == min(ends[mark.packet], at)
                place = ends[mark.packet]
        assert one.order == next(number for number, end in enumerate(ends) if end >= at)


def test_an_invalid_header_is_detected_at_once() -> None:
    for head in (b"\x19", b"\x17\x02", b"\x17\x03\x05", b"\x17\x03\x03\xff\xff"):
        assert not may_be_header(head)
        cutter = RecordCutter()
        assert feed(cutter, head, 0) == []
        assert cutter.flawed
    assert may_be_header(b"")
    assert may_be_header(b"\x17\x03")


def test_a_gap_within_a_record_loses_that_record_only() -> None:
    cutter = RecordCutter()
    wire = record(23, bytes(100)) + record(23, b"next")
    assert feed(cutter, wire[:20], 0) == []
    assert cutter.gap(30)
    assert cutter.gap(10)
    assert [one.data for one in feed(cutter, wire[60:], 1)] == [b"next"]


def test_a_gap_up_to_a_record_s_end_loses_that_record_only() -> None:
    cutter = RecordCutter()
    wire = record(23, bytes(100)) + record(23, b"next")
    feed(cutter, wire[:20], 0)
    assert cutter.gap(85)
    assert [one.data for one in feed(cutter, wire[105:], 1)] == [b"next"]


def test_after_another_gap_records_are_searched() -> None:
    wire = b"".join(record(23, bytes((number,)) * 100) for number in range(4))
    for taken, missing in ((0, 50), (3, 50), (20, 86), (105, 10)):
        cutter = RecordCutter()
        feed(cutter, wire[:taken], 0)
        assert not cutter.gap(missing)
        assert cutter.lost
        assert feed(cutter, wire[taken + missing :], 1) == []
        one = cutter.seek()
        assert one is not None
        start = wire.index(b"\x17\x03\x03", taken + missing)
        assert one.data == wire[start + 5 : start + 105]
        assert cutter.passed >= missing
        cutter.found(one)
        assert not cutter.lost
        rest = cutter.cut()
        assert rest is None or rest.data == wire[start + 110 : start + 210]


@given(st.lists(st.integers(1, 50), max_size=10), st.binary(max_size=60))
@example([], b"\x17\x03\x03")
def test_the_search_does_not_depend_on_segments(cuts: list[int], noise: bytes) -> None:
    wire = noise + b"\x17\x03\x03\xff\xff" + b"\x17\x03" + record(23, b"one") + record(23, b"two")
    # Random bytes may look like the header of a long record. `seek` waits for its end before it tries the next
    # candidate.
    wire += bytes(HEADER + MAX_FRAGMENT)
    found = []
    cutter = RecordCutter()
    cutter.gap(7)
    for number, piece in enumerate(pieces(wire, cuts)):
        cutter.add(piece, number, 0, number, 0)
        while (one := cutter.seek()) is not None:
            found.append(one.data)
    assert found[-2:] == [b"one", b"two"]
    assert cutter.searched <= len(wire)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=10), st.integers(0, 400))
def test_garbage_never_raises(data: bytes, cuts: list[int], missing: int) -> None:
    cutter = RecordCutter()
    for number, piece in enumerate(pieces(data, cuts)):
        feed(cutter, piece, number)
        if number == 3:
            cutter.gap(missing)
        if cutter.lost:
            while (one := cutter.seek()) is not None:
                assert one.data in data
