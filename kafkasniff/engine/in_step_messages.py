"""Messages of connections in step, as the kernel returns them for a batch, and what it has to know of each API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import InspectedConnection, MessageOwner
from kafkasniff.engine.versions import client_id_text
from kafkasniff.kafka.apis.named_apis import PRODUCE
from kafkasniff.kafka.connection.events import Event
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.connection.opening import GREETING
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native.feed import ARENA, VERSIONS
from kafkasniff.tcp.packets import COLUMNS, PacketBatch

__all__ = ["EVENTS", "HEADER", "Edges", "Entry", "Messages", "kind_of", "left_rows"]

HEADER: Final = 10
"""Bytes of a request's header before its client id; the last two are the client id's length."""
EVENTS: Final = 4
"""Largest number of events of one message, for numbering their places."""
_ACKS_FIRST, _ACKS_BEHIND_STRING, _ACKS_BEHIND_COMPACT = 1, 2, 3


def kind_of(code: int) -> int:
    """The kernel's description of a version of an API: `feed.Kind`."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    # Messages that describe the connection have to be read before those that follow, even in the same batch.
    greets = key == GREETING
    if plan.asks_connection or (plan.needed and not greets) or not 0 < plan.header < 3:
        return 0
    # For an unknown version only the header is read, which does not show whether a response is expected.
    if not plan.known_version and key == PRODUCE:
        return 0
    acks = 0
    if key == PRODUCE:
        acks = _ACKS_BEHIND_COMPACT if version >= 9 else _ACKS_BEHIND_STRING if version >= 3 else _ACKS_FIRST
    return plan.header | acks << 2 | (response_plan(key, version).header > 0) << 4 | greets << 5


class Messages(NamedTuple):
    """Results of a batch: messages of all connections in step, in packet order."""

    rows: NDArray[np.void]
    """`native.feed.MESSAGE`."""
    buffer: bytes
    arena: bytes
    owners: Sequence[MessageOwner | None]
    """By connection index, at the end of the batch."""

    def client_id(self, index: int) -> str | bytes | None:
        """The client id of a request; bytes if it is not UTF-8."""
        row = self.rows[index]
        size = int(row["client_id"])
        if size < 0:
            return None
        start = int(row["start"]) + HEADER
        return client_id_text((self.arena if row["flags"] & ARENA else self.buffer)[start : start + size])


class Edges(msgspec.Struct, frozen=True):
    """Messages whose exchange began earlier or ends later and needs no other state."""

    is_edge: NDArray[np.bool_]
    """Which of all messages these are."""
    begun: NDArray[np.intp]
    """Requests whose exchange ends later."""
    selected: NDArray[np.uint8]
    """Whether a filter selects each of them."""
    answers: NDArray[np.intp]
    """Responses to requests of earlier batches, and the requests (`outstanding.ROW`)."""
    answered: NDArray[np.void]
    others: list[tuple[int, Pending]]
    """Additional responses, with their requests."""


Entry = tuple[int, int, InspectedConnection, Event]
"""An event with the inspector's sort key."""


def left_rows(batch: PacketBatch, left: NDArray[np.uint32], clock: NDArray[np.int64]) -> PacketBatch:
    """The rows of a batch that were not processed, as a batch; `clock`: the packet clock at each row."""
    return PacketBatch(
        {name: getattr(batch, name)[left] for name in COLUMNS},
        batch.buffer,
        captures=batch.captures,
        end_clock=batch.end_clock,
        end_order=batch.end_order,
        packets=batch.packets,
        notes=batch.notes,
        ticks=(batch.order, clock) if batch.ticks is None else batch.ticks,
    )
