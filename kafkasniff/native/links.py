"""The network of connections, as the stream engine follows it (`kernel/link.zig`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

UNKNOWN: Final = -1
"""Stands for a duration that is unknown."""
ORDINAL_BITS: Final = 40
"""More exchanges than a connection has."""
OPENINGS: Final = (None, "answered", "refused", "unanswered")
"""Outcomes of a handshake (`stream_types.Opening`); None: its beginning was not captured."""


class Follows(IntEnum):
    """What is noted of the network of connections (`streams.Follows`)."""

    NOTHING, LINKS, EXCHANGES = range(3)


class Links(msgspec.Struct, frozen=True):
    """The network of connections that are over, or of open ones so far."""

    rows: NDArray[np.void]
    """`stream_types.LinkRow`."""
    stalls: NDArray[np.void]
    """`stream_types.LinkStall`: those of each row in a row, from its `stalls` on."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls) -> Links:
        """No connections."""
        return cls(np.empty(0, np.void), np.empty(0, np.void))

    @classmethod
    def together(cls, every: Sequence[Links]) -> Links:
        """All of several, in order."""
        if len(every) <= 1:
            return every[0] if every else cls.none()
        rows, stalls = np.concatenate([one.rows for one in every]), np.concatenate([one.stalls for one in every])
        before = np.cumsum([0, *(len(one.stalls) for one in every[:-1])])
        rows["stalls"] += np.repeat(before, [len(one) for one in every]).astype(np.uint32)
        return cls(rows, stalls)


class Network(NamedTuple):
    """What the network was like during an exchange (`stream_types.Network`). The first of two numbers is the client's.

    Times and durations are in nanoseconds.
    """

    handshake: list[int]
    """Round trips to the broker and to the client by the handshake, or `UNKNOWN`."""
    round_trips: list[int]
    """The lowest until the response was complete, likewise."""
    resent_at: int
    """NO_TIME: nothing that the request needed was lost."""
    before_done: int
    """End of the latest earlier response of the connection; NO_TIME: there was none."""
    quiet_since: int
    """The same of its latest earlier message or token."""
    muted_until: int
    """Time until which an earlier response of the connection asked the client to send nothing; NO_TIME: none did."""
    again: list[int]
    late: list[int]
    late_ns: list[int]
    closed: list[int]
    closed_ns: list[int]


class Networks(NamedTuple):
    """What the network was like during exchanges, in the order in which those of a connection ended."""

    connections: NDArray[np.int64]
    """Numbers of the connections."""
    rows: NDArray[np.void]
    """`stream_types.Network`."""

    def places(self, connections: NDArray[np.int64], ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these exchanges, by the number of the connection and the ordinal; `UNKNOWN`: no row."""
        if not len(self.rows):
            return np.full(len(connections), UNKNOWN, np.int64)
        keys = _keys(self.connections, self.rows["ordinal"])
        order = np.argsort(keys)
        keys, wanted = keys[order], _keys(connections, ordinals)
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[found] == wanted, order[found], UNKNOWN)

    def one(self, place: int) -> Network:
        """A row."""
        return Network(*(self.rows[name][place].tolist() for name in Network._fields))


def _keys(connections: NDArray[np.int64], ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    return (connections << ORDINAL_BITS) + ordinals
