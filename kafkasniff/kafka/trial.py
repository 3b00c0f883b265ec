"""Frames of a stream that a gap went through before it was in step: damaged, but their headers can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkasniff.kafka.framing import Frame, Framer
from kafkasniff.kafka.message import request_header

__all__ = ["MAX_TRIAL_BYTES", "MAX_TRIAL_FRAMES", "Trial"]

MAX_TRIAL_BYTES: Final = 16 << 20
"""Bytes of whole frames that wait for the verdict: as many as a search keeps (search.MAX_SEARCH)."""
MAX_TRIAL_FRAMES: Final = 16_384
"""And so many of them."""


class Trial:
    """A framer that may be in step, and what it has cut so far."""

    __slots__ = ("framer", "frames", "size")

    def __init__(self, framer: Framer, frames: list[Frame]) -> None:
        self.framer = framer
        self.frames: list[Frame] = []
        self.size = 0
        """Bytes of the frames, with their length prefixes."""
        self.add(frames)

    def add(self, frames: Iterable[Frame]) -> None:
        """Keep further frames; not the whole batch of packets that they are a part of."""
        for frame in frames:
            size = frame.end - frame.start
            kept = frame
            if size < len(frame.data):
                kept = frame._replace(data=frame.data[frame.start : frame.end], start=0, end=size)
            self.frames.append(kept)
            self.size += 4 + size

    @property
    def full(self) -> bool:
        """It takes too long to tell."""
        return self.size > MAX_TRIAL_BYTES or len(self.frames) > MAX_TRIAL_FRAMES

    def may_be_requests(self, *, known: bool) -> bool:
        """Whether every frame has a plausible request header.

        `known`: the stream is the client's for sure. Else it may be the broker's, whose responses look like Produce
        requests without a client id: then there must be one.
        """
        for frame in self.frames:
            header = request_header(frame.data, frame.start, frame.end)
            if header is None or not (known or header.client_id):
                return False
        return True
