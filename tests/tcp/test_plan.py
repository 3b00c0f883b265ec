"""The plan of a batch against the packets themselves: groups, directions, and rows that are not plain."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tcp import plan as planning
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.plan import BatchPlan, connection_hash, endpoints_of
from tests.tcp.batches import MAPPED, Raw, batch

CLIENT, BROKER = (0, 0x0A000001 | MAPPED), (0, 0x0A000002 | MAPPED, 9092)

raws = st.builds(
    Raw,
    sender=st.integers(0, 1),
    seq=st.sampled_from([0, 1, 2, 3, (1 << 32) - 1]),
    payload=st.sampled_from([b"", b"a", b"bc"]),
    flags=st.sampled_from([ACK, ACK, ACK, SYN, FIN | ACK, RST, 0]),
    ack=st.integers(0, 9),
    wire=st.sampled_from([None, None, 4]),
    conversation=st.integers(0, 3),
    ident=st.just(0),
    time_ns=st.just(0),
)


def planned(packets: list[Raw]) -> BatchPlan:
    made = batch(packets)
    return BatchPlan(made, made.time_ns)


def expected_exceptions(packets: list[Raw]) -> set[int]:
    """Indices of packets that are not plain, one by one."""
    odd = set()
    following: dict[tuple[int, int], int] = {}
    for index, packet in enumerate(packets):
        length = len(packet.payload)
        wire = length if packet.wire is None else packet.wire
        stream = packet.conversation, packet.sender
        if packet.flags & (SYN | FIN | RST | ACK) != ACK or wire != length:
            odd.add(index)
        elif wire:
            if following.get(stream, packet.seq) != packet.seq:
                odd.add(index)
            following[stream] = (packet.seq + wire) % (1 << 32)
    return odd


def check(packets: list[Raw]) -> None:
    plan = planned(packets)
    indices: dict[int, list[int]] = defaultdict(list)
    for index, packet in enumerate(packets):
        indices[packet.conversation].append(index)
    odd = expected_exceptions(packets)
    assert {key[0][2] - 1000 for key in plan.key} == set(indices)
    for group, key in enumerate(plan.key):
        assert key[1] == BROKER
        assert key[0][:2] == CLIENT
        mine = indices[key[0][2] - 1000]
        assert (plan.first[group], plan.last[group]) == (mine[0], mine[-1])
        assert plan.end[group] - plan.start[group] == len(mine)
        assert plan.last_seen(group)[1] == mine[-1] + 1
        found, exceptions = plan.packets(group)
        assert [one.order for one in found] == mine
        assert [one.seq for one in found] == [packets[index].seq for index in mine]
        assert [one.direction for one in found] == [packets[index].sender for index in mine]
        assert {mine[at] for at in exceptions} == odd & set(mine)
        assert plan.exceptions[group] == len(exceptions)
        for direction in (0, 1):
            sent = [index for index in mine if packets[index].sender == direction]
            assert plan.last_ack[group][direction] == (packets[sent[-1]].ack if sent else -1)
            low, high = plan.halves[group][direction]
            assert plan.order[low:high] == [
                index for index in sent if packets[index].payload and packets[index].wire is None
            ]
            data = [plan.batch.buffer[plan.offset[at] : plan.offset[at] + plan.length[at]] for at in range(low, high)]
            assert data == [packets[at].payload for at in plan.order[low:high]]
    assert plan.end_at == np.cumsum(plan.length).tolist()


@given(st.lists(raws, min_size=1, max_size=30))
def test_it_groups_the_packets(packets: list[Raw]) -> None:
    check(packets)


@given(packets=st.lists(raws, min_size=1, max_size=20))
def test_colliding_hashes_change_nothing(packets: list[Raw]) -> None:
    """An attacker may choose endpoints whose hashes are equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "endpoint_hash", lambda high, _low, _port: np.ones(len(high), dtype=np.uint64))
        check(packets)


def test_sequence_numbers_wrap() -> None:
    top = (1 << 32) - 2
    assert planned([Raw(0, top, b"abc"), Raw(0, 1, b"d"), Raw(0, 2, b"e")]).exceptions == [0]
    assert planned([Raw(0, top, b"abc"), Raw(0, 0, b"d")]).exceptions == [1]


def test_acknowledgements_in_capture_order() -> None:
    plan = planned([Raw(0, 1, ack=5), Raw(0, 1, ack=9, conversation=1), Raw(0, 1, ack=7)])
    ports = [key[0][2] for key in plan.key]
    assert plan.acks(ports.index(1000)).tolist() == [5, 7]
    assert plan.acks(ports.index(1001)).tolist() == [9]


@given(st.lists(raws, min_size=1, max_size=10))
def test_both_directions_have_the_same_hash_and_key(packets: list[Raw]) -> None:
    there = batch(packets)
    back = batch([packet._replace(sender=1 - packet.sender) for packet in packets])
    assert connection_hash(there).tolist() == connection_hash(back).tolist()
    rows = np.arange(len(packets))
    keys, higher = endpoints_of(there, rows)
    assert endpoints_of(back, rows) == (keys, [not one for one in higher])
    assert higher == [packet.sender == 1 for packet in packets]


def test_hashes_are_those_of_any_machine() -> None:
    """Shards of a run on several machines are cut by them."""
    assert connection_hash(batch([Raw(0, 1), Raw(0, 1, conversation=1)])).tolist() == HASHES


HASHES = [6425202369641478842, 15989436381652154458]
"""Computed with Python's integers from the formula; stored rows depend on these numbers."""
