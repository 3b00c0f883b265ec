"""Feeding: packets to the events of their connections, which the inspector emits in order (`message_table`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkasniff.engine.connection_stats import FollowedConnection, OpenExchange
from kafkasniff.engine.inspector_state import InspectorState, MemoryBudget
from kafkasniff.engine.message_table import Collected, Keyed, begins_exchange
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.native.streams import Links
from kafkasniff.packets import PacketBatch
from kafkasniff.tls.items import Closed, Item
from tests.oracle.connection import OracleConnection
from tests.oracle.kafka.recognition import ConnectionOptions
from tests.oracle.tcp.reassembly import Delta, Reassembler


class OracleFeeder:
    """Passes packets through the stages of their connections, and collects the events."""

    clocks, waiting = (NO_TIME, NO_TIME, 0), 0
    """What exports note of their state, which cannot be continued here."""

    def __init__(self, state: InspectorState, memory: MemoryBudget, options: ConnectionOptions) -> None:
        self._state = state
        self._memory = memory
        self._options = options
        self.reassembler = Reassembler()

    def parts(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """The batch."""
        yield batch

    def collect(self, batch: PacketBatch, *_: Any) -> Collected:
        """The results of the next packets."""
        state = self._state
        state.use_captures(batch)
        state.summary.packets += batch.packets
        state.summary.tcp_packets += len(batch)
        deltas = self.reassembler.feed(batch)
        self._number_connections()
        keyed: list[Keyed] = []
        state.take_notes(batch, keyed)
        self._take(deltas, keyed)
        if (lost := self._memory.take_loss()) is not None:
            keyed.append((batch.end_order, -1, -3, None, Problem("memory-bound", lost)))
        return self._numbered(keyed)

    def _numbered(self, keyed: list[Keyed]) -> Collected:
        """Events in order; those that begin an exchange give it a number."""
        keyed.sort()
        for _, _, _, connection, event in keyed:
            if begins_exchange(event) and event.ordinal not in connection.exchanges:
                self._state.exchanges += 1
                connection.exchanges[event.ordinal] = OpenExchange(self._state.exchanges)
        return Collected(keyed, stops=[0] * len(keyed))

    def _number_connections(self) -> None:
        """Number the connections of a batch."""
        state = self._state
        for tcp in sorted(self.reassembler.opened, key=lambda one: one.first_order):
            state.connections += 1
            counts = state.want_connections
            tcp.owner = OracleConnection(state.connections, tcp, self._options, state.ports, counts=counts)
            state.summary.connections += 1

    def close_each(self) -> Iterator[Collected]:
        """End the capture; the results for what was still open, one connection after the other."""
        for delta in self.reassembler.close_each(sorted(self.reassembler, key=lambda tcp: _owner(tcp.owner).place)):
            keyed: list[Keyed] = []
            self._take([delta], keyed)
            yield self._numbered(keyed)

    def close(self) -> Collected:
        """End the capture; the results for what was still open."""
        keyed: list[Keyed] = []
        self._take(self.reassembler.close(), keyed)
        return self._numbered(keyed)

    def take_links(self) -> Links:
        """None: only the kernel follows the network (`tests/oracle/timing`)."""
        return Links.none()

    def saved(self) -> list[FollowedConnection]:
        """Its connections cannot be continued."""
        return []

    def _take(self, deltas: list[Delta], keyed: list[Keyed]) -> None:
        """Pass the streams of connections through their Kafka stages; `keyed`: receives the events."""
        summary, ports = self._state.summary, self._state.ports
        for tcp, items in deltas:
            connection = _owner(tcp.owner)
            if ports and not connection.forced:
                continue
            if tcp.unreported_repeated or tcp.unreported_ignored:
                summary.bytes_repeated += tcp.unreported_repeated
                summary.bytes_ignored += tcp.unreported_ignored
                tcp.unreported_repeated = tcp.unreported_ignored = 0
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
            if last is not None:
                summary.bytes_pending += sum(kafka.both("pending"))
                if connection.account is not None and (kafka.bytes_seen or kafka.bytes_lost):
                    keyed.append((last.order, place, len(events), connection, connection.end(last)))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded

    def _without_tls(self, connection: OracleConnection, items: list[Item]) -> list[Item]:
        """`items` without those of a connection that is TLS, or whose first bytes are still missing."""
        gate = connection.tls
        assert gate is not None
        wanted = connection.kafka.verdict != "not-kafka"
        clear = [one for item in items for one in gate.feed(item, self._state.keys, wanted=wanted)]
        if gate.plain:
            connection.tls = None
        return clear


def _owner(owner: object) -> OracleConnection:
    assert isinstance(owner, OracleConnection)
    return owner
