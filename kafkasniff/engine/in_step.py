"""Connections in step: requests and their responses in turn and nothing else, which the native kernel processes.

Python reassembles and pairs (`tcp/`, `kafka/connection/connection.py`), and hands a connection over when its packets
only have to be cut into frames and paired (`InStep.adopt`). At the packet at which anything else happens, Python gets
the connection back in the state that it would have reached itself. How messages are decoded is decided later, one by
one.

Requests that are answered in a later batch of packets, and responses to requests of an earlier one, become events as in
Python (`edges`), so that the state of an open exchange is always in one place. If exchanges become lines or columns,
they wait as columns (`plain_edges`, `whole`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import InspectedConnection, forced_client
from kafkasniff.engine.edge_messages import EdgeMessages
from kafkasniff.engine.handover import Handover
from kafkasniff.engine.in_step_messages import Edges, Entry, Messages, kind_of
from kafkasniff.engine.kernel_connections import KernelConnections
from kafkasniff.engine.outstanding import OutstandingRequests
from kafkasniff.kafka.apis.weight import REQUEST_BYTES
from kafkasniff.kafka.connection.events import VerdictEvent
from kafkasniff.kafka.connection.opening import GREETING
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.messages.plausibility import begins_with_request
from kafkasniff.native.feed import JUDGED, NONE, VERSIONS
from kafkasniff.native.feed_calls import Fed, Feed
from kafkasniff.native.library import Kernel
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN, PacketBatch
from kafkasniff.tcp.plan import Key, endpoints_of
from kafkasniff.tcp.segments import NO_TIME, PACKET_SHIFT
from kafkasniff.tcp.stream import Packet

__all__ = ["Begins", "InStep"]


MAX_OPENING: Final = 1 << 14
"""Connections without data in the kernel, where each takes nearly a kilobyte; of a scan, the rest stays in Python."""


class Begins(msgspec.Struct, frozen=True):
    """SYNs of a batch without a known connection, by row."""

    rows: NDArray[np.uint32]
    """Rising."""
    keys: dict[int, Key]


class InStep:
    """Connections in the kernel. `idle`: nanoseconds of silence after which a connection is over."""

    def __init__(self, kernel: Kernel, options: ConnectionOptions, *, idle: int) -> None:
        judge, every_end = begins_with_request, options.every_end
        feed = Feed(kernel, kind_of, judge, idle=idle, max_frame=options.max_frame, every_end=every_end)
        self._kernel = KernelConnections(feed)
        self._edges = EdgeMessages(self._kernel, options)
        self._handover = Handover(self._kernel, self._edges)
        self._kept = 0
        """Bytes of unfinished frames, of segments after a gap, and of early responses."""

    def __len__(self) -> int:
        """Number of connections in step."""
        return self._kernel.here

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of the requests and unfinished frames of all connections in step."""
        kernel = self._kernel
        requests = len(kernel.waiting) * REQUEST_BYTES + kernel.outstanding.memory + kernel.begun.memory
        return requests + self._kept

    @property
    def outstanding(self) -> OutstandingRequests:
        """Outstanding requests that are columns."""
        return self._kernel.outstanding

    def decide_by(self, pin: Callable[[int, bool], None]) -> None:
        """Pass a filter's decision on exchanges that Python reads from now on to `pin`."""
        self._kernel.pin = pin

    # -- packets ------------------------------------------------------------------------------------------------------

    def feed(self, batch: PacketBatch, clock: NDArray[np.int64], begins: Begins | None = None) -> Fed:
        """Pass packets of connections in step to the kernel; `clock`: the packet clock at each row.

        Connections that fall out of step are in the state before their first row that was not processed. Only the
        kernel's memory changes, so another thread may call this; `enter` has to follow.
        """
        return (
            self._kernel.feed.feed(batch, clock)
            if begins is None
            else self._kernel.feed.feed(batch, clock, begins.rows)
        )

    def enter(
        self, batch: PacketBatch, clock: NDArray[np.int64], begins: Begins | None, fed: Fed
    ) -> list[TcpConnection]:
        """Register and return the connections that began in the kernel. Their owners are set by `own`."""
        self._kept = fed.kept
        if begins is None:
            return []
        return [self._begun(batch, int(clock[row]), index, row, begins.keys[row]) for index, row in fed.begun]

    def messages(self, batch: PacketBatch, fed: Fed) -> Messages:
        """The messages of a batch; all connections have their owners.

        Handshake messages become individual events.
        """
        rows = fed.messages
        rows["pair"][rows["code"] // VERSIONS == GREETING] = NONE
        return Messages(rows, batch.buffer, fed.arena, self._kernel.owners.copy())

    def begins(self, batch: PacketBatch, known: Callable[[Key], object], ports: Container[int]) -> Begins | None:
        """The SYNs of a batch with which connections may begin in the kernel.

        `known`: returns whether there is a connection between these endpoints; `ports`: Kafka's ports; empty: any port
        may be.
        """
        rows = np.flatnonzero(batch.flags & (SYN | ACK | FIN | RST) == SYN)
        if not len(rows):
            return None
        rows = rows[(batch.wire_length[rows] == 0) & (batch.time_ns[rows] != NO_TIME)]
        rows = rows[: max(MAX_OPENING - self._kernel.opening, 0)]
        found = {
            row: key
            for row, key, is_higher in zip(rows.tolist(), *endpoints_of(batch, rows), strict=True)
            if not known(key) and (not ports or forced_client(key, ports) == is_higher)
        }
        return Begins(np.array(list(found), np.uint32), found) if found else None

    def _begun(self, batch: PacketBatch, clock: int, index: int, row: int, key: Key) -> TcpConnection:
        """A connection that began in the kernel; its current state is in the kernel only."""
        packet = int(batch.capture[row]) << PACKET_SHIFT | int(batch.number[row])
        order, time_ns = int(batch.order[row]), int(batch.time_ns[row])
        tcp = TcpConnection(key, Packet(0, order, packet, time_ns, clock, 0, 0, SYN, 0, 0, 0, 0))
        tcp.place = index
        self._kernel.enter(tcp)
        self._kernel.here += 1
        self._kernel.opening += 1
        return tcp

    def judged(self, batch: PacketBatch, fed: Fed) -> Iterator[tuple[InspectedConnection, VerdictEvent]]:
        """The connections recognized as Kafka at a packet of the batch, in order, and when they were recognized."""
        for index, row in fed.judged:
            if self._kernel.feed.connections["begun"][index] != JUDGED:
                continue  # The kernel did not process its packet after all.
            owner, client = self._kernel.owners[index], int(self._kernel.feed.connections["client"][index])
            assert owner is not None
            self._kernel.opening -= 1
            owner.kafka.begin_in_step(client)
            owner.tls = None
            packet = int(batch.capture[row]) << PACKET_SHIFT | int(batch.number[row])
            yield owner, VerdictEvent(int(batch.order[row]), True, client, "", int(batch.time_ns[row]), packet)

    def own(self, tcp: TcpConnection) -> None:
        """Register the owner of a connection."""
        self._kernel.own(tcp)

    def edges(self, messages: Messages, without: NDArray[np.bool_] | None = None) -> Iterator[Entry]:
        """See `EdgeMessages.edges`."""
        return self._edges.edges(messages, without)

    def plain_edges(self, messages: Messages, selected: NDArray[np.uint8] | None = None) -> tuple[Messages, Edges]:
        """See `EdgeMessages.plain_edges`."""
        return self._edges.plain_edges(messages, selected)

    def whole(self, messages: Messages, takes: Callable[[int], bool]) -> tuple[Messages, NDArray[np.bool_]]:
        """See `EdgeMessages.whole`."""
        return self._edges.whole(messages, takes)

    def count_hidden_pairs(self, messages: Messages) -> None:
        """Count the messages of whole exchanges that are not shown."""
        self._edges.count_hidden_pairs(messages)

    def late(self) -> list[Entry]:
        """Events of requests that waited as columns and whose connections were taken back since (`whole`)."""
        late, self._kernel.late = self._kernel.late, []
        return late

    # -- connections --------------------------------------------------------------------------------------------------

    def adopt(self, tcp: TcpConnection) -> bool:
        """Hand a connection to the kernel if it is in step. Hot: called once for each connection and batch."""
        return self._handover.adopt(tcp)

    def take_back(self, fallen: list[int]) -> list[TcpConnection]:
        """Take the connections that fell out of step back, by their indices."""
        return [self._handover.take_back(index) for index in fallen]

    def clock(self, tcp: TcpConnection) -> int:
        """The packet clock at the last packet of a connection."""
        row = self._kernel.feed.connections[tcp.place]
        return int(row["clock"]) if row["here"] else tcp.clock

    def recall(self, tcp: TcpConnection) -> None:
        """Take a connection back between two batches, if it is in the kernel."""
        if tcp.place >= 0 and self._kernel.feed.connections["here"][tcp.place]:
            self._kernel.feed.connections["here"][tcp.place] = 0
            self._handover.take_back(tcp.place)

    def recall_all(self) -> list[TcpConnection]:
        """Take all connections back and return them."""
        here = np.flatnonzero(self._kernel.feed.connections["here"]).tolist() if self._kernel.here else []
        self._kernel.feed.connections["here"] = 0
        return [self._handover.take_back(index) for index in here]

    def forget(self, tcp: TcpConnection) -> int:
        """Forget a connection; returns its index, which may be reused from now on, or -1."""
        place = tcp.place
        if place >= 0:
            self.recall(tcp)
            self._kernel.feed.remove(place)
            self._kernel.connections[place] = self._kernel.owners[place] = None
            tcp.place = -1
        return place
