"""Frames cut out of the segments of one stream.

A `Framer` is in step with its stream: it knows where the next frame starts. It stays in step over a gap that ends
within the current frame (which becomes incomplete). Over any other gap, and at an impossible size, it falls out of
step, and `search.py` has to find a boundary again.
"""

from __future__ import annotations

from struct import Struct

from kafkasniff.kafka.connection.events import MAX_FRAME, Frame
from kafkasniff.tls.items import Gap, Segment

_SIZE = Struct(">i")


class Framer:
    """Cuts one stream into frames, beginning at a frame's boundary."""

    def __init__(self, direction: int, max_size: int = MAX_FRAME) -> None:
        self.direction = direction
        self.max_size = max_size
        self.lost_at: int | None = None
        """Set by `cut`: position in the segment of a frame of impossible size; the framer is void then."""
        self.size = 0
        """By the last length prefix."""
        self._kept = bytearray()
        """The beginning of a frame, with its length prefix."""
        self._need = 4
        """Total size of the frame; 4 while its length prefix is incomplete."""
        self._sized = False
        self._skip = 0
        """Bytes up to the end of a frame that was given up."""
        self._first_packet = 0
        self._last_packet = 0
        self._first_time = 0
        self._last_time = 0
        """When the available bytes of the frame arrived."""

    @property
    def pending(self) -> int:
        """Bytes of the incomplete frame."""
        return len(self._kept)

    @property
    def at_boundary(self) -> bool:
        """Whether a frame begins with the next byte."""
        return not (self._kept or self._skip)

    @property
    def announced(self) -> int | None:
        """Size of the incomplete frame, by its length prefix; None while that is incomplete."""
        return self._need - 4 if self._sized else None

    def cut(self, segment: Segment, skip: int = 0) -> list[Frame]:
        """Cut a segment from this byte on. Falls out of step at an impossible size: see `lost_at`."""
        data, position = segment.data, skip
        step = min(self._skip, len(data) - position)
        self._skip -= step
        position += step
        frames: list[Frame] = []
        while position < len(data):
            begin, within = position, not self._kept
            if within:
                self._first_packet = self._last_packet = segment.packet
                self._first_time = segment.time_ns
            position = min(position + self._need - len(self._kept), len(data))
            self._kept += data[begin:position]
            self._first_packet = min(self._first_packet, segment.packet)
            self._last_packet = max(self._last_packet, segment.packet)
            self._last_time = segment.released
            if len(self._kept) == 4 and not self._sized:
                self.size = _SIZE.unpack(self._kept)[0]
                if not 0 <= self.size <= self.max_size:
                    # A length prefix within one segment is searched with what follows it, if it cannot be one.
                    self.lost_at = begin if within else position
                    return frames
                self._sized = True
                self._need = 4 + self.size
            if len(self._kept) == self._need and self._sized:
                frames.append(self._take(segment.order, segment.released, segment.packet))
        return frames

    def _take(self, order: int, time_ns: int, packet: int) -> Frame:
        data = bytes(self._kept)
        packets = self._first_packet, self._last_packet
        frame = Frame(
            order, self.direction, data, 4, len(data), self._need - 4, *packets, self._first_time, time_ns, packet
        )
        self._kept, self._need, self._sized = bytearray(), 4, False
        return frame

    def gap(self, gap: Gap) -> tuple[bool, Frame | None]:
        """Bytes are missing here. Returns whether the framer is still in step, and the truncated frame."""
        size = gap.size
        if self._skip and not gap.exact:
            return False, None
        if self._skip:
            within = min(size, self._skip)
            self._skip -= within
            size -= within
            return size == 0, None
        if not self._sized:
            return False, None
        missing = self._need - len(self._kept)
        time_ns = gap.resumed_ns if gap.snapped or missing > size else self._last_time
        frame = self._take(gap.order, time_ns, gap.packet)
        self._skip = max(missing - size, 0)
        return gap.exact and size <= missing, frame
