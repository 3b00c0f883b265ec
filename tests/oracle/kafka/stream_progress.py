"""One stream of a connection: how far its frame boundaries are known."""

from __future__ import annotations

import msgspec

from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.trial import Trial


class StreamProgress(msgspec.Struct):
    """A direction of a connection.

    Its bytes are collected until a search finds a frame boundary. After a gap before its first whole frame, frames are
    cut provisionally (`trial`) until they prove to be messages. With a `framer`, the next boundary is known.
    """

    framer: Framer | None = None
    trial: Trial | None = None
    began: bool = False
    """Bytes were seen."""
    hole: bool = False
    """Segments are held back after a hole."""
    from_start: bool = False
    """It is known from its first byte on."""
    seen: int = 0
    """Bytes that were seen."""
    framed: int = 0
    """Bytes that became frames."""
    lost: int = 0
    """Bytes missing from the capture."""
    pending: int = 0
    """At the end: bytes of an incomplete frame."""

    @property
    def is_late(self) -> bool:
        """Frames of it may be present and not cut yet, because of a hole or a search."""
        return self.hole or (self.began and self.framer is None)

    def leave(self) -> None:
        """No boundary is known any more."""
        self.framer = self.trial = None
