"""The rules of one connection: which bytes count, when a hole becomes a gap, and what ends it."""

from __future__ import annotations

import pytest

from kafkasniff.tcp import connection as rules
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.segments import Closed, Gap, Hole, Retransmit, TcpProblem
from tests.tcp.outcomes import MESSAGES, SENT, conversation, of_kind, only, outcome, split_everywhere, streams

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


def test_behind_a_gap_bytes_are_there_since_they_came() -> None:
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


def test_holes_are_told_when_they_open_and_when_they_are_gone() -> None:
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


def test_a_fin_in_front_of_held_data_is_ignored() -> None:
    """Believed, it would let the stream's position go back, and what is missing would be counted twice."""
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(0, 101, b"abc"),
        Raw(0, 110, b"jkl"),  # held back after a hole
        Raw(0, 106, flags=FIN | ACK),
        Raw(0, 120, b"tuv"),
    ]
    for batches in ([batch(packets)], split_everywhere(packets)):
        rows = only(outcome(batches))
        assert [item.kind for item in of_kind(rows, TcpProblem)] == ["tcp-fin-ignored"]
        assert [gap.size for gap in of_kind(rows, Gap)] == [6, 7]
        assert streams(rows)[0] == b"abcjkltuv"


def test_an_ignored_syn_is_told_where_that_is_known() -> None:
    """At the SYN's own place, the report would come after events of other connections since then, or before them."""
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(0, 101, b"abc"),
        Raw(0, 9000, flags=SYN),
        Raw(1, 500, b"xyz"),
        Raw(0, 104, b"def"),
        Raw(0, 7000, flags=SYN),
    ]
    for batches in ([batch(packets)], split_everywhere(packets)):
        rows = only(outcome(batches))
        told = of_kind(rows, TcpProblem)
        assert [(item.kind, item.order, item.packet, item.time_ns) for item in told] == [
            ("tcp-syn-ignored", 4, 3, 3000),
            ("tcp-syn-ignored", 6, 6, 6000),
        ]
        orders = [row[0] if isinstance(row, tuple) else row.order for row in rows]
        assert orders == sorted(orders)


def test_forged_packets_are_ignored_and_told() -> None:
    good = conversation(MESSAGES)
    forged = [
        Raw(0, 101 + 900_000_000, b"evil"),  # data far outside the window
        Raw(0, 101 + 5_000, flags=RST),
        Raw(1, 5001 - 3_000_000, flags=RST | ACK),
        Raw(1, 5001 + 2_000_000_000, flags=FIN | ACK),
        Raw(0, 77_777, flags=SYN),
    ]
    packets = [*good[:6], *forged, *good[6:]]
    rows = only(outcome([batch(packets)]))
    assert streams(rows) == SENT
    kinds = [item.kind for item in of_kind(rows, TcpProblem)]
    assert sorted(kinds) == [
        "tcp-fin-ignored", "tcp-out-of-window", "tcp-rst-ignored", "tcp-rst-ignored", "tcp-syn-ignored",
    ]  # fmt: skip


def test_large_loss_is_a_gap_once_the_stream_goes_on() -> None:
    ahead = 101 + rules.MAX_AHEAD + 1_000_000
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc"), *(Raw(0, ahead + 3 * i, b"xyz") for i in range(5))]
    rows = only(outcome([batch(packets)]))
    (gap,) = of_kind(rows, Gap)
    assert gap.size == ahead + 3 * (rules.AHEAD_SEGMENTS - 1) - 104
    assert streams(rows)[0] == b"abc" + b"xyz" * 3


def test_reset_ends_the_connection() -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"abc"), Raw(0, 104, flags=RST)]
    rows = only(outcome([batch(packets)]))
    assert [item.reason for item in of_kind(rows, Closed)] == ["rst"]


def closing(*after: Raw) -> list[Raw]:
    """The client sends three requests and closes; what comes then is `after`. Its stream ends at 113, the FIN at that.

    Sequence numbers of the captures close-answers-on-their-way.pcap, made small.
    """
    return [
        Raw(0, 100, flags=SYN),
        Raw(1, 500, flags=SYN | ACK, ack=101),
        Raw(0, 101, b"one_two_thre", ack=501),
        Raw(0, 113, flags=FIN | ACK, ack=501),
        *after,
    ]


def test_a_reset_that_answers_a_late_segment_is_no_problem() -> None:
    """It has the number that the segment acknowledged: the segment's sender did not know of the FIN yet."""
    packets = closing(
        Raw(1, 501, b"answer", ack=105),
        Raw(0, 105, flags=RST),
        Raw(1, 507, b"second", ack=113),
        Raw(0, 113, flags=RST),
        Raw(1, 513, b"third", ack=113),
        Raw(0, 113, flags=RST),
        Raw(1, 518, flags=FIN | ACK, ack=114),
        Raw(0, 114, flags=RST),
    )
    for batches in ([batch(packets)], split_everywhere(packets)):
        rows = only(outcome(batches))
        assert not of_kind(rows, TcpProblem)
        assert streams(rows)[1] == b"answersecondthird"
        assert [item.reason for item in of_kind(rows, Closed)] == ["fin"]


@pytest.mark.parametrize(
    ("seq", "said"),
    [
        (113 + 5_000, "a RST 5,000 bytes ahead of the end of its stream: bytes before it are not in the capture"),
        (113 + (1 << 30), "a RST 1,073,741,824 bytes ahead of the end of its stream: it is not of this connection"),
        (99, "a RST 14 bytes behind the end of its stream: it is not of this connection"),
        (113 - (1 << 30), "a RST 1,073,741,824 bytes behind the end of its stream: it is not of this connection"),
    ],
)
def test_a_reset_outside_the_window_is_a_problem(seq: int, said: str) -> None:
    packets = [*closing()[:3], Raw(0, seq % (1 << 32), flags=RST), *closing(Raw(1, 501, b"answer", ack=113))[3:]]
    rows = only(outcome([batch(packets)]))
    (problem,) = of_kind(rows, TcpProblem)
    assert (problem.kind, problem.detail[: len(said)]) == ("tcp-rst-ignored", said)
    assert streams(rows) == (b"one_two_thre", b"answer")


def test_a_reset_of_a_stream_without_bytes_is_judged_by_what_it_acknowledges() -> None:
    sent = [Raw(0, 101, b"request"), Raw(0, 108, b"another")]
    late = only(outcome([batch([*sent, Raw(1, 9, flags=RST | ACK, ack=108), Raw(0, 115, b"more")])]))
    assert not of_kind(late, TcpProblem)
    assert streams(late)[0] == b"requestanothermore"
    far = only(outcome([batch([*sent, Raw(1, 9, flags=RST | ACK, ack=108 + (1 << 30)), Raw(0, 115, b"more")])]))
    assert [item.kind for item in of_kind(far, TcpProblem)] == ["tcp-rst-ignored"]
    assert streams(far)[0] == b"requestanothermore"


def test_what_is_on_the_way_when_a_reset_comes_is_told_once() -> None:
    """As in broker-killed-requests-on-their-way.pcap: each segment that still comes has a RST for an answer."""
    packets = [
        Raw(0, 100, flags=SYN),
        Raw(1, 500, flags=SYN | ACK, ack=101),
        Raw(0, 101, b"request", ack=501),
        Raw(1, 501, b"answer", ack=108),
        Raw(1, 507, flags=RST | ACK, ack=108),
        Raw(0, 108, b"second", ack=501),
        Raw(1, 501, flags=RST),
        Raw(0, 114, b"third", ack=507),
        Raw(1, 507, flags=RST),
    ]
    for batches in ([batch(packets)], split_everywhere(packets)):
        rows = only(outcome(batches))
        assert streams(rows) == (b"request", b"answer")
        assert [type(row) for row in rows if not isinstance(row, tuple)][-2:] == [Closed, TcpProblem]
        (problem,) = of_kind(rows, TcpProblem)
        assert (problem.kind, problem.direction, problem.packet, problem.bytes) == ("tcp-data-after-rst", 0, 6, 6)


@pytest.mark.parametrize(
    "later",
    [
        Raw(1, 507, b"more of the side that sent it"),
        Raw(0, 108 + rules.RESET_BEHIND + 1, b"far ahead"),
        Raw(0, 9_000, b"x", flags=SYN),
    ],
    ids=["same-side", "far", "syn"],
)
def test_what_else_comes_after_a_reset_is_another_connection(later: Raw) -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"request"), Raw(1, 501, b"answer"), Raw(1, 507, flags=RST), later]
    result = outcome([batch(packets)])
    assert len(result) == 2
    assert not [item for rows in result.values() for item in of_kind(rows, TcpProblem)]
