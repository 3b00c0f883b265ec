"""One budget for the memory of a process: what is kept between two batches of packets, in what it really takes.

Each connection has bounds of its own, which are part of what it yields. The budget is of all connections together, for
input that opens connections without end, or begins something large on each and never ends it. It is far above what
real traffic needs, every loss is reported as a problem, and nothing else in an inspector depends on other connections.

What is counted is an estimate by kind of object, whose constants tests/test_memory_limits.py compares with what Python
allocates: segments behind holes, unfinished frames, frames that wait, requests without a response with their bodies,
connections themselves, and what the enricher knows beside them (names, fetch sessions). Who goes first:

1. Above three quarters of the budget further requests are kept without their bodies (`body-let-go`).
2. Above the budget connections are ended (`memory-bound`) until three quarters are left: first those that hold most,
   then those that are over, then those silent for longest.

One message has a part of the budget besides, for what its batches decompress to and for its records
(`message_limits`). Between two looks the process may exceed the budget by what one batch of packets adds.

Caches beside the inspector (fetch sessions, names, links of `timing`) have bounds by number, which hold for a budget of
1 GiB or more and are smaller in proportion below it (`in_proportion`). Their oldest entries go, never connections of
the inspector. Rows wait to be written within a sixteenth of the budget for each table (`exports.stager`), and
`--write-matching` has the whole budget for its second reading, when the first is over.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, Protocol

import msgspec

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.errors import UsageError
from kafkasniff.kafka.context import MAX_DECOMPRESSED, MAX_RECORDS
from kafkasniff.kafka.weight import RECORD_BYTES, body_bytes, has_records, likely_bytes
from kafkasniff.model import Message, Problem, RenderedBody
from kafkasniff.tcp import Reassembler, TcpConnection

__all__ = [
    "CONNECTION_BYTES",
    "DECOMPRESSED_PART",
    "DEFAULT_MEMORY",
    "MAX_ENDPOINTS",
    "MAX_NAMES",
    "MIN_MEMORY",
    "RECORD_SHARE",
    "Beside",
    "MemoryBudget",
    "checked_memory",
    "in_proportion",
    "message_bytes",
    "message_limits",
]

DEFAULT_MEMORY: Final = 1 << 30
"""The budget of a process, in bytes (`--memory`)."""
MIN_MEMORY: Final = 128 << 20
"""The smallest budget: less would let go of what ordinary traffic needs."""
DECOMPRESSED_PART: Final = 4
"""The part of the budget that one message may decompress to, 256 MiB at most (`MAX_DECOMPRESSED`)."""
RECORD_SHARE: Final = 1024
"""Bytes of the budget for each record, or header of records, that one message may have, 4,000,000 at most."""
MAX_ENDPOINTS: Final = 1 << 16
"""Endpoints that are known to speak Kafka: of connections to others nothing is reported where they turn out not to."""
MAX_NAMES: Final = 1 << 16
"""Names of addresses that captures tell (name resolution blocks)."""

CONNECTION_BYTES: Final = 8_000
"""A connection that holds nothing, or that ended within the last minute."""
SEGMENT_BYTES: Final = 320
"""A segment behind a hole, without its bytes."""
MESSAGE_BYTES: Final = 900
"""A decoded message without its body."""
LEAST_HELD: Final = 16 << 10
"""Connections that hold less than this are not ended for what they hold."""


class Sized(Protocol):
    """What takes memory."""

    @property
    def memory(self) -> int:
        """Bytes that it takes now, about."""


class Beside(Protocol):
    """What is kept for the same packets outside of the inspector, with bounds of its own."""

    @property
    def memory(self) -> int:
        """Bytes that it takes now, about."""

    def take_loss(self) -> str | None:
        """What its bounds have cost, in words, the first time that they did; None afterwards, or when nothing."""


class MemoryBudget:
    """The budget of one process, and what counts towards it. `limit`: bytes."""

    __slots__ = ("_connections", "_held", "_kept", "_reported", "beside", "in_step", "limit")

    def __init__(self, limit: int = DEFAULT_MEMORY) -> None:
        self.limit: int = limit
        self.beside: Beside | None = None
        """What counts towards the budget besides connections and requests."""
        self.in_step: Sized | None = None
        """What the kernel has of connections."""
        self._connections: int = 0
        """Connections at the last look."""
        self._held: int = 0
        """Bytes of what connections hold, besides themselves and the requests that are kept."""
        self._kept: int = 0
        """Bytes of requests that are kept until their response is there."""
        self._reported: bool = False
        """That bodies are let go was reported."""

    @property
    def used(self) -> int:
        """Bytes that count, with the connections of the last look."""
        beside = 0 if self.beside is None else self.beside.memory
        in_step = 0 if self.in_step is None else self.in_step.memory
        return self._connections * CONNECTION_BYTES + self._held + self._kept + beside + in_step

    @property
    def is_tight(self) -> bool:
        """Whether connections may have to go soon: whoever lags behind has to catch up, so that the same ones go."""
        return self.used > self.limit // 2

    @property
    def rows_at_once(self) -> int:
        """Packets between two looks, if each may open a connection: what is left of the budget, or a quarter of it."""
        return max(self.limit - self.used, self.limit // 4, CONNECTION_BYTES) // CONNECTION_BYTES

    @property
    def bytes_at_once(self) -> int:
        """Payload between two looks: small messages take some 30 times their bytes, about half of the budget."""
        return self.limit // 64

    def note(self, owner: InspectedConnection, tcp: TcpConnection | None = None) -> None:
        """Count what a connection holds now; without `tcp`: it holds no segments. One that is over counts no more.

        Hot: once for each connection and batch that the kernel does not have.
        """
        size = 0 if tcp is not None and tcp.closed else owner.memory
        if tcp is not None and not tcp.closed:
            one, other = tcp.streams
            size += (len(one.held) + len(other.held)) * SEGMENT_BYTES + one.held_bytes + other.held_bytes
        self._held += size - owner.held
        owner.held = size

    # -- requests that wait for their responses -----------------------------------------------------------------------

    def keep(self, exchange: OpenExchange, message: Message) -> tuple[Message, Problem | None]:
        """What is kept of a request: without its body, where that is too much. The first such loss is a problem."""
        size = message_bytes(message)
        problem = None
        if self.used + size > self._target and size > MESSAGE_BYTES:
            what = f"its body of about {size:,} bytes was not kept until the response came"
            message = msgspec.structs.replace(
                message, body=None, raw=None, problems=(*message.problems, Problem("body-let-go", what))
            )
            size = MESSAGE_BYTES
            if not self._reported:
                self._reported = True
                detail = f"three quarters of {_size(self.limit)} of memory are used (--memory): requests that wait for"
                problem = Problem("memory-bound", f"{detail} responses are kept without their bodies")
        exchange.weight = size
        self._kept += size
        return message, problem

    def release(self, exchange: OpenExchange) -> None:
        """An exchange is over."""
        self._kept -= exchange.weight

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def _target(self) -> int:
        return self.limit - self.limit // 4

    def is_exceeded(self, reassembler: Reassembler) -> bool:
        """Whether more is kept than there may be."""
        self._connections = len(reassembler)
        return self.used > self.limit

    def choose(self, reassembler: Reassembler) -> tuple[list[TcpConnection], str]:
        """The connections to end, and why; none where there is memory enough. Looked at once for each batch."""
        self._connections = len(reassembler)
        if self.used <= self.limit:
            return [], ""
        left = self.used
        sizes = [(_all_of(tcp), tcp.first_order, tcp) for tcp in reassembler]
        sizes.sort(key=itemgetter(0, 1), reverse=True)
        gone: list[TcpConnection] = []
        for size, _, tcp in sizes:
            if left <= self._target or size < LEAST_HELD:
                break
            left -= size + CONNECTION_BYTES
            gone.append(tcp)
        most = len(gone)
        if left > self._target:
            rest = [tcp for _, _, tcp in sizes[most:]]
            rest.sort(key=lambda tcp: (not tcp.closed, tcp.clock, tcp.first_order))
            for tcp in rest:
                if left <= self._target:
                    break
                left -= _all_of(tcp) + CONNECTION_BYTES
                gone.append(tcp)
        parts = [f"{most:,} that hold most"] if most else []
        if len(gone) > most:
            parts.append(f"{len(gone) - most:,} that are over or silent for longest")
        detail = f"more than {_size(self.limit)} of memory (--memory): of {len(reassembler):,} connections "
        return gone, detail + " and ".join(parts)

    def recount(self, reassembler: Reassembler) -> None:
        """Count anew what these connections hold and keep."""
        self._connections = len(reassembler)
        self._held = self._kept = 0
        for tcp in reassembler:
            owner = tcp.owner
            assert isinstance(owner, InspectedConnection)
            owner.held = 0
            self.note(owner, tcp)
            self._kept += sum(exchange.weight for exchange in owner.exchanges.values())


def checked_memory(size: int | None) -> int:
    """A budget in bytes as it was given. Raises UsageError where it is too small."""
    if size is None:
        return DEFAULT_MEMORY
    if size < MIN_MEMORY:
        raise UsageError(f"memory: {size:,} bytes are too few, {_size(MIN_MEMORY)} are the least")
    return size


def message_limits(memory: int) -> tuple[int, int]:
    """What one message may hold in a run with a budget of `memory` bytes: decompressed bytes, and records or headers.

    Records that are decoded take some 400 bytes each, without keys and values; those with headers up to twice as much.
    Both bounds are those of the whole run, whatever the number of its processes and whatever else they hold.
    """
    return min(MAX_DECOMPRESSED, memory // DECOMPRESSED_PART), min(MAX_RECORDS, memory // RECORD_SHARE)


def in_proportion(bound: int, memory: int) -> int:
    """A bound by number for a budget of `memory` bytes; `bound` itself for `DEFAULT_MEMORY` or more."""
    return max(min(bound, bound * memory // DEFAULT_MEMORY), 1)


def message_bytes(message: Message) -> int:
    """What a decoded message takes, its body gone through; of records their number and the bytes on the wire count."""
    body: Any = message.body
    if body is None:
        return MESSAGE_BYTES + (0 if message.raw is None else len(message.raw))
    if body.__class__ is RenderedBody or has_records(message.api_key, message.type):
        return MESSAGE_BYTES + RECORD_BYTES + likely_bytes(message.api_key, message.type, message.size, body)
    return MESSAGE_BYTES + body_bytes(body)


def _all_of(tcp: TcpConnection) -> int:
    """What ending a connection frees besides itself."""
    owner = tcp.owner
    assert isinstance(owner, InspectedConnection)
    return owner.held + sum(exchange.weight for exchange in owner.exchanges.values())


def _size(count: int) -> str:
    """A number of bytes for people."""
    return f"{count >> 30} GiB" if count >= 1 << 30 and not count % (1 << 30) else f"{count / (1 << 20):,.4g} MiB"
