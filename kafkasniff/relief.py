"""What a run lets go where all its connections together take too much memory.

Each connection has bounds of its own, which are part of what it yields. Those here are of the whole process, for input
that opens connections without end, or begins something large on each and never ends it. They are far above what real
traffic needs, whatever they cost is told as a problem, and nothing else in an inspector depends on other connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

import msgspec

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.model import Body, Message, Problem
from kafkasniff.tcp import Reassembler, TcpConnection

__all__ = [
    "LOOK_BYTES",
    "MAX_BUFFERED",
    "MAX_CONNECTIONS",
    "MAX_ENDPOINTS",
    "MAX_KEPT",
    "MAX_NAMES",
    "KeptRequests",
    "Relief",
    "weight",
]

MAX_CONNECTIONS: Final = 1 << 18
"""Connections remembered, those included that ended within the last minute; an idle one takes some 5 kB."""
MAX_BUFFERED: Final = 1 << 30
"""Bytes of all streams that wait for what should stand in front of them, or for the rest of their frame."""
LOOK_BYTES: Final = 64 << 20
"""So many bytes of payload pass between two looks at what waits."""
MAX_KEPT: Final = 1 << 30
"""Bytes of memory, as far as they can be told, of requests that are kept until their response is there."""
MAX_ENDPOINTS: Final = 1 << 16
"""Endpoints that are known to speak Kafka: of connections to others nothing is told where they turn out not to."""
MAX_NAMES: Final = 1 << 16
"""Names of addresses that captures tell (name resolution blocks)."""

RECORD_WEIGHT: Final = 400
"""Bytes of memory of a record, without its key and value."""
BODY_WEIGHT: Final = 16
"""Bytes of memory of a body by bytes of its message, where it may consist of many small things."""

_PRODUCE: Final = 0
_PUSH_TELEMETRY: Final = 72
_METRICS_WEIGHT: Final = 4 << 20


class Relief:
    """Chooses the connections to let go. `limit` connections, `buffered` bytes; looks every `every` bytes."""

    def __init__(self, *, limit: int = MAX_CONNECTIONS, buffered: int = MAX_BUFFERED, every: int = LOOK_BYTES) -> None:
        self._limit = limit
        self._buffered = buffered
        self._every = every
        self._passed = 0

    def choose(self, reassembler: Reassembler, passed: int) -> tuple[list[TcpConnection], str]:
        """The connections to let go, and why; `passed`: bytes of payload since the last call."""
        self._passed += passed
        if len(reassembler) > self._limit:
            return self._too_many(reassembler)
        if self._passed >= self._every:
            self._passed = 0
            return self._too_much(reassembler)
        return [], ""

    def _too_many(self, reassembler: Reassembler) -> tuple[list[TcpConnection], str]:
        """An eighth at once, so that this is seldom: first those that are over, then those silent for longest."""
        silent = sorted(reassembler, key=lambda tcp: (not tcp.closed, tcp.clock, tcp.first_order))
        gone = silent[: len(silent) - self._limit + self._limit // 8]
        detail = f"more than {self._limit:,} connections: the {len(gone):,} that are over or silent for longest"
        return gone, detail

    def _too_much(self, reassembler: Reassembler) -> tuple[list[TcpConnection], str]:
        """Those that hold most, until half of the bound is left."""
        sizes = [(_held(tcp), tcp.first_order, tcp) for tcp in reassembler]
        total = sum(size for size, _, _ in sizes)
        if total <= self._buffered:
            return [], ""
        sizes.sort(key=itemgetter(0, 1), reverse=True)
        gone: list[TcpConnection] = []
        left = total
        for size, _, tcp in sizes:
            if left <= self._buffered // 2:
                break
            left -= size
            gone.append(tcp)
        detail = f"{total:,} bytes of unfinished frames and behind holes: {len(gone):,} connections that hold most"
        return gone, detail


class KeptRequests:
    """Counts what requests take that are kept until their response is there, at most `limit` bytes."""

    def __init__(self, limit: int = MAX_KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._told = False

    def keep(self, exchange: OpenExchange, message: Message) -> tuple[Message, Problem | None]:
        """What is to be kept of a request: without its body, where that is too much. The first time it is told."""
        size = weight(message)
        problem = None
        if self._size + size > self._limit:
            what = f"its body of about {size:,} bytes was not kept until the response came"
            message = msgspec.structs.replace(
                message, body=None, raw=None, problems=(*message.problems, Problem("body-let-go", what))
            )
            size = message.size
            if not self._told:
                self._told = True
                detail = f"more than {self._limit:,} bytes of requests wait for responses: further bodies are let go"
                problem = Problem("memory-bound", detail)
        exchange.weight = size
        self._size += size
        return message, problem

    def release(self, exchange: OpenExchange) -> None:
        """An exchange is over."""
        self._size -= exchange.weight

    def recount(self, reassembler: Reassembler) -> None:
        """Count the exchanges that are open with these connections."""
        owners = [tcp.owner for tcp in reassembler]
        self._size = sum(
            exchange.weight
            for owner in owners
            if isinstance(owner, InspectedConnection)
            for exchange in owner.exchanges.values()
        )


def _held(tcp: TcpConnection) -> int:
    connection = tcp.owner
    assert isinstance(connection, InspectedConnection)
    return tcp.streams[0].held_bytes + tcp.streams[1].held_bytes + connection.buffered


def weight(message: Message) -> int:
    """About how many bytes of memory a decoded request takes, compressed records included. Hot."""
    body = message.body
    if message.api_key != _PRODUCE or body is None:
        return message.size * BODY_WEIGHT + _METRICS_WEIGHT * (message.api_key == _PUSH_TELEMETRY)
    return message.size + sum(_weight_of_records(partition.get("records")) for partition in _partitions(body))


def _partitions(body: Body) -> Iterable[Body]:
    for topic in body.get("topic_data") or ():
        yield from topic.get("partition_data") or ()


def _weight_of_records(field: Body | None) -> int:
    total = RECORD_WEIGHT
    for batch in () if field is None else field["batches"]:
        records = batch.get("records") or ()
        total += RECORD_WEIGHT * (1 + len(records))
        if batch.get("compression") != "none":
            total += sum(len(record.get("key") or b"") + len(record.get("value") or b"") for record in records)
    return total
