"""Finding frames in a stream whose boundaries are not known, and telling what is not Kafka.

Needed where a capture starts in the middle of a connection, behind a gap that swallowed a boundary, and for a
connection of which it is not known yet whether it is Kafka at all. A `Searcher` collects the stream's bytes and
follows *candidates*: positions that could be a frame's start, with the chain of frames that begins there. One is
accepted

- as requests: when a frame of the chain decodes exactly, or, where the stream is known to be the client's, MIN_CHAIN
  frames have plausible request headers (responses with small correlation ids look like Produce requests);
- as responses: when a frame of the chain answers a request that is outstanding, and decodes exactly as that API and
  version, or when RESPONSE_CHAIN frames have rising correlation ids;

and dropped when a frame of its chain is implausible. The search looks at the stream segment by segment, so that its
result does not depend on how packets were batched.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

from kafkasniff.kafka.other_protocols import is_gssapi_token
from kafkasniff.kafka.plausibility import BEGINNING, judge_request, may_begin_request
from kafkasniff.kafka.scan import (
    REQUEST_HEAD,
    RESPONSE_HEAD,
    SMALLEST_RESPONSE,
    scan_requests,
    scan_responses,
)
from kafkasniff.streams import Run

__all__ = [
    "MAX_SEARCH",
    "MIN_CHAIN",
    "RESPONSE_CHAIN",
    "SEARCH_LIMIT",
    "Requests",
    "Searcher",
]

MIN_CHAIN: Final = 2
RESPONSE_CHAIN: Final = 3
MAX_RISE: Final = 1000
"""Correlation ids of consecutive responses rise by less than this: by 1, or by more where acks 0 had no response."""
SEARCH_LIMIT: Final = 4 << 20
"""A stream that shows no candidate within so many bytes is not Kafka: four times the largest request that clients send
by default (max.request.size), since a capture may start anywhere in one."""
MAX_SEARCH: Final = 16 << 20
"""Bytes kept while searching; where no candidate was accepted by then, the older half is given up."""
MAX_CANDIDATES: Final = 64

_API_VERSIONS: Final = (18).to_bytes(2, "big")
_INT = Struct(">i")
_RESPONSE = Struct(">ii")


class Requests(Protocol):
    """What a search for responses has to know of the requests."""

    def __contains__(self, correlation_id: object, /) -> bool:
        """Whether a request with this correlation id is outstanding."""

    def is_next(self, correlation_id: int) -> bool:
        """Whether this could be the id of a response that comes next; True where nothing was seen of the connection."""

    def is_exact(self, correlation_id: int, message: bytes) -> bool:
        """Whether a message decodes to its last byte as the response to the outstanding request with this id."""


class _Candidate:
    """A possible frame start and how far its chain of frames was followed."""

    __slots__ = ("at", "correlation_id", "expected", "frames", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.at = start
        self.frames = 0
        self.correlation_id = -1
        self.expected: int | None = None
        """The first frame of a chain of responses that answers a request."""


class Searcher:
    """The bytes of one stream since its boundaries were lost, and the candidates among them."""

    __slots__ = (
        "_clipped",
        "_data",
        "_lengths",
        "_max_size",
        "_orders",
        "_packets",
        "_released",
        "_requests",
        "_responses",
        "_scanned_requests",
        "_scanned_responses",
        "_times",
        "accepted_requests",
        "aligned",
        "dropped",
    )

    def __init__(self, *, aligned: bool, max_size: int) -> None:
        self.aligned = aligned
        """The first byte is the stream's first: nothing but position 0 is a candidate."""
        self.accepted_requests = False
        """What was accepted last was a chain of requests."""
        self.dropped = 0
        """Bytes given up at the bound."""
        self._max_size = max_size
        self._data = bytearray()
        self._clipped = False
        """The first segment is not whole any more: its beginning was given up."""
        self._lengths: list[int] = []
        self._packets: list[int] = []
        self._times: list[int] = []
        self._orders: list[int] = []
        self._released: list[int] = []
        self._requests: list[_Candidate] = []
        self._responses: list[_Candidate] = []
        # How far each scan for candidates has come; 0 for the one that the stream's role rules out.
        self._scanned_requests = 0
        self._scanned_responses = 0

    def __len__(self) -> int:
        return len(self._data)

    @property
    def segments(self) -> int:
        """Segments that its bytes came in."""
        return len(self._lengths)

    @property
    def seen(self) -> bool:
        """The stream has had bytes."""
        return len(self._data) + self.dropped > 0

    def beginning(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        return bytes(self._data[:count])

    def add(self, run: Run, index: int, skip: int = 0) -> None:
        """Take one segment of a run, without its first `skip` bytes."""
        offset, length = run.offset[index] + skip, run.length[index] - skip
        if len(self._data) + length > MAX_SEARCH:
            self.drop(max(len(self._data) // 2, len(self._data) + length - MAX_SEARCH))
        begin = len(self._data)
        self._data += run.buffer[offset : offset + length]
        self._lengths.append(length)
        self._packets.append(run.packet[index])
        self._times.append(run.time[index])
        self._orders.append(run.order[index])
        self._released.append(run.released[index])
        if self.aligned:
            if begin == 0 and not self.dropped:
                self._requests = [_Candidate(0)]
                self._responses = [_Candidate(0)]
        elif len(self._responses) < MAX_CANDIDATES:
            self._responses.append(_Candidate(begin))

    def drop(self, count: int) -> None:
        """Give up the first `count` bytes (whole segments' bookkeeping included)."""
        count = min(count, len(self._data))
        del self._data[:count]
        self.dropped += count
        self._scanned_requests = max(self._scanned_requests - count, 0)
        self._scanned_responses = max(self._scanned_responses - count, 0)
        rest = count
        if count:
            self._clipped = False
        while rest and self._lengths:
            step = min(rest, self._lengths[0])
            rest -= step
            self._lengths[0] -= step
            self._clipped = self._lengths[0] > 0
            if not self._clipped:
                for column in (self._lengths, self._packets, self._times, self._orders, self._released):
                    del column[0]
        for candidates in (self._requests, self._responses):
            candidates[:] = [candidate for candidate in candidates if candidate.start >= count]
            for candidate in candidates:
                candidate.start -= count
                candidate.at -= count
                if candidate.expected is not None:
                    candidate.expected -= count

    def strip(self, count: int) -> None:
        """Take off a prologue: the stream begins behind it."""
        self.drop(count)
        self.dropped = 0
        if self.aligned and self._data:
            self._requests = [_Candidate(0)]
            self._responses = [_Candidate(0)]

    @property
    def began(self) -> bool:
        """At least one whole frame with a plausible request header stands at the stream's beginning."""
        return self.aligned and any(candidate.frames > 0 for candidate in self._requests)

    def forget(self) -> None:
        """Drop the bytes in front of the first candidate: nothing will start there any more."""
        if self.aligned:
            return
        needed = [candidate.start for candidate in (*self._requests, *self._responses)]
        needed += [scanned for scanned in (self._scanned_requests, self._scanned_responses) if scanned]
        if needed:
            self.drop(min(needed))

    def take(self, start: int) -> Run | None:
        """Everything from `start` on as a run; the searcher is empty then. None where there is nothing."""
        self.drop(start)
        if not self._lengths:
            return None
        ends: list[int] = []
        total = 0
        for length in self._lengths:
            total += length
            ends.append(total)
        offsets = [0, *ends[:-1]]
        count = len(ends)
        run = Run(
            bytes(self._data),
            offsets,
            self._lengths,
            ends,
            self._packets,
            self._times,
            self._orders,
            self._released,
            0,
            count,
        )
        self._data = bytearray()
        self._lengths, self._packets, self._times, self._orders, self._released = [], [], [], [], []
        return run

    # -- requests ---------------------------------------------------------------------------------------------------

    def find_request(self, chain: int | None) -> int | None:
        """Position of the first frame of an accepted chain of requests.

        `chain`: how many plausible ones suffice; None: one must decode exactly.
        """
        if not self.aligned:
            self._scan_for_requests()
        found: int | None = None
        for candidate in list(self._requests):
            verdict = self._follow_requests(candidate, chain)
            if verdict is None:
                continue
            if not verdict:
                self._requests.remove(candidate)
            elif found is None:
                found = candidate.start
        if found is None:
            return None
        # A candidate at a segment's start whose frame is still growing may hold the other one as payload: wait for it.
        for candidate in self._requests:
            if candidate.start < found and self._frame_end(candidate) > found and self._starts_segment(candidate.start):
                return None
        self.accepted_requests = True
        return found

    @property
    def hopeless_for_requests(self) -> bool:
        """Nothing here can be requests any more."""
        return self._is_hopeless(self._requests)

    def _scan_for_requests(self) -> None:
        """Add the positions not scanned yet whose first bytes look like a request's."""
        limit = len(self._data) - REQUEST_HEAD
        if limit < self._scanned_requests or len(self._requests) >= MAX_CANDIDATES:
            return
        positions = scan_requests(bytes(self._data[self._scanned_requests :]), self._max_size)
        for position in positions[: MAX_CANDIDATES - len(self._requests)].tolist():
            self._requests.append(_Candidate(self._scanned_requests + position))
        self._scanned_requests = limit + 1

    def _follow_requests(self, candidate: _Candidate, chain: int | None) -> bool | None:
        """True: accepted; False: implausible; None: more bytes are needed."""
        data = self._data
        while len(data) - candidate.at >= 4:
            size = _INT.unpack_from(data, candidate.at)[0]
            if size < 8 or size > self._max_size:
                return False
            start, end = candidate.at + 4, candidate.at + 4 + size
            if end > len(data):
                head = bytes(data[start : start + BEGINNING])
                return None if may_begin_request(head, aligned=self.aligned) else False
            frame = bytes(data[start:end])
            if self.aligned and candidate.frames == 0 and is_gssapi_token(frame, 0, size):
                return True
            judgement = judge_request(frame, 0, size, strict=not self.aligned)
            if judgement == "no":
                return False
            candidate.frames += 1
            candidate.at = end
            # What a client says first nearly always, maybe in a version newer than the definitions.
            greeting = self.aligned and frame.startswith(_API_VERSIONS)
            if judgement == "exact" or greeting or (chain is not None and candidate.frames >= chain):
                return True
        return None

    # -- responses --------------------------------------------------------------------------------------------------

    def find_response(self, requests: Requests, chain: int = RESPONSE_CHAIN) -> int | None:
        """Position of the first frame of an accepted chain of responses; `chain`: how many with rising ids suffice."""
        if not self.aligned:
            self._scan_for_responses(requests)
        for candidate in sorted(self._responses, key=lambda candidate: candidate.start):
            verdict = self._follow_responses(candidate, requests, chain)
            if verdict:
                self.accepted_requests = False
                return candidate.start
            if verdict is False:
                self._responses.remove(candidate)
        return None

    @property
    def hopeless_for_responses(self) -> bool:
        """Nothing here can be responses any more."""
        return self._is_hopeless(self._responses)

    def _scan_for_responses(self, requests: Requests) -> None:
        limit = len(self._data) - RESPONSE_HEAD
        if limit < self._scanned_responses:
            return
        known = {candidate.start for candidate in self._responses}
        # A response that starts within a segment: only where its correlation id is one that is waited for.
        for position in scan_responses(bytes(self._data[self._scanned_responses :]), self._max_size).tolist():
            at = self._scanned_responses + position
            if len(self._responses) >= MAX_CANDIDATES:
                break
            if _RESPONSE.unpack_from(self._data, at)[1] in requests and at not in known:
                self._responses.append(_Candidate(at))
        self._scanned_responses = limit + 1

    def _follow_responses(self, candidate: _Candidate, requests: Requests, chain: int) -> bool | None:
        data = self._data
        while len(data) - candidate.at >= 8:
            size, correlation_id = _RESPONSE.unpack_from(data, candidate.at)
            if size < SMALLEST_RESPONSE or size > self._max_size:
                return False
            expected = correlation_id in requests
            rise = correlation_id - candidate.correlation_id
            if not expected and (
                (candidate.frames and not 0 < rise < MAX_RISE) or not requests.is_next(correlation_id)
            ):
                return False
            end = candidate.at + 4 + size
            if end > len(data):
                return None
            if expected and candidate.expected is None:
                candidate.expected = candidate.at
            candidate.frames += 1
            if candidate.frames >= chain or (
                expected and requests.is_exact(correlation_id, bytes(data[candidate.at + 4 : end]))
            ):
                # What stands in front of the first frame that answers a request may be the end of a longer one: a field
                # of bytes there has a length prefix too, and ends where the frame does.
                if candidate.expected is not None:
                    candidate.start = candidate.expected
                return True
            candidate.correlation_id = correlation_id
            candidate.at = end
        if len(data) - candidate.at >= 4:
            size = _INT.unpack_from(data, candidate.at)[0]
            if size < SMALLEST_RESPONSE or size > self._max_size:
                return False
        return None

    # -- both -------------------------------------------------------------------------------------------------------

    def _is_hopeless(self, candidates: list[_Candidate]) -> bool:
        if self.aligned:
            return self.seen and not candidates
        return len(self._data) + self.dropped > SEARCH_LIMIT and not any(one.frames for one in candidates)

    def _frame_end(self, candidate: _Candidate) -> int:
        if len(self._data) - candidate.at < 4:
            return candidate.at
        size: int = _INT.unpack_from(self._data, candidate.at)[0]
        return candidate.at + 4 + size

    def _starts_segment(self, position: int) -> bool:
        total = 0
        for length in self._lengths:
            if total >= position:
                break
            total += length
        return total == position and not (position == 0 and self._clipped)
