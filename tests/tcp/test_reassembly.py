"""Reassembly: what comes out is what was sent; bulk and packet by packet give the same; gaps are told."""

from __future__ import annotations

import gc
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.packets import ACK, FIN, RST, SYN, PacketBatch
from kafkasniff.streams import Closed, Gap, Hole, Item, Retransmit, Run, Started, Stretch, TcpProblem
from kafkasniff.tcp import Reassembler, TcpConnection
from kafkasniff.tcp import connection as rules
from kafkasniff.tcp.reassembly import FEW_DEADLINES, LINGER_NS
from kafkasniff.tcp.stream import Packet

from .batches import Raw, batch


def run_bytes(run: Run) -> bytes:
    return b"".join(run.buffer[run.offset[i] : run.offset[i] + run.length[i]] for i in range(run.first, run.last))


def outcome(batches: list[PacketBatch], **options: int) -> dict[tuple[int, int], list[Any]]:
    """Per connection (first order, endpoints' client port): what it yielded, segment by segment, mergeable."""
    reassembler = Reassembler(**options)
    result: dict[tuple[int, int], list[Any]] = defaultdict(list)

    def take(deltas: list[tuple[Any, list[Item]]]) -> None:
        for connection, items in deltas:
            key = (connection.first_order, connection.endpoints[0][2])
            for item in items:
                if isinstance(item, Stretch):
                    rows = [
                        (
                            run.order[i],
                            direction,
                            run.buffer[run.offset[i] : run.offset[i] + run.length[i]],
                            run.packet[i],
                            run.time[i],
                            run.released[i],
                        )
                        for direction, run in enumerate(item.runs)
                        if run is not None
                        for i in range(run.first, run.last)
                    ]
                    result[key] += sorted(rows, key=lambda row: row[0])
                else:
                    result[key].append(item)

    for one in batches:
        take(reassembler.feed(one))
    take(reassembler.close())
    return dict(result)


def streams(rows: list[Any]) -> tuple[bytes, bytes]:
    return tuple(  # type: ignore[return-value]
        b"".join(row[2] for row in rows if isinstance(row, tuple) and row[1] == direction) for direction in (0, 1)
    )


def of_kind(rows: list[Any], kind: type) -> list[Any]:
    return [row for row in rows if isinstance(row, kind)]


def split_everywhere(packets: list[Raw]) -> list[PacketBatch]:
    return [batch([packet], start=index) for index, packet in enumerate(packets)]


def conversation(
    messages: list[tuple[int, bytes]], *, isn: tuple[int, int] = (100, 5000), segment: int = 7
) -> list[Raw]:
    """A whole connection: handshake, messages in segments with acknowledgements, both FINs."""
    seq = [isn[0] + 1, isn[1] + 1]
    packets = [Raw(0, isn[0], flags=SYN), Raw(1, isn[1], flags=SYN | ACK, ack=seq[0]), Raw(0, seq[0], ack=seq[1])]
    for sender, data in messages:
        for at in range(0, len(data), segment):
            part = data[at : at + segment]
            packets.append(Raw(sender, seq[sender], part, ack=seq[1 - sender]))
            seq[sender] += len(part)
        packets.append(Raw(1 - sender, seq[1 - sender], ack=seq[sender]))
    packets += [
        Raw(0, seq[0], flags=FIN | ACK, ack=seq[1]),
        Raw(1, seq[1], flags=FIN | ACK, ack=seq[0] + 1),
        Raw(0, seq[0] + 1, ack=seq[1] + 1),
    ]
    return packets


MESSAGES = [(0, b"the first request"), (1, b"its response, which is longer"), (0, b"another"), (1, b"and its answer")]
SENT = (b"the first requestanother", b"its response, which is longerand its answer")


def only(result: dict[Any, list[Any]]) -> list[Any]:
    assert len(result) == 1
    return next(iter(result.values()))


def test_in_order() -> None:
    rows = only(outcome([batch(conversation(MESSAGES))]))
    assert streams(rows) == SENT
    assert [(item.direction, item.client) for item in of_kind(rows, Started)] == [(0, True), (1, False)]
    assert [item.reason for item in of_kind(rows, Closed)] == ["fin"]
    assert not of_kind(rows, Gap)


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
        Raw(0, 116, b"pqr"),  # behind a hole
        Raw(0, 110, b"jklmnoPQRstu"),  # fills it, overlaps what is held and goes on
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
        Raw(0, 110, b"jkl"),  # held back behind a hole
        Raw(0, 106, flags=FIN | ACK),
        Raw(0, 120, b"tuv"),
    ]
    for batches in ([batch(packets)], split_everywhere(packets)):
        rows = only(outcome(batches))
        assert [item.kind for item in of_kind(rows, TcpProblem)] == ["tcp-fin-ignored"]
        assert [gap.size for gap in of_kind(rows, Gap)] == [6, 7]
        assert streams(rows)[0] == b"abcjkltuv"


def test_an_ignored_syn_is_told_where_that_is_known() -> None:
    """Told at the SYN's own place, it would come behind what other connections yielded since, or in front of it."""
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
        (113 + 5_000, "a RST 5,000 bytes ahead of the end of its stream: bytes in front of it are not in the capture"),
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


def test_port_reuse() -> None:
    first, second = conversation(MESSAGES), conversation(MESSAGES, isn=(900_000, 7))
    result = outcome([batch([*first, *second])])
    assert len(result) == 2
    assert all(streams(rows) == SENT for rows in result.values())


def test_port_reuse_without_an_end_in_between() -> None:
    first, second = conversation(MESSAGES)[:-3], conversation(MESSAGES, isn=(900_000, 7))
    result = outcome([batch([*first, *second])])
    assert [of_kind(rows, Closed)[0].reason for rows in result.values()] == ["reused", "fin"]
    assert all(streams(rows) == SENT for rows in result.values())


def test_late_copies_after_the_end_open_nothing() -> None:
    packets = conversation(MESSAGES)
    assert len(outcome([batch([*packets, packets[4], packets[-1]])])) == 1


def test_mid_stream_start_and_capture_end() -> None:
    packets = conversation(MESSAGES)[4:-3]
    rows = only(outcome([batch(packets)]))
    assert streams(rows) == (SENT[0][7:], SENT[1])
    assert not of_kind(rows, Started)
    assert [item.reason for item in of_kind(rows, Closed)] == ["end"]


def test_idle_connections_end() -> None:
    packets = [
        Raw(0, 100, flags=SYN, time_ns=1),
        Raw(0, 101, b"abc", time_ns=2),
        Raw(0, 101, b"other", time_ns=500, conversation=1),
        Raw(0, 106, b"other", time_ns=1_500, conversation=1),
        Raw(0, 104, b"def", time_ns=5_000),
    ]
    result = outcome([batch(packets)], idle_ns=1_200)
    assert sorted((key[1], [item.reason for item in of_kind(rows, Closed)]) for key, rows in result.items()) == [
        (1000, ["end"]), (1000, ["idle"]), (1001, ["idle"]),
    ]  # fmt: skip
    first = next(rows for key, rows in result.items() if key == (0, 1000))
    assert of_kind(first, Closed)[0].order == 3  # the first packet at which its time was over
    assert outcome(split_everywhere(packets), idle_ns=1_200) == result


def test_a_connection_that_ends_idle_in_its_batch_is_told_once() -> None:
    packets = [Raw(0, 101, time_ns=1), Raw(0, 500, b"other", time_ns=9_000, conversation=1)]
    reassembler = Reassembler(idle_ns=1_200)
    deltas = reassembler.feed(batch(packets))
    assert sorted(connection.endpoints[0][2] for connection, _ in deltas) == [1000, 1001]
    assert [item.reason for _, items in deltas for item in of_kind(items, Closed)] == ["idle"]


@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_batching_changes_nothing(chance: random.Random, disturbances: int) -> None:
    """Whole, packet by packet, and cut anywhere: the same items; what is delivered was sent."""
    packets: list[Raw] = []
    for number in range(chance.randint(1, 3)):
        messages = [
            (chance.randint(0, 1), chance.randbytes(chance.randint(1, 40))) for _ in range(chance.randint(1, 6))
        ]
        isn = (chance.getrandbits(32), chance.getrandbits(32))
        one = conversation(messages, isn=isn, segment=chance.randint(1, 30))
        one = [packet._replace(conversation=number) for packet in one[chance.choice((0, 0, 4)) :]]
        for _ in range(disturbances):
            at = chance.randrange(len(one))
            match chance.randint(0, 7):
                case 0:
                    del one[at]
                case 1:
                    one.insert(chance.randrange(len(one)), one[at])
                case 2:
                    one.insert(max(at - chance.randint(1, 5), 0), one.pop(at))
                case 3:
                    one.insert(at, one[at]._replace(seq=chance.getrandbits(32)))
                case 4:
                    one.insert(
                        at, Raw(chance.randint(0, 1), one[at].seq + 3, flags=chance.choice((RST, SYN, FIN | ACK)))
                    )
                case 5 if len(one[at].payload) > 1:
                    cut = chance.randrange(1, len(one[at].payload))
                    one[at] = one[at]._replace(payload=one[at].payload[:cut], wire=len(one[at].payload))
                case 6:
                    one.insert(at, one[at]._replace(payload=chance.randbytes(9), seq=one[at].seq - 4))
                case 7:
                    one += conversation(messages, isn=(chance.getrandbits(32), 1))
            if not one:
                one = conversation(messages)
        packets += one
        if chance.random() < 0.5:
            chance.shuffle(packets)
    packets = [packet._replace(ident=index + 1, time_ns=0) for index, packet in enumerate(packets)]
    whole = outcome([batch(packets)])
    assert outcome(split_everywhere(packets)) == whole
    cuts = sorted(chance.sample(range(len(packets) + 1), min(3, len(packets))))
    parts, rest = [], batch(packets)
    for cut in reversed(cuts):
        rest, tail = rest.split(cut)
        parts.insert(0, tail)
    assert outcome([rest, *parts]) == whole


def test_behind_each_hole_the_rest_goes_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many holes there were before: what is plain between them is not looked at packet by packet."""
    looked_at = 0
    handle = TcpConnection.handle

    def counting(self: TcpConnection, packet: Packet) -> str:
        nonlocal looked_at
        looked_at += 1
        return handle(self, packet)

    monkeypatch.setattr(TcpConnection, "handle", counting)
    segments = [Raw(0, 10 * number, bytes((number % 251,)) * 10) for number in range(4000)]
    for place in range(50, 4000, 50):
        # Three places late: a hole, and nothing in bulk until it is gone.
        segments[place : place + 4] = [*segments[place + 1 : place + 4], segments[place]]
    rows = only(outcome([batch(segments)]))
    assert streams(rows)[0] == b"".join(bytes((number % 251,)) * 10 for number in range(4000))
    assert 79 * 4 <= looked_at < 79 * 12


def connections_in_memory() -> list[TcpConnection]:
    # By its type alone: `isinstance` asks proxies, of which other tests leave some, for the class of what may be gone.
    return [one for one in gc.get_objects() if type(one) is TcpConnection]


def test_what_is_over_is_forgotten() -> None:
    """Many short connections: after a minute nothing is left of each, though its first deadline was an hour away."""
    # Tests before this one in the same process leave connections to the cycle collector. As long as the list holds
    # them, it cannot take them while this test counts its own.
    others = connections_in_memory()
    reassembler = Reassembler()
    count, step = 8_000, 100_000_000
    for first in range(0, count, 1_000):
        packets: list[Raw] = []
        for number in range(first, first + 1_000):
            now = (number + 1) * step
            packets += [
                Raw(0, 99, flags=SYN, time_ns=now, conversation=number),
                Raw(0, 100, b"once", time_ns=now, conversation=number),
                Raw(0, 104, flags=RST | ACK, time_ns=now, conversation=number),
            ]
        reassembler.feed(batch(packets, first * 3))
    # `opened` names those of the last batch.
    reassembler.feed(batch([Raw(0, 1, b"x", time_ns=count * step, conversation=count)], count * 3))
    lingering = LINGER_NS // step
    assert lingering <= len(reassembler) <= lingering + 2
    assert len(reassembler._deadlines) <= 2 * len(reassembler) + FEW_DEADLINES
    del packets
    assert len(connections_in_memory()) - len(others) == len(reassembler)
