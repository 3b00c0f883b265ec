"""Frames of a stream that a gap went through before it was in step: damaged, but their headers can be seen."""

from __future__ import annotations

from kafkasniff.kafka.framing import Frame, Framer
from kafkasniff.kafka.message import request_header

__all__ = ["Trial"]


class Trial:
    """A framer that may be in step, and what it has cut so far."""

    __slots__ = ("framer", "frames")

    def __init__(self, framer: Framer, frames: list[Frame]) -> None:
        self.framer = framer
        self.frames = frames

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
