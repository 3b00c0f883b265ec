"""Reassembly, packet by packet: which connection each packet belongs to, and when connections are over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.model import NO_TIME, PACKET_SHIFT
from kafkasniff.packets import Key, PacketBatch, endpoints_of, index_of
from kafkasniff.tls.items import Item
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.stream import Packet

IDLE_NS: Final = 3_600_000_000_000
"""A connection silent for an hour of packet time is over; brokers close idle ones after ten minutes by default."""
LINGER_NS: Final = 60_000_000_000
"""A closed connection is remembered for a minute (TIME_WAIT), so that late copies of its packets open no new one."""

_Ticks = tuple[NDArray[np.int64], NDArray[np.int64], int]
"""Order and packet clock of each row of a batch, of all connections, and the batch's `end_order`."""

Delta = tuple[TcpConnection, list[Item]]
"""Items of one connection in one batch."""


class Reassembler:
    """All TCP connections of a run: packet batches in, items of connections out.

    `feed` and `close` return what the connections yielded, one pair for each connection that yielded anything; the
    items of one connection are in capture order, the pairs are in no particular one.
    """

    def __init__(self) -> None:
        self._table: dict[bytes, TcpConnection] = {}
        """By the index of the endpoints."""
        self._clock = NO_TIME
        self._end_order = 0
        self._end_clock = NO_TIME
        self._ticks: _Ticks | None = None
        """Set while a batch is fed; not part of the state between batches."""
        self.opened: list[TcpConnection] = []
        """Connections opened by the last `feed`, in no particular order."""

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
        orders, clock = _clocks_of(batch, self._clock)
        if not len(orders):
            return []
        self._ticks = (orders, clock, batch.end_order)
        seen: dict[int, TcpConnection] = {}
        for key, packet in _packets_of(batch, clock[np.searchsorted(orders, batch.order)]):
            seen.update((id(connection), connection) for connection in self._take(key, packet, batch.buffer))
        seen.update((id(connection), connection) for connection in self._evict(int(clock[-1])))
        self._clock = int(clock[-1])
        deltas = []
        for connection in seen.values():
            if connection.items:
                deltas.append((connection, connection.items))
                connection.items = []
            connection.buffer = b""
        self._ticks = None
        return deltas

    def close(self) -> list[Delta]:
        """End of the capture: all connections end; long silent ones ended before."""
        return list(self.close_each(list(self)))

    def close_each(self, connections: Sequence[TcpConnection]) -> Iterator[Delta]:
        """`close`, one connection after the other: the items of each are released before the next one ends."""
        now = max(self._clock, self._end_clock)
        for connection in connections:
            if not connection.closed:
                silent = connection.clock != NO_TIME and now - connection.clock >= IDLE_NS
                connection.close("idle" if silent else "end", _farewell(connection, self._end_order, now))
                items, connection.items = connection.items, []
                yield connection, items
                del items
        self._table.clear()
        self.opened = []

    # -- one packet -------------------------------------------------------------------------------------------------

    def _take(self, key: Key, packet: Packet, buffer: bytes) -> Iterator[TcpConnection]:
        """Handle a packet; yields the connections that it ends, begins or continues."""
        connection = self._table.get(index_of(key))
        if connection is None or _is_over(connection, packet):
            if connection is not None:
                if not connection.closed:
                    self._close_idle(connection)
                yield connection
            connection = self._open(key, packet)
        connection.buffer = buffer
        if connection.handle(packet) == "reuse":
            syn = connection.pending_syn
            yield connection
            connection = self._open(key, packet, syn)
            connection.buffer = buffer
            if syn is not None:
                connection.handle(syn)
            connection.handle(packet)
        connection.clock = packet.clock
        yield connection

    def _open(self, key: Key, packet: Packet, syn: Packet | None = None) -> TcpConnection:
        """A connection that starts at `packet`; `syn` is its SYN, if that came before."""
        connection = TcpConnection(key, packet if syn is None else syn)
        connection.first_order = packet.order
        self.opened.append(connection)
        self._table[index_of(key)] = connection
        return connection

    # -- the end of silent connections --------------------------------------------------------------------------------

    def _evict(self, now: int) -> Iterator[TcpConnection]:
        """Forget connections that were silent for too long when a batch ends, where the packet clock is `now`."""
        for index, connection in list(self._table.items()):
            if connection.clock != NO_TIME and connection.clock + _remembered_for(connection) <= now:
                del self._table[index]
                if not connection.closed:
                    self._close_idle(connection)
                    yield connection

    def _close_idle(self, connection: TcpConnection) -> None:
        """End a silent connection at the first packet of any connection after its deadline."""
        due = connection.clock + IDLE_NS
        assert self._ticks is not None
        orders, clock, end_order = self._ticks
        row = int(np.searchsorted(clock, due))
        order = int(orders[row]) if row < len(orders) else end_order
        connection.close("idle", _farewell(connection, order, due))


def _remembered_for(connection: TcpConnection) -> int:
    """How long a connection is remembered after its last packet."""
    return LINGER_NS if connection.closed else IDLE_NS


def _is_over(connection: TcpConnection, packet: Packet) -> bool:
    return connection.clock != NO_TIME and packet.clock - connection.clock >= _remembered_for(connection)


def _packets_of(batch: PacketBatch, clock: NDArray[np.int64]) -> Iterator[tuple[Key, Packet]]:
    """The packets of a batch with their connections' keys; `clock`: the packet clock at each."""
    keys, higher = endpoints_of(batch, np.arange(len(batch)))
    columns: list[list[Any]] = [
        list(map(int, higher)),
        batch.order.tolist(),
        ((batch.capture.astype(np.int64) << PACKET_SHIFT) | batch.number).tolist(),
        batch.time_ns.tolist(),
        clock.tolist(),
        batch.seq.tolist(),
        batch.ack.tolist(),
        batch.flags.tolist(),
        batch.offset.tolist(),
        batch.length.tolist(),
        batch.wire_length.tolist(),
        batch.ident.tolist(),
    ]
    return zip(keys, map(Packet._make, zip(*columns, strict=True)), strict=True)


def _farewell(connection: TcpConnection, order: int, clock: int) -> Packet:
    """The position at which a connection ends if no packet ends it."""
    return Packet(0, order, connection.last_packet, connection.last_time, clock, 0, 0, 0, 0, 0, 0, 0)


def _clocks_of(batch: PacketBatch, before: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Orders of packets at which connections may end, and the packet clock at each; `before`: at the last batch's."""
    if batch.ticks is None:
        orders, times = batch.order, batch.time_ns if batch.clock is None else batch.clock
    else:
        orders, times = batch.ticks
    return orders, np.maximum.accumulate(np.maximum(times, before))
