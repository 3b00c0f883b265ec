"""The rules of a stream: which bytes count, and when a hole becomes a gap."""

from __future__ import annotations

from kafkasniff.tcp import delivery as rules
from kafkasniff.tcp.packets import SYN
from kafkasniff.tcp.segments import Closed, Gap, Hole, Retransmit
from tests.tcp.outcomes import MESSAGES, SENT, conversation, of_kind, only, outcome, streams

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


def test_held_bytes_are_bounded() -> None:
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
