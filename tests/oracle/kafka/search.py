"""Finding frames in a stream whose boundaries are unknown, and ruling out Kafka.

Needed if a capture starts in the middle of a connection, after a gap that contained a boundary, and for a connection
without a verdict. A `Searcher` follows the *candidates* in the stream's bytes (candidates.py): positions that could be
a frame's start, with the chain of frames that begins there. One is accepted

- as requests: if a frame of the chain decodes exactly, or, if the stream is known to be the client's, MIN_CHAIN frames
  have plausible request headers (responses with small correlation ids look like Produce requests);
- as responses: if a frame of the chain answers an outstanding request, and decodes exactly as that API and version, or
  if RESPONSE_CHAIN frames have rising correlation ids;
- as both: if a plausible request is followed by a response with its correlation id that decodes exactly as its API and
  version.

A candidate is dropped when a frame of its chain is implausible. The search processes the stream segment by segment, so
its result does not depend on the batching of packets.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final

from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.messages.plausibility import (
    BEGINNING,
    has_request_form,
    is_answer,
    is_gssapi_token,
    judge_request,
    may_begin_request,
)
from tests.oracle.kafka.candidates import CHUNK, FrameCandidate, FrameCandidates
from tests.oracle.kafka.correlation import Correlation
from tests.oracle.kafka.scan import RESPONSE_HEAD, SMALLEST_RESPONSE

MIN_CHAIN: Final = 2
RESPONSE_CHAIN: Final = 3
MAX_RISE: Final = 1000
"""Correlation ids of consecutive responses rise by less than this: by 1, or by more if requests had acks 0."""
MAX_FORM: Final = 1 << 20
"""Size of a request with an unknown API that a search waits for."""
MAX_ODD: Final = 64 << 10
"""Size of a plausible request that is examined together with a response: odd requests are small."""
MAX_ANSWER: Final = 1 << 20
"""Size of that response: Metadata of thousands of topics is smaller."""

_API_VERSIONS: Final = API_VERSIONS.to_bytes(2, "big")
_INT = Struct(">i")
_RESPONSE = Struct(">ii")
_REQUEST = Struct(">i4xi")
"""Size and correlation id."""


class Searcher(FrameCandidates):
    """A search in the bytes of one stream since its boundaries were lost."""

    def __init__(self, *, aligned: bool, max_size: int, forced: bool = False) -> None:
        super().__init__(aligned=aligned, max_size=max_size, forced=forced)
        self.accepted_requests = False
        """The last accepted chain was one of requests."""

    # -- requests ---------------------------------------------------------------------------------------------------

    def find_request(self, chain: int | None) -> int | None:
        """Position of the first frame of an accepted chain of requests.

        `chain`: how many plausible ones suffice; None: one must decode exactly.
        """
        if not self.aligned:
            self._scan_for_requests()
        if self._forced:
            self._requests.sort(key=lambda candidate: candidate.start)
        found: int | None = None
        for candidate in list(self._requests):
            verdict = self._follow_requests(candidate, chain)
            if verdict is None:
                continue
            if not verdict:
                self._requests.remove(candidate)
            elif found is None:
                found = candidate.start
                if not self._waits_for_earlier(found):
                    self.accepted_requests = True
                    return found
        return None

    def _waits_for_earlier(self, found: int) -> bool:
        """Whether a candidate at a segment's start, whose frame is still growing, may contain this one as payload."""
        return any(
            candidate.start < found and self._frame_end(candidate) > found and self._starts_segment(candidate.start)
            for candidate in self._requests
        )

    @property
    def hopeless_for_requests(self) -> bool:
        """No requests can be found here any more."""
        return self._is_hopeless(self._requests)

    def _follow_requests(self, candidate: FrameCandidate, chain: int | None) -> bool | None:
        """True: accepted; False: implausible; None: more bytes are needed."""
        data = self._data
        if len(data) < candidate.needed:
            return None
        while len(data) - candidate.at >= 4:
            size = _INT.unpack_from(data, candidate.at)[0]
            if size < 8 or size > self._max_size:
                return False
            start, end = candidate.at + 4, candidate.at + 4 + size
            if end > len(data):
                head = bytes(data[start : start + BEGINNING])
                if not (may_begin_request(head, aligned=self.aligned) or self._has_form(head, size)):
                    return False
                if len(head) == BEGINNING:
                    candidate.needed = end
                return None
            frame = bytes(data[start:end])
            if self.aligned and candidate.frames == 0 and is_gssapi_token(frame, 0, size):
                return True
            judgement = judge_request(frame, 0, size, strict=not self.aligned)
            if judgement == "no":
                if not self._has_form(frame, size):
                    return False
                judgement = "plausible"
            candidate.frames += 1
            candidate.at = end
            # Nearly always a client's first request, maybe in a version newer than the definitions.
            greeting = self.aligned and frame.startswith(_API_VERSIONS)
            if judgement == "exact" or greeting or (chain is not None and candidate.frames >= chain):
                return True
        return None

    def _has_form(self, head: bytes, size: int) -> bool:
        """Whether the beginning of a frame of `size` passes as a request if the user says that this is Kafka."""
        return self._forced and (self.aligned or size <= MAX_FORM) and has_request_form(head, size)

    # -- responses --------------------------------------------------------------------------------------------------

    def find_response(self, requests: Correlation, chain: int = RESPONSE_CHAIN) -> int | None:
        """Position of the first frame of an accepted chain of responses; `chain`: how many with rising ids suffice."""
        if not self.aligned:
            limit = len(self._data) - RESPONSE_HEAD
            while limit - self._scanned_responses >= CHUNK:
                self._scan_for_responses(requests)
                start = self._first_response(requests, chain, self._scanned_responses)
                if start is not None:
                    return start
            if limit >= self._scanned_responses:
                self._scan_for_responses(requests)
        return self._first_response(requests, chain, len(self._data))

    def restart_responses(self, order: int) -> None:
        """Restart chains of responses that begin after this packet: now the requests are known."""
        place = bisect_right(self._segments, order, key=lambda segment: segment.order)
        first = max(self._ends[place - 1] - self._base, 0) if place else 0
        for candidate in self._responses:
            if candidate.start >= first:
                candidate.at, candidate.frames, candidate.correlation_id = candidate.start, 0, -1
                candidate.expected = None
        self._scanned_responses = min(self._scanned_responses, first)

    def find_last_response(self) -> int | None:
        """At the stream's end: where frames start that begin with a segment, end with the stream, and fit a request."""
        for candidate in sorted(self._responses, key=lambda candidate: candidate.start):
            whole = candidate.at == len(self._data) and candidate.expected is not None
            if whole and self._starts_segment(candidate.start):
                self.accepted_requests = False
                return candidate.expected
        return None

    def _first_response(self, requests: Correlation, chain: int, stop: int) -> int | None:
        """The same among the candidates before `stop`."""
        for candidate in sorted(self._responses, key=lambda candidate: candidate.start):
            if candidate.start >= stop:
                break
            verdict = self._follow_responses(candidate, requests, chain)
            if verdict:
                self.accepted_requests = False
                return candidate.start
            if verdict is False:
                self._responses.remove(candidate)
        return None

    @property
    def hopeless_for_responses(self) -> bool:
        """No responses can be found here any more."""
        return self._is_hopeless(self._responses)

    def _follow_responses(self, candidate: FrameCandidate, requests: Correlation, chain: int) -> bool | None:
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
            # If the user says that this is Kafka, frames that begin and end with segments are responses.
            said = self._forced and self._starts_segment(candidate.start) and self._starts_segment(end)
            if (
                said
                or candidate.frames >= chain
                or (expected and requests.is_exact(correlation_id, bytes(data[candidate.at + 4 : end])))
            ):
                # Frames before the first one that answers a request may be the end of a longer one: a field of bytes
                # there has a length prefix too, and ends where the frame does.
                if candidate.expected is not None and not said:
                    candidate.start = candidate.expected
                return True
            candidate.correlation_id = correlation_id
            candidate.at = end
        if len(data) - candidate.at >= 4:
            size = _INT.unpack_from(data, candidate.at)[0]
            if size < SMALLEST_RESPONSE or size > self._max_size:
                return False
        return None

    # -- pairs ------------------------------------------------------------------------------------------------------

    def whole_requests(self) -> dict[int, int]:
        """Where complete plausible requests begin, the first of each chain, by correlation id.

        Among several with one id it is the last.
        """
        found: dict[int, int] = {}
        for candidate in self._requests:
            if candidate.frames:
                size, correlation_id = _REQUEST.unpack_from(self._data, candidate.start)
                if size <= MAX_ODD:
                    found[correlation_id] = candidate.start
        return found

    def message(self, start: int) -> tuple[bytes, int]:
        """The message of a whole frame that begins at `start`, and the order of the packet that completed it."""
        end = start + 4 + _INT.unpack_from(self._data, start)[0]
        return bytes(self._data[start + 4 : end]), self.order_at(end - 1)

    def find_answer(self, requests: dict[int, int], asked: Searcher) -> int | None:
        """Where the request begins in `asked` that an exactly decoded whole frame here, after it, answers."""
        for candidate in self._responses:
            if candidate.refuted or len(self._data) - candidate.start < RESPONSE_HEAD:
                continue
            size, correlation_id = _RESPONSE.unpack_from(self._data, candidate.start)
            start = requests.get(correlation_id)
            end = candidate.start + 4 + size
            if start is None or size > MAX_ANSWER or end > len(self._data):
                continue
            request, order = asked.message(start)
            if self.order_at(candidate.start) >= order:
                if is_answer(request, bytes(self._data[candidate.start + 4 : end])):
                    return start
                candidate.refuted = True
        return None
