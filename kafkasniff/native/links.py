"""The network of connections, as the stream engine follows it (`kernel/link.zig`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["OPENINGS", "UNKNOWN", "Follows", "Links", "Network"]

UNKNOWN: Final = -1
"""Stands for a duration that is unknown."""
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
    again: list[int]
    late: list[int]
    late_ns: list[int]
    closed: list[int]
    closed_ns: list[int]
