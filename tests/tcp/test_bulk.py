"""Delivery in bulk leaves a connection as packet by packet does, and refuses what it must not do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkasniff.tcp.bulk import deliver_group, deliver_stretch
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.plan import BatchPlan
from kafkasniff.tcp.segments import Stretch
from kafkasniff.tcp.stream import Packet
from tests.tcp.outcomes import MESSAGES, SENT, conversation, only, outcome, streams

from .batches import Raw, batch

HANDSHAKE = 3
"""Packets of `conversation` before the first data."""
ENDS = 3
"""Packets of `conversation` after the last data."""

Deliver = Callable[[BatchPlan, TcpConnection, list[Packet]], bool]


def planned(packets: list[Raw], start: int = 0) -> tuple[BatchPlan, list[Packet]]:
    made = batch(packets, start=start)
    plan = BatchPlan(made, made.time_ns)
    return plan, plan.packets(0)[0]


def opened() -> TcpConnection:
    """A connection after its handshake."""
    plan, packets = planned(conversation(MESSAGES)[:HANDSHAKE])
    connection = TcpConnection(plan.key[0], packets[0])
    for packet in packets:
        connection.handle(packet)
        connection.clock = packet.clock
    connection.items = []
    return connection


def state(connection: TcpConnection) -> list[object]:
    found: list[object] = [connection.clock, connection.last_packet, connection.last_time, connection.seen]
    for stream in connection.streams:
        found += [stream.next, stream.ack, stream.heard, stream.held]
    return found


def whole_group(plan: BatchPlan, connection: TcpConnection, _packets: list[Packet]) -> bool:
    return deliver_group(plan, 0, connection)


def as_stretch(plan: BatchPlan, connection: TcpConnection, packets: list[Packet]) -> bool:
    return deliver_stretch(plan, 0, connection, packets, 0, len(packets))


both = pytest.mark.parametrize("deliver", [whole_group, as_stretch])


@both
def test_the_same_state_as_packet_by_packet(deliver: Deliver) -> None:
    plan, packets = planned(conversation(MESSAGES)[HANDSHAKE:-ENDS], HANDSHAKE)
    bulk, single = opened(), opened()
    assert deliver(plan, bulk, packets)
    single.buffer = plan.batch.buffer
    for packet in packets:
        single.handle(packet)
        single.clock = packet.clock
    assert state(bulk) == state(single)
    (item,) = bulk.items
    assert isinstance(item, Stretch)
    sent = [
        b"".join(run.buffer[run.offset[i] : run.offset[i] + run.length[i]] for i in range(run.first, run.last))
        for run in item.runs
        if run is not None
    ]
    assert tuple(sent) == SENT


def test_part_of_a_group() -> None:
    plan, packets = planned(conversation(MESSAGES)[HANDSHAKE:-ENDS], HANDSHAKE)
    bulk, single = opened(), opened()
    assert deliver_stretch(plan, 0, bulk, packets, 0, 2)
    single.buffer = plan.batch.buffer
    for packet in packets[:2]:
        single.handle(packet)
        single.clock = packet.clock
    assert state(bulk) == state(single)
    assert deliver_stretch(plan, 0, bulk, packets, 2, len(packets))
    assert bulk.seen == HANDSHAKE + len(packets)


@both
def test_a_connection_that_waits_is_refused(deliver: Deliver) -> None:
    plan, packets = planned(conversation(MESSAGES)[HANDSHAKE:-ENDS], HANDSHAKE)
    held = opened()
    held.buffer = plan.batch.buffer
    held.handle(packets[1])  # the first one is missing: a hole
    before = state(held)
    assert not deliver(plan, held, packets)
    syn = opened()
    syn.pending_syn = packets[0]
    assert not deliver(plan, syn, packets)
    assert state(held) == before


@both
def test_data_that_do_not_continue_the_stream_are_refused(deliver: Deliver) -> None:
    later, packets = planned(conversation(MESSAGES)[HANDSHAKE + 1 : -ENDS], HANDSHAKE + 1)
    connection = opened()
    before = state(connection)
    assert not deliver(later, connection, packets)
    assert state(connection) == before
    assert not connection.items


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
