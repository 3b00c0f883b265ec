"""Batch-wise reassembly: plain segments in bulk, the others one by one through `TcpConnection`.

A group of rows whose data all continue their streams becomes at most two runs that refer to the batch's columns: no
Python per packet. In any other group the stretches between the exceptions are handled in the same way; the exceptions,
and everything while a hole is open, are handled packet by packet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.tcp.packets import NO_TIME, PacketBatch
from kafkasniff.tcp.plan import Key, index_of
from kafkasniff.tcp.segments import Item
from tests.oracle.tcp.batch_plan import BatchPlan
from tests.oracle.tcp.bulk import deliver_group, deliver_stretch
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.stream import Packet

__all__ = ["IDLE_NS", "LINGER_NS", "Delta", "Reassembler", "packet_clock"]

IDLE_NS: Final = 3_600_000_000_000
"""A connection silent for an hour of packet time is over; brokers close idle ones after ten minutes by default."""
LINGER_NS: Final = 60_000_000_000
"""A closed connection is remembered for a minute (TIME_WAIT), so that late copies of its packets open no new one."""

FEW_DEADLINES: Final = 1_000
"""This many expired deadlines cost less than searching for them."""

_Ticks = tuple[NDArray[np.int64], NDArray[np.int64], int]
"""Order and packet clock of each row of a batch, of all connections, and the batch's `end_order`."""

Delta = tuple[TcpConnection, list[Item]]
"""Items of one connection in one batch."""


class Reassembler:
    """All TCP connections of a run: packet batches in, items of connections out.

    `feed` and `close` return what the connections yielded, one pair for each connection that yielded anything; the
    items of one connection are in capture order, the pairs are in no particular one.
    """

    def __init__(self, *, idle_ns: int = IDLE_NS, linger_ns: int = LINGER_NS) -> None:
        self._idle = idle_ns
        self._linger = linger_ns
        self._table: dict[bytes, TcpConnection] = {}
        """By the index of the endpoints."""
        self._clock = NO_TIME
        self._deadlines: list[tuple[int, int, bytes]] = []
        """When to look at a connection again, by its index: holders of connections also keep ended ones."""
        self._scheduled = 0
        self._end_order = 0
        self._end_clock = NO_TIME
        self._ticks: _Ticks | None = None
        """Set while a batch is fed; not part of the state between batches."""
        self.opened: list[TcpConnection] = []
        """Connections opened by the last `feed`, in no particular order."""
        self.holding: list[TcpConnection] = []
        """Connections of the last `feed` that hold segments after a hole."""
        self.forgotten: list[TcpConnection] = []
        """Connections that were remembered until the last `feed`."""

    def __len__(self) -> int:
        """Connections remembered."""
        return len(self._table)

    def __iter__(self) -> Iterator[TcpConnection]:
        """The remembered connections, including ended ones."""
        return iter(self._table.values())

    def connection(self, key: Key) -> TcpConnection | None:
        """The latest connection between these endpoints, as long as it is remembered."""
        return self._table.get(index_of(key))

    def feed(self, batch: PacketBatch) -> list[Delta]:
        """Process the next packets in capture order."""
        self._end_order = max(self._end_order, batch.end_order)
        self._end_clock = max(self._end_clock, batch.end_clock)
        self.opened = []
        self.holding = []
        self.forgotten = []
        orders, clock = self._clocks(batch)
        if not len(orders):
            return []
        self._ticks = (orders, clock, batch.end_order)
        seen: dict[int, TcpConnection] = {}
        if len(batch):
            rows = clock if len(orders) == len(batch) else clock[np.searchsorted(orders, batch.order)]
            seen = {id(connection): connection for connection in self._connections(BatchPlan(batch, rows))}
        seen.update((id(connection), connection) for connection in self._evict(int(clock[-1])))
        self._clock = int(clock[-1])
        deltas = []
        for connection in seen.values():
            if connection.items:
                deltas.append((connection, connection.items))
                connection.items = []
            connection.buffer = b""
            one, other = connection.streams
            if one.held or other.held:
                self.holding.append(connection)
        self._ticks = None
        return deltas

    def _clocks(self, batch: PacketBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Orders of packets at which connections may end, and the packet clock at each."""
        return _clocks_of(batch, self._clock)

    def close(self) -> list[Delta]:
        """End of the capture: all connections end; long silent ones ended before."""
        return list(self.close_each(list(self)))

    def close_each(self, connections: Sequence[TcpConnection]) -> Iterator[Delta]:
        """`close`, one connection after the other: the items of each are released before the next one ends."""
        now = max(self._clock, self._end_clock)
        for connection in connections:
            if not connection.closed:
                silent = connection.clock != NO_TIME and now - connection.clock >= self._idle
                connection.close("idle" if silent else "end", _farewell(connection, self._end_order, now))
                items, connection.items = connection.items, []
                yield connection, items
                del items
        self._table.clear()
        self._deadlines.clear()
        self.opened = []
        self.holding = []
        self.forgotten = []

    def let_go(self, connections: Sequence[TcpConnection]) -> list[Delta]:
        """End some connections here, and forget them; their later packets begin in mid-stream."""
        deltas = []
        for connection in connections:
            del self._table[index_of(connection.endpoints)]
            if not connection.closed:
                connection.close("idle", _farewell(connection, self._end_order, connection.clock))
                deltas.append((connection, connection.items))
                connection.items = []
        return deltas

    def absorb(self, others: Sequence[Reassembler], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over the connections of others, and end those that are not wanted, by their endpoints."""
        every = (self, *others)
        table = {index: connection for one in every for index, connection in one._table.items()}
        keep = wanted([connection.endpoints for connection in table.values()]) if table else []
        self._table = {index: table[index] for index, kept in zip(list(table), keep, strict=True) if kept}
        deadlines = [
            (entry[0], entry[2]) for one in every for entry in sorted(one._deadlines) if self._is_due_then(entry)
        ]
        self._deadlines = [(deadline, number, index) for number, (deadline, index) in enumerate(deadlines)]
        heapq.heapify(self._deadlines)
        self._scheduled = len(deadlines)
        self._clock = max(one._clock for one in every)
        self._end_order = max(one._end_order for one in every)
        self._end_clock = max(one._end_clock for one in every)

    # -- the groups of one batch ------------------------------------------------------------------------------------

    def _connections(self, plan: BatchPlan) -> Iterator[TcpConnection]:
        """Handle all rows of a batch; yields each connection once, when its rows are handled."""
        first_clock, last_clock = int(plan.clock[0]), int(plan.clock[-1])
        silence_within = last_clock - first_clock >= self._idle
        table = self._table
        for group, key in enumerate(plan.key):
            connection = table.get(index_of(key))
            if (
                connection is None
                or plan.exceptions[group]
                or silence_within
                or connection.closed
                or last_clock - connection.clock >= self._idle
                or not deliver_group(plan, group, connection)
            ):
                yield from self._by_packet(plan, group, connection)
            else:
                yield connection

    def _by_packet(self, plan: BatchPlan, group: int, connection: TcpConnection | None) -> Iterator[TcpConnection]:
        packets, bad = plan.packets(group)
        bad.append(len(packets))
        index = 0
        next_bad = 0
        retry, patience = 0, 1
        while index < len(packets):
            packet = packets[index]
            if connection is None or self._is_over(connection, packet):
                if connection is not None:
                    if not connection.closed:
                        self._close_idle(connection)
                    yield connection
                connection = self._open(plan.key[group], packet)
            connection.buffer = plan.batch.buffer
            while bad[next_bad] < index:
                next_bad += 1
            stop = self._stop(packets, index, bad[next_bad])
            if stop - index > 1 and index >= retry:
                if deliver_stretch(plan, group, connection, packets, index, stop):
                    index = stop
                    retry, patience = 0, 1
                    continue
                # If a connection stays in a state that allows no stretch, retrying must not become quadratic.
                retry, patience = index + patience, 2 * patience
            if connection.handle(packet) == "reuse":
                syn = connection.pending_syn
                yield connection
                connection = self._open(plan.key[group], packet, syn)
                connection.buffer = plan.batch.buffer
                if syn is not None:
                    connection.handle(syn)
                connection.handle(packet)
            connection.clock = packet.clock
            if connection.closed:
                self._forget_soon(connection)
            index += 1
        if connection is not None:
            yield connection

    def _stop(self, packets: list[Packet], index: int, stop: int) -> int:
        """Where the stretch that starts at `index` ends: at `stop` or after the last packet before a silence."""
        if stop - index > 1 and packets[stop - 1].clock - packets[index].clock >= self._idle:
            for i in range(index + 1, stop):
                if packets[i].clock - packets[i - 1].clock >= self._idle:
                    return i
        return stop

    def _open(self, key: Key, packet: Packet, syn: Packet | None = None) -> TcpConnection:
        """A connection that starts at `packet`; `syn` is its SYN, if that came before."""
        connection = TcpConnection(key, packet if syn is None else syn)
        connection.first_order = packet.order
        self.opened.append(connection)
        self.enter(connection, packet.clock)
        return connection

    def enter(self, connection: TcpConnection, clock: int) -> None:
        """Add a connection between endpoints that had none; `clock`: the packet clock at its first packet."""
        index = index_of(connection.endpoints)
        before = self._table.get(index)
        if before is not None:
            self.forgotten.append(before)
        self._table[index] = connection
        self._schedule(connection, index, clock + self._idle)

    # -- the end of silent connections --------------------------------------------------------------------------------

    def _is_over(self, connection: TcpConnection, packet: Packet) -> bool:
        if connection.clock == NO_TIME:
            return False
        return packet.clock - connection.clock >= (self._linger if connection.closed else self._idle)

    def _schedule(self, connection: TcpConnection, index: bytes, deadline: int) -> None:
        connection.deadline = deadline
        # The number keeps entries with the same deadline in order.
        self._scheduled += 1
        heapq.heappush(self._deadlines, (deadline, self._scheduled, index))

    def _forget_soon(self, connection: TcpConnection) -> None:
        deadline = connection.clock + self._linger
        if deadline < connection.deadline:
            self._schedule(connection, index_of(connection.endpoints), deadline)

    def _evict(self, now: int) -> Iterator[TcpConnection]:
        """Close connections whose deadline the packet clock has passed in this batch, at whose end it is `now`."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, index = heapq.heappop(self._deadlines)
            connection = self._table.get(index)
            if connection is None or deadline != connection.deadline:
                continue  # it has ended, or was rescheduled
            wait = self._linger if connection.closed else self._idle
            due = (now if connection.clock == NO_TIME else connection.clock) + wait
            if due > now:
                self._schedule(connection, index, due)
                continue
            del self._table[index]
            self.forgotten.append(connection)
            if not connection.closed:
                self._close_idle(connection)
                yield connection
        if len(self._deadlines) > 2 * len(self._table) + FEW_DEADLINES:
            # Connections that ended long before their first deadline: many short ones would fill the memory.
            self._deadlines = [entry for entry in self._deadlines if self._is_due_then(entry)]
            heapq.heapify(self._deadlines)

    def _is_due_then(self, entry: tuple[int, int, bytes]) -> bool:
        connection = self._table.get(entry[2])
        return connection is not None and connection.deadline == entry[0]

    def _close_idle(self, connection: TcpConnection) -> None:
        """End a silent connection at the first packet of any connection after its deadline."""
        due = connection.clock + self._idle
        assert self._ticks is not None
        orders, clock, end_order = self._ticks
        row = int(np.searchsorted(clock, due))
        order = int(orders[row]) if row < len(orders) else end_order
        connection.close("idle", _farewell(connection, order, due))


def _farewell(connection: TcpConnection, order: int, clock: int) -> Packet:
    """The position at which a connection ends if no packet ends it."""
    return Packet(0, order, connection.last_packet, connection.last_time, clock, 0, 0, 0, 0, 0, 0, 0)


def _clocks_of(batch: PacketBatch, before: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if batch.ticks is None:
        orders, times = batch.order, batch.time_ns if batch.clock is None else batch.clock
    else:
        orders, times = batch.ticks
    return orders, np.maximum.accumulate(np.maximum(times, before))


def packet_clock(batch: PacketBatch, before: int) -> NDArray[np.int64]:
    """The packet clock at each row of a batch; `before`: at the last row of the batch before."""
    orders, clock = _clocks_of(batch, before)
    found: NDArray[np.int64] = clock
    return found if len(orders) == len(batch) else found[np.searchsorted(orders, batch.order)]
