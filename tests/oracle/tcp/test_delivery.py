"""The rules of a stream: which bytes count, and when a hole becomes a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tcp.packets import SYN
from kafkasniff.tcp.segments import Closed, Gap, Hole, Retransmit
from tests.oracle.tcp import delivery as rules
from tests.oracle.tcp.outcomes import MESSAGES, SENT, conversation, of_kind, only, outcome, streams
from tests.oracle.tcp.stream import MAX_MISSING, Stream

from .batches import Raw, batch


def test_sequence_numbers_wrap() -> None:
    for isn in ((2**32 - 5, 2**32 - 20), (2**31 - 4, 2**32 - 1)):
        rows = only(outcome([batch(conversation(MESSAGES, isn=isn))]))
        assert streams(rows) == SENT
        assert not of_kind(rows, Gap)


def test_first_arrival_wins() -> None:
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(0, 101, b"abcdef"),
        Raw(0, 104, b"XXXghi"),
        Raw(0, 116, b"pqr"),  # after a hole
        Raw(0, 110, b"jklmnoPQRstu"),  # fills it, overlaps the held bytes and continues
    ]
    rows = only(outcome([batch(packets)]))
    assert streams(rows)[0] == b"abcdefghijklmnopqrstu"


def test_held_segment_is_delivered_by_the_packet_that_fills_the_hole() -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 104, b"def"), Raw(0, 101, b"abc")]
    rows = of_kind(only(outcome([batch(packets)])), tuple)
    # (order at which it became contiguous, direction, bytes, packet that brought it, its time, time of release)
    assert rows == [(2, 0, b"abc", 3, 3000, 3000), (2, 0, b"def", 2, 2000, 3000)]


def test_acknowledged_hole_becomes_a_gap_after_the_grace() -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc"), Raw(0, 110, b"xyz"), Raw(1, 500, ack=113)]
    packets += [Raw(1, 500, ack=113) for _ in range(rules.GRACE_PACKETS)]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert (gap.direction, gap.size, gap.snapped) == (0, 6, False)
    assert gap.order < len(packets) - 1
    assert streams(rows)[0] == b"abcxyz"


def test_bytes_after_a_gap_count_from_their_arrival() -> None:
    """What a gap is in front of was held back for nothing: the peer had it all the time."""
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(0, 101, b"abc"),
        Raw(0, 110, b"xyz"),
        Raw(0, 116, b"789"),
        Raw(0, 113, b"456"),
    ]
    packets += [Raw(1, 500, ack=119) for _ in range(rules.GRACE_PACKETS)]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert gap.resumed_ns == 3000
    behind = [row for row in of_kind(rows, tuple) if row[2] in (b"xyz", b"456", b"789")]
    # (order at which the gap was declared, direction, bytes, packet that brought it, its time, time of release)
    assert behind == [
        (gap.order, 0, b"xyz", 3, 3000, 3000),
        (gap.order, 0, b"456", 5, 5000, 5000),
        (gap.order, 0, b"789", 4, 4000, 5000),
    ]


def test_holes_are_reported_when_they_open_and_when_they_are_gone() -> None:
    filled = [Raw(0, 100, flags=SYN), Raw(0, 104, b"d"), Raw(0, 106, b"f"), Raw(0, 101, b"abc"), Raw(0, 105, b"e")]
    rows = only(outcome([batch(filled)]))
    assert [(hole.order, hole.direction, hole.open) for hole in of_kind(rows, Hole)] == [(1, 0, True), (4, 0, False)]
    lost = [Raw(1, 100, flags=SYN), Raw(1, 104, b"d"), Raw(1, 106, b"f")]
    rows = only(outcome([batch(lost)]))
    # Both holes become gaps when the capture ends; no stream is left with a hole that is open.
    assert [type(row) for row in rows[1:] if not isinstance(row, tuple)] == [Hole, Gap, Gap, Hole, Closed]
    assert [hole.open for hole in of_kind(rows, Hole)] == [True, False]


def test_unacknowledged_hole_waits_for_its_bytes() -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc"), Raw(0, 110, b"xyz")]
    packets += [Raw(1, 500, ack=104) for _ in range(1000)]
    packets += [Raw(0, 104, b"defghi")]
    rows = only(outcome([batch(packets)]))
    assert not of_kind(rows, Gap)
    assert streams(rows)[0] == b"abcdefghixyz"


def test_one_direction_only_gives_up_holes_by_count() -> None:
    packets = [Raw(0, 101, b"abc"), *(Raw(0, 110 + 3 * i, b"xyz") for i in range(rules.ONE_SIDED_PACKETS + 10))]
    rows = only(outcome([batch(packets)]))
    assert [gap.size for gap in of_kind(rows, Gap)] == [6]
    assert of_kind(rows, Gap)[0].order < len(packets) - 1


def test_held_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules.MAX_HELD_BYTES <= 64 << 20
    monkeypatch.setattr(rules, "MAX_HELD_BYTES", 1 << 20)
    part = bytes(60_000)
    count = rules.MAX_HELD_BYTES // len(part) + 5
    packets = [Raw(0, 100, flags=SYN), *(Raw(0, 1000 + i * len(part), part) for i in range(count))]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert gap.size == 899
    assert gap.order < len(packets)
    assert len(streams(rows)[0]) == count * len(part)


def test_snapped_segment() -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abcd", wire=10), Raw(0, 111, b"xyz")]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert (gap.size, gap.snapped) == (6, True)
    assert streams(rows)[0] == b"abcdxyz"


def test_keep_alives_and_window_probes_are_no_retransmissions() -> None:
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(0, 101, b"abc"),
        Raw(0, 103, b"c"),  # a keep-alive with one byte of garbage
        Raw(0, 103),  # and one without
        Raw(0, 104, b"d"),  # a zero-window probe carries the next byte
        Raw(0, 104, b"de"),
    ]
    rows = only(outcome([batch(packets)]))
    assert streams(rows)[0] == b"abcde"
    assert not of_kind(rows, Retransmit)


def test_copies_are_not_retransmissions() -> None:
    once = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc", ident=7), Raw(0, 104, b"def", ident=8)]
    twice = [packet for packet in once for _ in (0, 1)]
    rows = only(outcome([batch(twice)]))
    assert streams(rows)[0] == b"abcdef"
    assert not of_kind(rows, Retransmit)
    again = [*once, Raw(0, 101, b"abc", ident=9)]
    assert len(of_kind(only(outcome([batch(again)])), Retransmit)) == 1


def test_large_loss_is_a_gap_once_the_stream_continues() -> None:
    ahead = 101 + rules.MAX_AHEAD + 1_000_000
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc"), *(Raw(0, ahead + 3 * i, b"xyz") for i in range(5))]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert gap.size == ahead + 3 * (rules.AHEAD_SEGMENTS - 1) - 104
    assert streams(rows)[0] == b"abc" + b"xyz" * 3


# -- gaps that may still be filled -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=8), st.data())
def test_late_bytes_fill_one_gap(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against sets of single bytes: a late segment counts where only one gap is as long as it."""
    stream, gaps, position = Stream(), list[set[int]](), 0
    for there, gone in lengths:
        position += there
        stream.miss(position, position + gone)
        gaps.append(set(range(position, position + gone)))
        position += gone
    for _ in range(6):
        start = data.draw(st.integers(0, position + 2))
        late = set(range(start, start + data.draw(st.integers(1, 6))))
        expected = any(late <= gap for gap in gaps)
        assert stream.find_missing(start, start + len(late)) is expected
        if expected:
            gaps = [part for gap in gaps for part in (in_one_piece(gap - late) if late <= gap else [gap])]
        assert [set(range(*gap)) for gap in stream.missing] == gaps


def in_one_piece(numbers: set[int]) -> list[set[int]]:
    """A set of numbers as sets without holes."""
    pieces: list[set[int]] = []
    for number in sorted(numbers):
        if pieces and number - 1 in pieces[-1]:
            pieces[-1].add(number)
        else:
            pieces.append({number})
    return pieces


def test_only_so_many_gaps_are_kept() -> None:
    stream = Stream()
    for start in range(0, 3 * MAX_MISSING * 10, 10):
        stream.miss(start, start + 5)
    assert len(stream.missing) == MAX_MISSING
    stream.miss(7, 7)
    assert len(stream.missing) == MAX_MISSING
    # What splits a gap in two costs the oldest one.
    begin, _ = stream.missing[-1]
    oldest = stream.missing[0]
    assert stream.find_missing(begin + 2, begin + 3)
    assert len(stream.missing) == MAX_MISSING
    assert stream.missing[0] != oldest
    assert stream.missing[-2:] == ((begin, begin + 2), (begin + 3, begin + 5))


def test_what_the_peer_acknowledges_of_a_sender_that_nobody_sees() -> None:
    """Counted from the peer's first packet on, over the end of the numbers, until the sender is seen."""
    stream = Stream()
    for ack in ((1 << 32) - 10, (1 << 32) - 4, 6, 2):
        stream.acknowledge(ack)
    assert stream.passed == 12
    stream.hear()
    stream.acknowledge(100)
    assert stream.passed == 0
