"""Feeding: packets to the events of their connections, which the inspector emits in order (`ordered_events`)."""

from __future__ import annotations

from collections.abc import Iterator

from kafkasniff.engine.connection_stats import ConnectionEnd, InspectedConnection
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.memory_budget import MemoryBudget
from kafkasniff.engine.ordered_events import Collected, Keyed
from kafkasniff.engine.paired import PairColumns, PairFinder
from kafkasniff.model import Problem
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.tcp.reassembly import Delta
from kafkasniff.tcp.segments import Closed, Item

__all__ = ["Feeder"]


class Feeder:
    """Passes packets through the stages of their connections, in Python, and collects the events."""

    is_native = False
    """The kernel finds no messages."""

    def __init__(self, state: InspectorState, memory: MemoryBudget) -> None:
        self._state = state
        self._memory = memory

    def parts(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """A batch in parts that fit into the memory budget."""
        return batch.parts(self._bounds())

    def _bounds(self) -> Iterator[tuple[int, int]]:
        while True:
            yield self._memory.rows_at_once, self._memory.bytes_at_once

    def collect(
        self, batch: PacketBatch, columns: list[PairColumns] | None = None, finder: PairFinder | None = None
    ) -> Collected:
        """The results of the next packets. Only the stream engine finds exchanges for `columns`."""
        del columns, finder
        state = self._state
        state.use_captures(batch)
        state.detail.ahead = 0
        state.summary.packets += batch.packets
        state.summary.tcp_packets += len(batch)
        deltas = state.reassembler.feed(batch)
        self._number_connections()
        keyed: list[Keyed] = []
        for name in state.take_notes(batch, keyed):
            state.add_name(*name)
        self._take(deltas, keyed)
        for tcp in state.reassembler.forgotten:
            self._forget(tcp)
        if (lost := self._memory.take_loss()) is not None:
            keyed.append((batch.end_order, -1, -3, None, Problem("memory-bound", lost)))
        self._relieve(batch, keyed)
        return Collected(keyed)

    def _number_connections(self) -> None:
        """Number the connections of a batch."""
        state = self._state
        opened = state.reassembler.opened
        for connection in opened:
            state.own(connection)
        opened.sort(key=lambda connection: connection.first_order)
        for connection in opened:
            owner = connection.owner
            assert isinstance(owner, InspectedConnection)
            state.connections += 1
            owner.number = owner.place = state.connections
        state.summary.connections += len(opened)

    def close_each(self) -> Iterator[Collected]:
        """End the capture; the results for what was still open, one connection after the other."""
        reassembler = self._state.reassembler
        for delta in reassembler.close_each(sorted(reassembler, key=_place)):
            keyed: list[Keyed] = []
            self._take([delta], keyed)
            self._forget(delta[0])
            del delta
            yield Collected(keyed)

    def close(self) -> Collected:
        """End the capture; the results for what was still open."""
        keyed: list[Keyed] = []
        deltas = self._state.reassembler.close()
        self._take(deltas, keyed)
        for tcp, _ in deltas:
            self._forget(tcp)
        return Collected(keyed)

    def settle(self) -> Collected:
        """Nothing waits here."""
        return Collected([])

    def _relieve(self, batch: PacketBatch, keyed: list[Keyed]) -> None:
        """End connections if all of them together use too much memory."""
        budget, reassembler = self._memory, self._state.reassembler
        for tcp in reassembler.holding:
            assert isinstance(tcp.owner, InspectedConnection)
            budget.note(tcp.owner, tcp)
        dropped, detail = budget.choose(reassembler)
        if dropped:
            detail += " were treated as ended; their later packets begin in mid-stream"
            keyed.append((batch.end_order, -1, -2, None, Problem("memory-bound", detail)))
            self._take(reassembler.let_go(dropped), keyed)
            for tcp in dropped:
                self._forget(tcp)
            budget.choose(reassembler)

    def _forget(self, tcp: TcpConnection) -> None:
        assert isinstance(tcp.owner, InspectedConnection)
        self._memory.forget(tcp.owner)

    def _take(self, deltas: list[Delta], keyed: list[Keyed]) -> None:
        """Pass the streams of connections through their Kafka stages; `keyed`: receives the events."""
        state, memory = self._state, self._memory
        summary, ports = state.summary, state.ports
        for tcp, items in deltas:
            connection = tcp.owner
            assert isinstance(connection, InspectedConnection)
            if ports and not connection.forced:
                memory.note(connection, tcp)
                continue
            if tcp.unreported_repeated or tcp.unreported_ignored:
                summary.bytes_repeated += tcp.unreported_repeated
                summary.bytes_ignored += tcp.unreported_ignored
                tcp.unreported_repeated = tcp.unreported_ignored = 0
            if connection.waits(items):
                memory.note(connection, tcp)
                continue
            kafka = connection.kafka
            seen, decoded, lost = kafka.bytes_seen, kafka.bytes_decoded, kafka.bytes_lost
            events = kafka.feed(items if connection.tls is None else self._without_tls(connection, items))
            summary.bytes_stream += kafka.bytes_seen - seen + kafka.bytes_lost - lost
            summary.bytes_decoded += kafka.bytes_decoded - decoded
            summary.bytes_lost += kafka.bytes_lost - lost
            # What the peer sent after a RST may be reported after the end.
            last = next((item for item in reversed(items) if isinstance(item, Closed)), None) if tcp.closed else None
            if kafka.verdict == "undecided" and kafka.bytes_seen and last is not None:
                summary.undecided += 1
            place = connection.place
            keyed.extend((event.order, place, index, connection, event) for index, event in enumerate(events))
            memory.note(connection, tcp)
            if last is not None:
                summary.bytes_pending += sum(kafka.pending_of)
                if connection.account is not None and (kafka.bytes_seen or kafka.bytes_lost):
                    keyed.append((last.order, place, len(events), connection, ConnectionEnd(tcp, last)))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded

    def _without_tls(self, connection: InspectedConnection, items: list[Item]) -> list[Item]:
        """`items` without those of a connection that is TLS, or whose first bytes are still missing."""
        gate = connection.tls
        assert gate is not None
        clear = gate.feed(items, self._state.keys, wanted=connection.kafka.verdict != "not-kafka")
        if gate.plain:
            connection.tls = None
        return clear


def _place(tcp: TcpConnection) -> int:
    assert isinstance(tcp.owner, InspectedConnection)
    return tcp.owner.place
