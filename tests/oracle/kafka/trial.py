"""Frames of a stream with a gap before it was in step: damaged, but with visible headers."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kafkasniff.kafka.connection.events import Frame
from kafkasniff.kafka.messages.plausibility import may_be_request
from kafkasniff.tls.items import Segment
from tests.oracle.kafka.framer import Framer

MAX_TRIAL_BYTES: Final = 16 << 20
"""Bytes of whole frames that wait for the verdict: as many as a search keeps (segmented_bytes.MAX_SEARCH)."""
MAX_TRIAL_FRAMES: Final = 16_384
"""Maximum number of them."""
_INT = Struct(">i")


class Trial:
    """A framer that may be in step, and its frames so far."""

    def __init__(self, framer: Framer, segments: Iterable[Segment]) -> None:
        self.framer = framer
        self.frames: list[Frame] = []
        for segment in segments:
            if framer.lost_at is None:
                self.frames += framer.cut(segment)

    @property
    def full(self) -> bool:
        """The trial takes too long."""
        size = sum(4 + frame.end - frame.start for frame in self.frames)
        return size > MAX_TRIAL_BYTES or len(self.frames) > MAX_TRIAL_FRAMES

    def first_id(self, *, of_request: bool) -> tuple[int, int] | None:
        """Correlation id of the first frame and the order of the packet that completed it; None if missing.

        `of_request`: it follows API key and version.
        """
        at = 4 if of_request else 0
        if not self.frames or self.frames[0].end - self.frames[0].start < at + 4:
            return None
        frame = self.frames[0]
        return _INT.unpack_from(frame.data, frame.start + at)[0], frame.order

    def may_be_requests(self, *, known: bool) -> bool:
        """Whether every frame has a plausible request header; `known`: see `may_be_request`."""
        return all(may_be_request(one.data[one.start : one.end], one.size, known=known) for one in self.frames)
