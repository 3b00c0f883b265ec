"""Regular messages of a batch, as the stream engine returns them: whole, of a known kind, and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.versions import client_id_text
from kafkasniff.native.feed import ARENA

__all__ = ["EVENTS", "HEADER", "Edges", "Messages"]

HEADER: Final = 10
"""Bytes of a request's header before its client id; the last two are the client id's length."""
EVENTS: Final = 4
"""Largest number of events of one message, for numbering their places."""


class Messages(NamedTuple):
    """The regular messages of a batch, in packet order."""

    rows: NDArray[np.void]
    """`native.feed.MESSAGE`."""
    buffer: bytes
    arena: bytes
    owners: Sequence[MessageOwner | None]
    """By connection index, at the end of the batch."""
    asked: NDArray[np.void]
    """Requests of earlier batches that leave (`StreamEngine.keep`)."""

    def client_id(self, index: int) -> str | bytes | None:
        """The client id of a request; bytes if it is not UTF-8."""
        return self.client_id_of(self.rows[index])

    def client_id_of(self, row: np.void) -> str | bytes | None:
        """That of one of `rows` or `asked`."""
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
    """Responses to requests of earlier batches, and the requests."""
    answered: NDArray[np.void]
