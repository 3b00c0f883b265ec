"""Columns of frames and headers, and a buffer read as numbers, for bulk.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Frames", "Headers", "Ints", "Views"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Frames(NamedTuple):
    """Frames of one side of all connections, by connection and capture order; columns of one length."""

    row: Ints
    """Data row of the plan."""
    connection: Ints
    """Index among the candidates."""
    start: Ints
    """Of the message in the buffer, behind its length prefix."""
    size: Ints
    step: Ints
    """How many frames stand before it in its segment."""
    order: Ints

    def only(self, chosen: Bools) -> Frames:
        """Those that are chosen."""
        return Frames(*(column[chosen] for column in self))


class Headers(NamedTuple):
    """Headers of requests, beside their frames."""

    code: Ints
    correlation_id: Ints
    client_id: Ints
    """Its length; -1: none."""

    def only(self, chosen: Bools) -> Headers:
        """Those that are chosen."""
        return Headers(*(column[chosen] for column in self))


class Views:
    """A buffer as numbers at any byte."""

    def __init__(self, buffer: bytes) -> None:
        self.bytes: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        # Views that overlap: element i is what begins at byte i.
        self._shorts: NDArray[Any] = np.ndarray((len(buffer) - 1,), ">i2", buffer, strides=(1,))
        self._ints: NDArray[Any] = np.ndarray((len(buffer) - 3,), ">i4", buffer, strides=(1,))

    def shorts(self, position: Ints) -> Ints:
        """The int16 at each position, big-endian as all of Kafka's numbers."""
        return self._shorts[position].astype(np.int64)

    def ints(self, position: Ints) -> Ints:
        """The int32 at each position."""
        return self._ints[position].astype(np.int64)

    def unsigned(self, position: Ints) -> Ints:
        """The byte at each position."""
        return self.bytes[position].astype(np.int64)
