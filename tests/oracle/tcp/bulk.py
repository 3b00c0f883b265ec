"""Plain segments of a connection, delivered in bulk: no Python per packet.

Segments that all continue their streams become at most two runs, which refer to the batch's columns. The connection is
left in the state in which `TcpConnection.handle` would have left it, packet by packet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from kafkasniff.tcp.segments import Run, Stretch
from tests.oracle.tcp.batch_plan import BatchPlan
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.stream import MASK, RECENT, Packet

__all__ = ["deliver_group", "deliver_stretch"]


def deliver_group(plan: BatchPlan, group: int, connection: TcpConnection) -> bool:
    """Deliver all rows of a group without exceptions in bulk; False if the connection's state does not allow it.

    Hot: once per connection and batch.
    """
    halves = plan.halves[group]
    if connection.pending_syn is not None:
        return False
    for stream, (first, last) in zip(connection.streams, halves, strict=True):
        if stream.held:
            return False
        if first < last and (stream.next is None or stream.fin is not None or stream.next & MASK != plan.seq[first]):
            return False
    _deliver_ranges(plan, connection, halves)
    acks = plan.last_ack[group]
    one, other = connection.streams
    if one.heard and other.heard:
        # Each direction's packets acknowledge the other's.
        if acks[0] >= 0:
            other.ack = acks[0]
        if acks[1] >= 0:
            one.ack = acks[1]
    else:
        _note_acks(connection, acks, lambda: plan.acks(group).tolist())
    connection.clock, connection.last_packet, connection.last_time = plan.last_seen(group)
    connection.seen += plan.end[group] - plan.start[group]
    return True


def deliver_stretch(  # noqa: PLR0917 - once for each stretch
    plan: BatchPlan, group: int, connection: TcpConnection, packets: list[Packet], index: int, stop: int
) -> bool:
    """Deliver a group's plain packets [index, stop) in bulk; False if the connection's state does not allow it."""
    if connection.closed or connection.pending_syn is not None:
        return False
    first_order, last = packets[index].order, packets[stop - 1]
    ranges: list[tuple[int, int]] = []
    for stream, (begin, end) in zip(connection.streams, plan.halves[group], strict=True):
        if stream.held:
            return False
        # A half is in capture order, and all rows in the stretch are plain.
        first = bisect_left(plan.order, first_order, begin, end)
        after = bisect_right(plan.order, last.order, first, end)
        if first < after and (stream.next is None or stream.fin is not None or stream.next & MASK != plan.seq[first]):
            return False
        ranges.append((first, after))
    _deliver_ranges(plan, connection, ranges)
    _note_acks(connection, _last_acks(packets, index, stop), lambda: [one.ack for one in packets[index:stop]])
    connection.clock, connection.last_packet, connection.last_time = last.clock, last.packet, last.time_ns
    connection.seen += stop - index
    return True


def _last_acks(packets: list[Packet], index: int, stop: int) -> tuple[int, int]:
    """Acknowledgement number of the last of these packets of either direction; -1 if it has none."""
    found = [-1, -1]
    for packet in reversed(packets[index:stop]):
        if found[packet.direction] < 0:
            found[packet.direction] = packet.ack
            if found[1 - packet.direction] >= 0:
                break
    return found[0], found[1]


def _note_acks(connection: TcpConnection, last: tuple[int, int], every: Callable[[], list[int]]) -> None:
    """Record the acknowledgements of plain packets: the last per direction; `every`: all, of a one-sided capture."""
    for direction in (0, 1):
        stream = connection.streams[direction]
        if last[direction] >= 0 and not stream.heard:
            stream.hear()
    for direction in (0, 1):
        peer = connection.streams[1 - direction]
        if last[direction] < 0:
            continue
        if peer.heard:
            peer.ack = last[direction]
        else:
            for ack in every():
                peer.acknowledge(ack)


def _deliver_ranges(plan: BatchPlan, connection: TcpConnection, ranges: Sequence[tuple[int, int]]) -> None:
    """Pass on data rows [first, last) of each direction, which continue their streams. Hot."""
    runs: list[Run | None] = [None, None]
    for direction, (first, last) in enumerate(ranges):
        if first == last:
            continue
        time = plan.time
        runs[direction] = Run(
            plan.batch.buffer, plan.offset, plan.length, plan.end_at, plan.packet, time, plan.order, time, first, last
        )
        stream = connection.streams[direction]
        stream.next += plan.end_at[last - 1] - plan.end_at[first] + plan.length[first]  # type: ignore[operator]
        tail = max(first, last - RECENT)
        stream.delivered_in_bulk(plan.seq[tail:last], plan.length[tail:last], plan.ident[tail:last])
    if runs[0] is not None or runs[1] is not None:
        connection.items.append(Stretch((runs[0], runs[1])))
