"""The state of an inspector between two batches of packets: what a checkpoint stores (`tables/checkpoint/layouts.py`).

Everything else in an inspector is derived from it, belongs to the current batch, or is set again by a resumed run.
"""

from __future__ import annotations

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.followed import FollowedConnection
from kafkasniff.engine.memory_budget import MAX_ENDPOINTS, MAX_NAMES
from kafkasniff.engine.message_table import Keyed
from kafkasniff.kafka.connection.events import Detail, VerdictEvent
from kafkasniff.model import NO_TIME, PACKET_SHIFT, Problem, Summary
from kafkasniff.native.links import Follows
from kafkasniff.packets import End, PacketBatch, end_index, index_of
from kafkasniff.tls.keylog import KeyLog


class InspectorState:
    """Options, connections, counters and names. Loading a checkpoint replaces all attributes.

    - `ports`: treat these ports as Kafka, and no others; empty: detect Kafka by content on any port
    - `want_exchanges`, `want_connections`: emit `Exchange` and `Connection` objects
    - `follows`: what is noted of the network of connections
    """

    def __init__(
        self,
        detail: Detail,
        *,
        max_frame: int,
        ports: frozenset[int],
        show_secrets: bool,
        want_exchanges: bool,
        want_connections: bool,
        keys: KeyLog,
        follows: Follows = Follows.NOTHING,
    ) -> None:
        self.ports = ports
        self.follows = follows
        self.show_secrets = show_secrets
        self.detail = detail
        self.max_frame = max_frame
        self.want_exchanges = want_exchanges
        self.want_connections = want_connections
        self.followed: list[FollowedConnection] = []
        """Connections of a loaded state that the stream engine will follow."""
        self.clocks = (NO_TIME, NO_TIME, 0)
        """The clocks of the stream engine in a loaded state (`StreamEngine.clocks`)."""
        self.connections = 0
        """The highest number of a connection."""
        self.exchanges = 0
        """The highest number of an exchange."""
        self.captures: tuple[str, ...] = ()
        self.only_capture: str | None = None
        """The capture's name, if there was only one so far."""
        self.known_brokers: set[bytes] = set()
        """Endpoints that speak Kafka (`plan.end_index`)."""
        self.summary = Summary()
        self.names: dict[str, str] = {}
        """Address → name, from the captures' name records."""
        self.keys = keys
        """Secrets that decrypt TLS. Those of a file are not stored: a resumed run names the file again."""
        self.judged: set[bytes] | None = None
        """Connections recognized as Kafka (`plan.index_of`), until the reader clears it; None if there is no reader."""

    # -- captures -----------------------------------------------------------------------------------------------------

    def use_captures(self, batch: PacketBatch) -> None:
        """Use the captures' names that come with a batch from now on."""
        if batch.captures:
            self.captures = batch.captures
            self.only_capture = batch.captures[0] if len(batch.captures) == 1 else None

    def capture_of(self, packet: int) -> str | None:
        """The name of a packet's capture."""
        return self.capture_at(packet >> PACKET_SHIFT)

    def capture_at(self, index: int) -> str | None:
        """The name of a capture by its index."""
        return self.captures[index] if index < len(self.captures) else None

    def add_name(self, address: str, name: str) -> None:
        """Note the name of an address, within the bound."""
        if len(self.names) < MAX_NAMES:
            self.names[address] = name

    # -- connections --------------------------------------------------------------------------------------------------

    def note_kafka(self, connection: MessageOwner, event: VerdictEvent) -> None:
        """A connection was recognized as Kafka."""
        assert event.client is not None
        connection.assign(event.client)
        if connection.account is not None:
            connection.account.verdict = event
        if self.judged is not None:
            self.judged.add(index_of(connection.endpoints))
        self.summary.kafka_connections += 1

    def note_broker(self, broker: End) -> None:
        """An endpoint speaks Kafka."""
        if len(self.known_brokers) < MAX_ENDPOINTS:
            self.known_brokers.add(end_index(broker))

    # -- numbers ------------------------------------------------------------------------------------------------------

    def take_notes(self, batch: PacketBatch, keyed: list[Keyed]) -> None:
        """Take the notes of a batch. Secrets precede its packets; problems and names are in order with them."""
        # Before notes, whose lines are reported separately: a batch may end between the two.
        self._report_key_log(batch.end_order - batch.packets, -1, keyed)
        for index, note in enumerate(batch.notes):
            if isinstance(note.value, Problem | tuple):
                keyed.append((note.order, -1, index, None, note.value))
            elif isinstance(note.value, bytes):
                self.keys.add_captured(note.value, note.order)
                self._report_key_log(note.order, index, keyed)

    def _report_key_log(self, order: int, index: int, keyed: list[Keyed]) -> None:
        """Report the problems of a key log's lines."""
        flaws = self.keys.take_flaws()
        if flaws:
            keyed.append((order, -1, index, None, Problem("tls-key-log", "; ".join(flaws))))
