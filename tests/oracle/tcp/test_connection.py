"""The rules of one connection: what begins and ends it, and which packets are ignored."""

from __future__ import annotations

import pytest

from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.segments import Closed, Gap, TcpProblem
from tests.oracle.tcp.connection import RESET_BEHIND
from tests.oracle.tcp.outcomes import MESSAGES, SENT, conversation, of_kind, only, outcome, split_everywhere, streams

from .batches import Raw, batch


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


def test_an_ignored_syn_is_reported_where_that_is_known() -> None:
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
        reported = of_kind(rows, TcpProblem)
        assert [(item.kind, item.order, item.packet, item.time_ns) for item in reported] == [
            ("tcp-syn-ignored", 4, 3, 3000),
            ("tcp-syn-ignored", 6, 6, 6000),
        ]
        orders = [row[0] if isinstance(row, tuple) else row.order for row in rows]
        assert orders == sorted(orders)


def test_forged_packets_are_ignored_and_reported() -> None:
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


def test_data_in_flight_at_a_reset_is_reported_once() -> None:
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
        Raw(0, 108 + RESET_BEHIND + 1, b"far ahead"),
        Raw(0, 9_000, b"x", flags=SYN),
    ],
    ids=["same-side", "far", "syn"],
)
def test_what_else_comes_after_a_reset_is_another_connection(later: Raw) -> None:
    packets = [Raw(0, 100, flags=SYN), Raw(0, 101, b"request"), Raw(1, 501, b"answer"), Raw(1, 507, flags=RST), later]
    result = outcome([batch(packets)])
    assert len(result) == 2
    assert not [item for rows in result.values() for item in of_kind(rows, TcpProblem)]
