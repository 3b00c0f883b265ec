"""The connections that the kernel has, and their outstanding requests."""

from __future__ import annotations

from collections.abc import Callable

from kafkasniff.engine.connection_stats import InspectedConnection
from kafkasniff.engine.in_step_messages import Entry
from kafkasniff.engine.outstanding import BegunRequests, OutstandingRequests
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.native.feed_calls import Feed
from kafkasniff.tcp.connection import TcpConnection

__all__ = ["KernelConnections"]


class KernelConnections:
    """What the parts of `in_step.InStep` share."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        """The kernel's memory."""
        self.connections: list[TcpConnection | None] = []
        """By index."""
        self.owners: list[InspectedConnection | None] = []
        """By index."""
        self.here = 0
        """Number of connections in step."""
        self.opening = 0
        """Number of those that began here and have no data yet."""
        self.waiting: dict[tuple[int, int], Pending] = {}
        """Requests of earlier batches without a response, by connection index and ordinal: those that were events, or
        that were handed over with the connection."""
        self.outstanding = OutstandingRequests()
        """The other outstanding requests: those with lines, and whole messages if exchanges become columns."""
        self.begun = BegunRequests()
        """Requests that wait as columns with their bodies (`edge_messages.EdgeMessages.whole`)."""
        self.late: list[Entry] = []
        """Events of such requests whose connections were taken back."""
        self.pin: Callable[[int, bool], None] | None = None
        """Receives the filter's decision on exchanges that Python reads from now on; None without a filter."""

    def enter(self, tcp: TcpConnection) -> None:
        """Register a connection by its index."""
        index = tcp.place
        self.connections += [None] * (index + 1 - len(self.connections))
        self.owners += [None] * (index + 1 - len(self.owners))
        self.connections[index] = tcp
        if tcp.owner is not None:
            self.own(tcp)

    def own(self, tcp: TcpConnection) -> None:
        """Register the owner of a connection."""
        assert isinstance(tcp.owner, InspectedConnection)
        self.owners[tcp.place] = tcp.owner
