"""The state of an inspector between two batches of packets, which a checkpoint stores, and its memory budget.

Everything else in an inspector is derived from it, belongs to the current batch, or is set again by a resumed run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from kafkasniff.engine.connection_stats import FollowedConnection, MessageOwner, OpenExchange
from kafkasniff.engine.message_table import Keyed
from kafkasniff.kafka.connection.events import Detail, VerdictEvent
from kafkasniff.kafka.messages.message_plan import RECORD_BYTES, body_bytes, has_records, likely_bytes
from kafkasniff.kafka.schema.context import MAX_DECOMPRESSED, MAX_RECORDS, RenderedBody
from kafkasniff.model import NO_TIME, PACKET_SHIFT, Message, Problem, Summary
from kafkasniff.native.streams import Follows
from kafkasniff.packets import End, PacketBatch, end_index, index_of
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY, size_text
from kafkasniff.tls.keylog import KeyLog

# -- memory budget -----------------------------------------------------------------------------------------------------
#
# Each connection has its own bounds, which are part of its behaviour. The budget covers all connections together, for
# input that opens endless connections, or begins something large on each and never ends it. It is far above what real
# traffic needs, every loss is reported as a problem, and nothing else in an inspector depends on other connections.
#
# Memory is estimated by kind of object, with constants that tests/engine/test_inspector_state.py compares with Python's
# allocations: segments after holes, unfinished frames, frames that wait, requests without a response with their bodies,
# connections themselves, and the enricher's knowledge (names, fetch sessions). In this order memory is released:
#
# 1. Above three quarters of the budget further requests are kept without their bodies (`body-let-go`).
# 2. Above the budget connections are ended (`memory-bound`) until three quarters are left: first those that hold most,
#    then those that are over, then those silent for longest.
#
# One message has an additional share of the budget for its decompressed batches and its records (`message_limits`).
# Between two checks the process may exceed the budget by the size of one batch of packets.
#
# Rows wait to be written within a sixteenth of the budget for each table
# (`exports.staging`), and `--write-matching` has the whole budget for its second reading, when the first is over.


DECOMPRESSED_PART: Final = 4
"""The fraction of the budget that one message may decompress to, 256 MiB at most (`MAX_DECOMPRESSED`)."""
RECORD_SHARE: Final = 1024
"""Bytes of the budget for each record, or header of records, that one message may have, 4,000,000 at most."""
MAX_ENDPOINTS: Final = 1 << 16
"""Maximum number of endpoints known to speak Kafka: other connections that are not Kafka are not reported."""
MAX_NAMES: Final = 1 << 16
"""Maximum number of names of addresses from captures (name resolution blocks)."""

FOLLOWED_BYTES: Final = 3_000
"""A connection, without what the engine holds of it."""
OPENED_BYTES: Final = 8_000
"""A connection after its first packet with data."""
MESSAGE_BYTES: Final = 900
"""A decoded message without its body."""
LEAST_HELD: Final = 16 << 10
"""Connections that hold less than this are not ended because of it."""


class Sized(Protocol):
    """Something that takes memory."""

    @property
    def memory(self) -> int:
        """Approximate size in bytes."""


class Beside(Sized, Protocol):
    """State for the same packets outside of the inspector, with its own bounds."""

    def take_loss(self) -> str | None:
        """What its bounds have dropped, in words, the first time only; otherwise None."""


class MemoryBudget:
    """The budget of one process, and its use. `limit`: bytes."""

    __slots__ = ("_followed", "_kept", "_reported", "beside", "limit", "streams")

    def __init__(self, limit: int = DEFAULT_MEMORY) -> None:
        self.limit: int = limit
        self.beside: Beside | None = None
        """Users of the budget besides connections and requests."""
        self.streams: Sized | None = None
        """The stream engine."""
        self._followed: int = 0
        """Connections at the last look."""
        self._kept: int = 0
        """Bytes of requests that are kept until their response arrives."""
        self._reported: bool = False
        """The dropping of bodies was reported."""

    @property
    def used(self) -> int:
        """Bytes in use, with the connections of the last look."""
        others = sum(0 if sized is None else sized.memory for sized in (self.beside, self.streams))
        return self._followed * FOLLOWED_BYTES + self._kept + others

    def take_loss(self) -> str | None:
        """The report on the bounds of side tables (`Beside`), if there is one."""
        return None if self.beside is None else self.beside.take_loss()

    @property
    def is_tight(self) -> bool:
        """Whether connections may be ended soon: lagging parts have to catch up, so that the same ones are chosen."""
        return self.used > self.limit // 2

    @property
    def rows_at_once(self) -> int:
        """Packets between two looks, if each may open a connection: the rest of the budget, or a quarter of it."""
        return max((self.limit - self.used) // OPENED_BYTES, self.limit // 4 // OPENED_BYTES, 1)

    @property
    def bytes_at_once(self) -> int:
        """Payload between two looks: small messages take some 30 times their bytes, about half of the budget."""
        return self.limit // 64

    # -- requests that wait for their responses -----------------------------------------------------------------------

    def keep(self, exchange: OpenExchange, message: Message) -> tuple[Message, Problem | None]:
        """The kept part of a request: without its body if that is too large. The first such loss is a problem."""
        size = message_bytes(message)
        problem = None
        if self.used + size > self.target and size > MESSAGE_BYTES:
            what = f"its body of about {size:,} bytes was not kept until the response came"
            message = msgspec.structs.replace(
                message, body=None, raw=None, frame=None, problems=(*message.problems, Problem("body-let-go", what))
            )
            size = MESSAGE_BYTES
            if not self._reported:
                self._reported = True
                detail = f"three quarters of {size_text(self.limit)} of memory are used (--memory): requests that wait"
                problem = Problem("memory-bound", f"{detail} for responses are kept without their bodies")
        exchange.weight = size
        self._kept += size
        return message, problem

    def release(self, exchange: OpenExchange) -> None:
        """An exchange is over."""
        self._kept -= exchange.weight

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def target(self) -> int:
        """Bytes that are left after connections were ended."""
        return self.limit - self.limit // 4

    def count_connections(self, count: int) -> None:
        """Count this number of connections."""
        self._followed = count

    def recount_exchanges(self, connections: Iterable[dict[int, OpenExchange]]) -> None:
        """Recount the requests that are kept, by connection."""
        self._kept = sum(exchange.weight for exchanges in connections for exchange in exchanges.values())


def message_limits(memory: int) -> tuple[int, int]:
    """Limits of one message in a run with a budget of `memory` bytes: decompressed bytes, and records or headers.

    Decoded records take some 400 bytes each, without keys and values; those with headers up to twice as much. Both
    bounds apply to the whole run, whatever the number of its processes and their other state.
    """
    return min(MAX_DECOMPRESSED, memory // DECOMPRESSED_PART), min(MAX_RECORDS, memory // RECORD_SHARE)


def message_bytes(message: Message) -> int:
    """Size of a decoded message by traversing its body; records count by their number and bytes on the wire."""
    body: Any = message.body
    itself = MESSAGE_BYTES + (0 if message.frame is None else len(message.frame))
    if body is None:
        return itself + (0 if message.raw is None else len(message.raw))
    if body.__class__ is RenderedBody or has_records(message.api_key, message.type):
        return itself + RECORD_BYTES + likely_bytes(message.api_key, message.type, message.size, body)
    return itself + body_bytes(body)


# -- state -------------------------------------------------------------------------------------------------------------
#
# Everything else in an inspector is derived from it, belongs to the current batch, or is set again by a resumed run.


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
