"""Reassembly: what comes out is what was sent; bulk and packet by packet give the same; connections begin and end."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.plan import connection_hash
from kafkasniff.tcp.segments import Closed, Gap, Started
from tests.oracle.tcp import batch_plan as planning
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.outcomes import MESSAGES, SENT, conversation, of_kind, only, outcome, split_everywhere, streams
from tests.oracle.tcp.reassembly import FEW_DEADLINES, LINGER_NS, Reassembler
from tests.oracle.tcp.stream import Packet

from .batches import Raw, batch


def test_in_order() -> None:
    rows = only(outcome([batch(conversation(MESSAGES))]))
    assert streams(rows) == SENT
    assert [(item.direction, item.client) for item in of_kind(rows, Started)] == [(0, True), (1, False)]
    assert [item.reason for item in of_kind(rows, Closed)] == ["fin"]
    assert not of_kind(rows, Gap)


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


def test_a_connection_that_ends_idle_in_its_batch_is_reported_once() -> None:
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


def test_colliding_hashes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker may choose endpoints whose hashes are equal."""
    talks = [[packet._replace(conversation=number) for packet in conversation(MESSAGES)] for number in range(5)]
    packets = [packet for turn in zip(*talks, strict=True) for packet in turn]
    expected = outcome([batch(packets)])
    assert [streams(rows) for rows in expected.values()] == [SENT] * 5
    monkeypatch.setattr(planning, "endpoint_hash", lambda high, _low, _port: np.ones(len(high), dtype=np.uint64))
    assert outcome([batch(packets)]) == expected


def test_hashes_are_those_of_any_machine() -> None:
    """Shards of a run on several machines are cut by them. Computed with Python's integers from the formula."""
    found = connection_hash(batch([Raw(0, 1), Raw(0, 1, conversation=1)])).tolist()
    assert found == [6425202369641478842, 15989436381652154458]


def test_behind_each_hole_the_rest_goes_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many holes there were before: what is plain between them is not looked at packet by packet."""
    looked_at = 0
    handle = TcpConnection.handle

    def counting(self: TcpConnection, packet: Packet) -> str:
        nonlocal looked_at
        looked_at += 1
        return handle(self, packet)

    monkeypatch.setattr(TcpConnection, "handle", counting)
    segments = [Raw(0, 10 * number, bytes((number % 251,)) * 10) for number in range(1000)]
    for place in range(50, 1000, 50):
        # Three places late: a hole, and nothing in bulk until it is gone.
        segments[place : place + 4] = [*segments[place + 1 : place + 4], segments[place]]
    rows = only(outcome([batch(segments)]))
    assert streams(rows)[0] == b"".join(bytes((number % 251,)) * 10 for number in range(1000))
    assert 19 * 4 <= looked_at < 19 * 12


def connections_in_memory() -> list[TcpConnection]:
    # By its type alone: `isinstance` asks proxies, of which other tests leave some, for the class of what may be gone.
    return [one for one in gc.get_objects() if type(one) is TcpConnection]


def test_what_is_over_is_forgotten() -> None:
    """Many short connections: after a minute nothing is left of each, though its first deadline was an hour away."""
    # Tests before this one in the same process leave connections to the cycle collector. As long as the list holds
    # them, it cannot take them while this test counts its own.
    others = connections_in_memory()
    reassembler = Reassembler()
    count, step = 2_000, 100_000_000
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
