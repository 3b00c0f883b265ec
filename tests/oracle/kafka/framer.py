"""Frames cut out of the runs of one stream.

A `Framer` is in step with its stream: it knows where the next frame starts. It stays in step over a gap that ends
within the current frame (which becomes incomplete). Over any other gap, and at an impossible size, it falls out of
step, and `search.py` has to find a boundary again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct

from kafkasniff.kafka.connection.framing import MAX_FRAME, Frame
from kafkasniff.tcp.segments import Gap
from tests.oracle.tcp.runs import Run

__all__ = ["Framer", "gather"]

_SIZE = Struct(">i")


def gather(run: Run, start: int, end: int, first: int, last: int) -> bytes:
    """The bytes [start, end) of a run, in positions as counted by `run.end`; they lie in segments first … last."""
    buffer, offset = run.buffer, run.offset
    head = offset[first] + start - (run.end[first] - run.length[first])
    if first == last:
        return buffer[head : head + end - start]
    parts = [buffer[head : offset[first] + run.length[first]]]
    parts.extend(buffer[offset[i] : offset[i] + run.length[i]] for i in range(first + 1, last))
    tail = run.end[last] - run.length[last]
    parts.append(buffer[offset[last] : offset[last] + end - tail])
    return b"".join(parts)


class Framer:
    """Cuts one stream into frames, beginning at a frame's boundary."""

    __slots__ = (
        "_first_packet",
        "_first_time",
        "_kept",
        "_last_packet",
        "_last_time",
        "_need",
        "_sized",
        "_skip",
        "direction",
        "lost_at",
        "lost_size",
        "max_size",
    )

    def __init__(self, direction: int, max_size: int = MAX_FRAME) -> None:
        self.direction = direction
        self.max_size = max_size
        self.lost_at: int | None = None
        """Set by `cut`: position in the run of a frame of impossible size; the framer is void then."""
        self.lost_size = 0
        """That size."""
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

    def cut(self, run: Run, first: int, last: int) -> list[Frame]:
        """Cut the segments [first, last) of a run. Falls out of step at an impossible size: see `lost_at`."""
        position, stop = run.end[first] - run.length[first], run.end[last - 1]
        step = min(self._skip, stop - position)
        self._skip -= step
        position += step
        frames: list[Frame] = []
        while position < stop:
            position, frame = self._continue(run, position, first, last)
            if self.lost_at is not None:
                return frames
            if frame is not None:
                frames.append(frame)
        return frames

    def _continue(self, run: Run, position: int, index: int, last: int) -> tuple[int, Frame | None]:
        """Add bytes to the current frame (or begin one): the position after them, and the frame if it is complete."""
        end = run.end
        stop = end[last - 1]
        index = bisect_right(end, position, index, last)
        while position < stop:
            if not self._kept:
                self._first_packet = self._last_packet = run.packet[index]
                self._first_time = run.time[index]
            target = min(position + self._need - len(self._kept), stop)
            final = bisect_left(end, target, index, last)
            # A length prefix within one segment is searched with what follows it, if it cannot be one.
            within = not self._kept and position >= end[final] - run.length[final]
            begin = position
            self._kept += gather(run, position, target, index, final)
            self._first_packet = min(self._first_packet, *run.packet[index : final + 1])
            self._last_packet = max(self._last_packet, *run.packet[index : final + 1])
            position = target
            self._last_time = run.released[final]
            index = final if end[final] > position else final + 1
            if len(self._kept) == 4 and not self._sized:
                size = _SIZE.unpack(self._kept)[0]
                if size < 0 or size > self.max_size:
                    self.lost_at, self.lost_size = begin if within else position, size
                    return self.lost_at, None
                self._sized = True
                self._need = 4 + size
            if len(self._kept) == self._need and self._sized:
                return position, self._take(run.order[final], run.released[final], run.packet[final])
        return position, None

    def _take(self, order: int, time_ns: int, packet: int) -> Frame:
        data = bytes(self._kept)
        frame = Frame(
            order,
            self.direction,
            data,
            4,
            len(data),
            self._need - 4,
            self._first_packet,
            self._last_packet,
            self._first_time,
            time_ns,
            packet,
        )
        self._begin()
        return frame

    def _begin(self) -> None:
        """Start at a frame's boundary."""
        self._kept = bytearray()
        self._need, self._sized = 4, False
        self._first_packet = self._last_packet = self._first_time = self._last_time = 0

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
