"""Positions in a stream that could be a frame's start, with the bytes since the stream's boundaries were lost.

Where a segment begins, a response may begin; any other position is scanned for the first bytes of a frame. A position
is a candidate until the search (search.py) finds its chain of frames implausible.
"""

from __future__ import annotations

from collections.abc import Container
from struct import Struct
from typing import Final

import msgspec

from kafkasniff.tls.items import Segment
from tests.oracle.kafka.scan import REQUEST_HEAD, RESPONSE_HEAD, scan_requests, scan_responses
from tests.oracle.kafka.segmented_bytes import SegmentedBytes

SEARCH_LIMIT: Final = 4 << 20
"""A stream without a candidate in this many bytes is not Kafka: four times the largest request that clients send by
default (max.request.size), since a capture may start anywhere in one."""
MAX_CANDIDATES: Final = 64
CHUNK: Final = 4096
"""Bytes that are scanned for candidates at once, so that a frame that is found early does not cost a scan of all the
following bytes: a segment may hold hundreds of places where frames begin and end again."""

_INT = Struct(">i")
_RESPONSE = Struct(">ii")


class FrameCandidate(msgspec.Struct, eq=False):
    """A possible frame start and how far its chain of frames was followed."""

    start: int
    at: int
    frames: int = 0
    correlation_id: int = -1
    expected: int | None = None
    """The first frame of a chain of responses that answers a request."""
    needed: int = 0
    """For a chain of requests: bytes that must be available before it can be followed further."""
    refuted: bool = False
    """For a chain of responses: its first frame has the id of a request that it does not answer."""


class FrameCandidates(SegmentedBytes):
    """The bytes of one stream since its boundaries were lost, and the candidates among them."""

    def __init__(self, *, aligned: bool, max_size: int, forced: bool) -> None:
        super().__init__()
        self.aligned = aligned
        """The first byte is the stream's first: only position 0 is a candidate."""
        self._forced = forced
        """The user says that this is Kafka: a plausible header suffices where a segment begins."""
        self._max_size = max_size
        self._requests: list[FrameCandidate] = []
        self._responses: list[FrameCandidate] = []
        # Progress of each scan for candidates.
        self._scanned_requests = 0
        self._scanned_responses = 0

    def add(self, segment: Segment, skip: int = 0) -> int:
        """Add a segment without its first `skip` bytes; returns its position."""
        begin = super().add(segment, skip)
        if self.aligned:
            if begin == 0 and not self.dropped:
                self._requests = [FrameCandidate(0, 0)]
                self._responses = [FrameCandidate(0, 0)]
        else:
            if len(self._responses) < MAX_CANDIDATES:
                self._responses.append(FrameCandidate(begin, begin))
            if self._forced and len(self._requests) < MAX_CANDIDATES:
                self._requests.append(FrameCandidate(begin, begin))
        return begin

    def drop(self, count: int) -> int:
        """Drop the first `count` bytes and the candidates that begin there; returns how many bytes were there."""
        count = super().drop(count)
        self._scanned_requests = max(self._scanned_requests - count, 0)
        self._scanned_responses = max(self._scanned_responses - count, 0)
        for candidates in (self._requests, self._responses):
            candidates[:] = [candidate for candidate in candidates if candidate.start >= count]
            for candidate in candidates:
                candidate.start -= count
                candidate.at -= count
                candidate.needed -= count
                if candidate.expected is not None:
                    candidate.expected -= count
        return count

    def strip(self, count: int) -> None:
        """Remove a prologue: the stream begins after it."""
        self.drop(count)
        self.dropped = 0
        if self.aligned and self._data:
            self._requests = [FrameCandidate(0, 0)]
            self._responses = [FrameCandidate(0, 0)]

    @property
    def began(self) -> bool:
        """At least one whole frame with a plausible request header is at the stream's beginning."""
        return self.aligned and any(candidate.frames > 0 for candidate in self._requests)

    def forget(self, *, requests: bool, responses: bool) -> None:
        """Drop the bytes before the first candidate: no frame will start there.

        `requests`, `responses`: what may still be found. A scan that lacks bytes for its first step has no progress,
        and needs all of them.
        """
        if self.aligned:
            return
        needed = [candidate.start for candidate in (*self._requests, *self._responses)]
        needed += [self._scanned_requests] * requests + [self._scanned_responses] * responses
        self.drop(min(needed))

    # -- scans ------------------------------------------------------------------------------------------------------

    def _scan_for_requests(self) -> None:
        """Add the positions not scanned yet whose first bytes look like a request's."""
        limit = len(self._data) - REQUEST_HEAD
        if limit < self._scanned_requests or len(self._requests) >= MAX_CANDIDATES:
            return
        at = self._scanned_requests
        while at <= limit and len(self._requests) < MAX_CANDIDATES:
            piece = bytes(self._data[at : at + CHUNK + REQUEST_HEAD - 1])
            for position in scan_requests(piece, self._max_size)[: MAX_CANDIDATES - len(self._requests)].tolist():
                self._requests.append(FrameCandidate(at + position, at + position))
            at += CHUNK
        self._scanned_requests = limit + 1

    def _scan_for_responses(self, requests: Container[int]) -> None:
        """Add those in the next bytes that are not scanned yet."""
        begin = self._scanned_responses
        stop = min(begin + CHUNK, len(self._data) - RESPONSE_HEAD + 1)
        known = {candidate.start for candidate in self._responses}
        # A response that starts within a segment: only if its correlation id is outstanding.
        piece = bytes(self._data[begin : stop + RESPONSE_HEAD - 1])
        for position in scan_responses(piece, self._max_size).tolist():
            at = begin + position
            if len(self._responses) >= MAX_CANDIDATES:
                break
            if _RESPONSE.unpack_from(self._data, at)[1] in requests and at not in known:
                self._responses.append(FrameCandidate(at, at))
        self._scanned_responses = stop

    # -- chains -----------------------------------------------------------------------------------------------------

    def _is_hopeless(self, candidates: list[FrameCandidate]) -> bool:
        if self.aligned:
            return self.seen and not candidates
        return len(self._data) + self.dropped > SEARCH_LIMIT and not any(one.frames for one in candidates)

    def _frame_end(self, candidate: FrameCandidate) -> int:
        if len(self._data) - candidate.at < 4:
            return candidate.at
        size: int = _INT.unpack_from(self._data, candidate.at)[0]
        return candidate.at + 4 + size
