"""Which request a response answers: by its correlation id and, where bytes are missing, by its body as well."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, Literal

from kafkasniff.kafka.connection.events import Detail, Frame
from kafkasniff.kafka.messages.message import decode_response
from kafkasniff.kafka.messages.plausibility import TRIAL, TRUNCATED, does_not_fit, judge_request
from kafkasniff.model import NO_TIME
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.exchange import Ledger, Pending

_INT = Struct(">i")
NEAR: Final = 10_000
"""Outstanding responses have ids that differ by less than this from the last request's."""


class Correlation:
    """The correlation ids of a connection so far, and which of its bytes are missing.

    While ids only rise and nothing is missing, the id identifies the request. Otherwise the body of a response has to
    prove that it answers the request.
    """

    def __init__(self, log: EventLog, detail: Detail) -> None:
        self._log = log
        self._detail = detail
        self._last_id: int | None = None
        """Correlation id of the last request."""
        self._ids_vary = False
        """Two consecutive requests had different correlation ids: some clients use the same id for all."""
        self._ids_rise = True
        """Each request so far had a higher correlation id than the previous one: none is used twice."""
        self.last_answer: int | None = None
        """Correlation id of the last response that was paired."""
        self._requests_lost_before = -1
        """Requests may be missing between those below this ordinal and those from it on; -1: none."""
        self._responses_lost = False
        """Responses may be in missing bytes."""
        self.ledger = Ledger()
        self.gapped = False
        """Bytes of this connection are missing."""
        self.requests: Literal["none", "behind", "here"] = "none"
        """How much of the client's stream is available: nothing so far; less than the broker's, because of a hole or a
        search for its frames; or all of it."""

    @property
    def ids_rise(self) -> bool:
        """Whether each request so far had a higher correlation id than the previous one: none is used twice."""
        return self._ids_rise

    # -- what a search for responses asks -------------------------------------------------------------------------

    def __contains__(self, correlation_id: object) -> bool:
        return correlation_id in self.ledger

    def is_near(self, correlation_id: int) -> bool:
        """Whether this could be the id of a request of this connection; True if no request was seen."""
        return self._last_id is None or abs(correlation_id - self._last_id) < NEAR

    def is_next(self, correlation_id: int) -> bool:
        """Whether this could be the id of the next response; True if nothing was seen of the connection."""
        return self.is_near(correlation_id) and (self.last_answer is None or correlation_id > self.last_answer)

    def is_exact(self, correlation_id: int, message: bytes) -> bool:
        """Whether a message decodes exactly as the response to the outstanding request of this id."""
        pending = self.ledger.oldest(correlation_id)
        if pending is None:
            return False
        decoded = decode_response(message, 0, len(message), pending.api_key, pending.api_version, TRIAL)
        return decoded.body is not None and not decoded.problems

    def is_beginning_of_response(self, message: bytes) -> bool:
        """Whether the available part of a message decodes as a response to an outstanding request."""
        pending = self.ledger.oldest(_INT.unpack_from(message)[0])
        if pending is None:
            return False
        decoded = decode_response(message, 0, len(message), pending.api_key, pending.api_version, TRIAL)
        return all(problem.kind in TRUNCATED for problem in decoded.problems)

    def are_messages(self, frames: Sequence[Frame]) -> bool:
        """Whether each of these frames of one stream is exactly a request, or a response to an outstanding one."""
        for frame in frames:
            if frame.direction == self._log.client:
                if judge_request(frame.data, frame.start, frame.end, strict=True) != "exact":
                    return False
            elif frame.end - frame.start < 4 or not self.is_exact(
                _INT.unpack_from(frame.data, frame.start)[0], frame.data[frame.start : frame.end]
            ):
                return False
        return True

    # -- evidence besides the id, where bytes are missing -------------------------------------------------------------

    def _is_stale(self, correlation_id: int, frame: Frame) -> bool:
        """Whether a response answers a request in missing bytes that had the same id as the outstanding one.

        It began before that request was complete. The same is true if capture points disagree about the order; but then
        the id identifies it, and it fits.
        """
        pending = self.ledger.oldest(correlation_id)
        if pending is None or not precedes(frame, pending):
            return False
        if not self._ids_vary or self.ledger.has_same_id(correlation_id):
            return True
        return self._is_unproven(pending, frame)

    def _may_repeat(self, pending: Pending) -> bool:
        """Whether the response to a request may be lost, and a later request that is not available have the same id.

        Java clients restart their ids after authentication. The later request may be in missing bytes, or be held back
        after a hole: rising ids so far do not rule it out.
        """
        return self._responses_lost and (self.requests == "behind" or pending.ordinal < self._requests_lost_before)

    def _is_unproven(self, pending: Pending, frame: Frame) -> bool:
        """Whether only its id suggests that a response answers a request."""
        cut = frame.end - frame.start != frame.size
        if cut and (
            self._may_repeat(pending)
            or (precedes(frame, pending) and (self._requests_lost_before >= 0 or not self._ids_rise))
        ):
            # The beginning of a message fits many others.
            return True
        decoded = decode_response(frame.data, frame.start, frame.end, pending.api_key, pending.api_version, TRIAL)
        return does_not_fit(decoded, cut=cut)


def precedes(frame: Frame, pending: Pending) -> bool:
    """Whether a response begins before its request is complete."""
    return (elapsed(pending.time_ns, frame.first_time) or 0) < 0


def elapsed(earlier: int, later: int) -> int | None:
    """Nanoseconds between two times; None if one is unknown."""
    return None if NO_TIME in (earlier, later) else later - earlier
