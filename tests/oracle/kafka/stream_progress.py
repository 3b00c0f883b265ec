"""One stream of a connection: how far its frame boundaries are known, in named states."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.trial import Trial

__all__ = ["TRANSITIONS", "StreamProgress", "StreamState"]


class StreamState(enum.Enum):
    """Knowledge of the frame boundaries of a stream. The verdict says whether its connection is Kafka."""

    UNSEEN = "no byte of it was captured"
    SEARCH = "bytes are collected until a search finds a frame boundary"
    TRIAL = "a gap came before its first whole frame: frames are cut provisionally until they prove to be messages"
    IN_STEP = "the next boundary is known"


TRANSITIONS: Final[Mapping[tuple[StreamState, StreamState], str]] = {
    (StreamState.UNSEEN, StreamState.SEARCH): "the first bytes arrive",
    (StreamState.SEARCH, StreamState.TRIAL): "a gap comes before a boundary is found",
    (StreamState.SEARCH, StreamState.IN_STEP): "a search or a trial has found a boundary",
    (StreamState.TRIAL, StreamState.SEARCH): "the trial ends, whatever its frames proved to be",
    (StreamState.IN_STEP, StreamState.SEARCH): "a frame of impossible size, a gap over a boundary, or the end",
}
"""The changes of state there are, and their causes."""


class StreamProgress:
    """A direction of a connection. `framer` and `trial` are changed only by the methods."""

    __slots__ = ("began", "framed", "framer", "from_start", "hole", "lost", "pending", "seen", "trial")

    def __init__(self) -> None:
        self.framer: Framer | None = None
        """Cuts frames while the stream is in step."""
        self.trial: Trial | None = None
        self.began = False
        """Bytes were seen."""
        self.hole = False
        """Segments are held back after a hole."""
        self.from_start = False
        """It is known from its first byte on."""
        self.seen = 0
        """Bytes that were seen."""
        self.framed = 0
        """Bytes that became frames."""
        self.lost = 0
        """Bytes missing from the capture."""
        self.pending = 0
        """At the end: bytes of an incomplete frame."""

    @property
    def state(self) -> StreamState:
        """The present state."""
        if self.framer is not None:
            return StreamState.IN_STEP
        if self.trial is not None:
            return StreamState.TRIAL
        return StreamState.SEARCH if self.began else StreamState.UNSEEN

    @property
    def is_late(self) -> bool:
        """Frames of it may be present and not cut yet, because of a hole or a search."""
        return self.hole or (self.began and self.framer is None)

    def begin_step(self, framer: Framer) -> None:
        """A boundary is known."""
        self._become(framer, None)

    def begin_trial(self, trial: Trial) -> None:
        """Frames are cut provisionally."""
        self._become(None, trial)

    def leave(self) -> None:
        """No boundary is known any more; nothing is kept of it here."""
        self._become(None, None)

    def end_trial(self) -> None:
        """Stop cutting frames provisionally, if it does."""
        self._become(self.framer, None)

    def _become(self, framer: Framer | None, trial: Trial | None) -> None:
        before = self.state
        self.framer, self.trial = framer, trial
        after = self.state
        assert before is after or (before, after) in TRANSITIONS, f"{before.name} to {after.name}"
