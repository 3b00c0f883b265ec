"""The dialogue of a Kafka connection: classifies each frame, and pairs responses with requests.

`correlation.py` judges whether a response answers a request, `ends.py` ends their exchanges.
"""

from __future__ import annotations

from struct import Struct
from typing import Literal

from kafkasniff.engine.stream_questions import LEAST
from kafkasniff.kafka.apis.dissectors import SASL_HANDSHAKE
from kafkasniff.kafka.connection.events import Detail, Frame, MessageEvent, TokenEvent
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.messages.plausibility import AUTHENTICATION, MAX_KEY, Opening, is_likely_request, refusal
from kafkasniff.kafka.schema.context import ConnectionMemory
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Problem
from tests.oracle.kafka.acks import is_silent
from tests.oracle.kafka.correlation import elapsed, precedes
from tests.oracle.kafka.early import EarlyResponses
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.exchange import Pending
from tests.oracle.kafka.exchange_ends import ExchangeEnds
from tests.oracle.kafka.sasl import SCRAM_ANSWERS, RawSasl

_INT = Struct(">i")


class Dialogue(ExchangeEnds):
    """Frames of both streams in, messages, tokens and ends of exchanges into the log."""

    def __init__(self, log: EventLog, detail: Detail, *, every_end: bool = True) -> None:
        super().__init__(log, detail, every_end=every_end)
        self._sasl: RawSasl | None = None
        self._offered: str | None = None
        """Mechanism of an unanswered SaslHandshake v0: tokens may follow if the answer was lost."""
        self._early = EarlyResponses()
        self._ordinal = 0
        self._client_id: str | bytes | None = None
        """The first one of a request."""
        self.memory = ConnectionMemory()
        self.opening: Opening | None = Opening()
        """Until the first answer that is neither a greeting nor authentication, or until something does not fit."""
        self._short: list[tuple[str, int, int, int] | None] = [None, None]
        """By direction: kind, number, bytes and first packet of frames in a row that are too short, after the first."""
        self.unread_of = [0, 0]
        """Bytes of each stream's frames that are not messages, with their length prefixes."""

    def begin_raw_sasl(self) -> None:
        """Raw tokens of GSSAPI follow, as in Kafka 0.9."""
        self._sasl = RawSasl("GSSAPI")

    def close(self, reason: Literal["fin", "rst", "reused", "idle", "end"], left_ns: int = NO_TIME) -> None:
        """The connection and its exchanges have ended. `left_ns`: when the broker closed its side, if it did."""
        self._give_up(self._early.drain())
        for direction in (0, 1):
            self._end_short(direction)
        self._end_rest(reason, left_ns)

    def lose_requests(self) -> None:
        """Bytes are missing at the beginning of requests, or no request can be found in them."""
        self._requests_lost_before = self._ordinal

    def lose_responses(self, resumed_ns: int, *, has_head: bool) -> None:
        """Bytes are missing at the beginning of responses; `resumed_ns` and `has_head` as in `Ledger.gap`."""
        self._responses_lost = True
        for lost in self.ledger.gap(resumed_ns, has_head=has_head):
            self._end_without(lost, "lost")

    def frame(self, frame: Frame) -> None:
        """Process the next frame of either stream, in the order of their completion. Hot."""
        log = self._log
        log.at(frame.order, frame.time_ns, frame.last_seen)
        is_request = frame.direction == log.client
        if (self._sasl is not None or self._offered is not None) and self._is_token(frame, is_request):
            mechanism = None if self._sasl is None else self._sasl.mechanism
            log.events.append(TokenEvent(log.order, frame, is_request, mechanism))
            if self.opening is not None:
                self.opening.token(is_request=is_request, time_ns=frame.time_ns)
            return
        least = LEAST["request" if is_request else "response"]
        if frame.end - frame.start < least and not _incomplete(frame):
            self._too_short(frame, "request" if is_request else "response")
        else:
            self._end_short(frame.direction)
            if is_request:
                self._request(frame)
            else:
                self._response(frame)
        if self._early and self.requests == "here":
            self._give_up(self._early.tick())

    def _is_token(self, frame: Frame, is_request: bool) -> bool:
        """Whether a frame is a raw token, in an authentication or after a handshake whose answer is missing."""
        if is_request:
            if self._sasl is None:
                is_request_frame = is_likely_request(frame.data, frame.start, frame.end)
                offered, self._offered = self._offered, None
                if is_request_frame:
                    return False
                self._sasl = RawSasl(offered or None)
            return self._sasl.takes_request_frame(frame)
        if self._sasl is None:
            return False
        if len(self.ledger) and frame.end - frame.start >= 4:
            # If bytes are missing, tokens cannot be counted: a fitting answer ends them.
            correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
            if self.is_exact(correlation_id, frame.data[frame.start : frame.end]):
                return False
        return self._sasl.takes_response_frame(frame)

    def _request(self, frame: Frame) -> None:
        detail = self._detail
        cut = frame.end - frame.start != frame.size
        decoded = decode_request(
            frame.data, frame.start, frame.end, detail.decode, memory=self.memory, cut=cut, later=True
        )
        if decoded.api is None and not 0 <= (decoded.api_key or 0) <= MAX_KEY:
            self._unreadable(frame, "which are not a request")
            return
        if decoded.correlation_id is None and _incomplete(frame):
            self.lose_requests()
            self._unreadable(frame, f"truncated after {frame.end - frame.start} of them")
            return
        ordinal = self._ordinal
        self._ordinal += 1
        assert decoded.correlation_id is not None
        assert decoded.api_key is not None
        assert decoded.api_version is not None
        plan = request_plan(decoded.api_key, decoded.api_version)
        client_id = decoded.client_id
        if self._client_id is None:
            self._client_id = client_id
        if plan.header > 2 and client_id is None:
            client_id = self._client_id
        silent = is_silent(frame.data, frame.start, frame.end)
        hidden = detail.hides and not plan.needed
        self.turns.request(client_id)
        if hidden:
            detail.left_out.requests += 1
        else:
            problems = _incomplete(frame)
            if detail.level:
                problems += detail.omissions(decoded.api_key, is_request=True, has_body=decoded.body is not None)
            event = MessageEvent(self._log.order, ordinal, frame, True, decoded, client_id, problems)
            event.late = self.turns.over
            self._log.events.append(event)
        repeats = decoded.correlation_id == self._last_id
        self._ids_vary = self._ids_vary or not (repeats or self._last_id is None)
        self._ids_rise = self._ids_rise and (self._last_id is None or decoded.correlation_id > self._last_id)
        self._last_id = decoded.correlation_id
        mechanism = None
        if decoded.api_key == SASL_HANDSHAKE and decoded.api_version == 0 and decoded.body is not None:
            offered = decoded.body.get("mechanism")
            mechanism = self._offered = offered if isinstance(offered, str) else ""
        pending = Pending(
            ordinal,
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            client_id,
            frame.first_time,
            frame.time_ns,
            silent=silent,
            mechanism=mechanism,
            carry=decoded.carry,
            hidden=hidden,
        )
        if silent and self.opening is not None and self.opening.heard:
            # The client continued to produce: a broker that closes the connection now refuses a batch, not the client.
            self.opening = None
        if self._early:
            # If bytes are missing and ids may all be the same, earlier responses may answer another request.
            sure = not self.gapped or (self._ids_vary and not repeats)
            early = self._early.find(pending.correlation_id, pending.time_ns, may_precede=sure)
            if early is not None:
                self._pair(pending, early[1], (), early=early[0])
                return
        leaver = self.ledger.add(pending)
        if leaver is not None:
            if leaver.silent:
                self._end_silent(leaver)
            else:
                # Without any response so far the capture may lack them all, which is known at the connection's end.
                lost = leaver.lost or self.last_answer is None
                self._end_without(leaver, "lost" if lost else "unanswered", reported=leaver.lost or not lost)

    def _response(self, frame: Frame) -> None:
        if frame.end - frame.start < 4:
            self._responses_lost = True
            self._orphan(frame)
            return
        correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
        answered = None if self.gapped and self._is_stale(correlation_id, frame) else self.ledger.answer(correlation_id)
        problems: tuple[Problem, ...] = ()
        if answered is None:
            pending = self.ledger.answer_silent(correlation_id)
            if pending is None:
                if self.requests == "none":
                    self._orphan(frame)
                else:
                    self.opening = None
                    self._give_up(self._early.add(correlation_id, frame))
                return
            problems = (Problem("response-to-acks-0", "the broker answered a Produce request with acks 0"),)
        else:
            pending, passes = answered
            if passes:
                for lost in self.ledger.older_lost(pending.ordinal):
                    self._end_without(lost, "lost")
                if self.ledger.pass_over(pending.ordinal):
                    detail = "a response came before that of an earlier request"
                    problems = (Problem("response-out-of-order", detail),)
        for silent in self.ledger.silent_before(pending.ordinal):
            self._end_silent(silent)
        self._pair(pending, frame, problems)

    def _pair(self, pending: Pending, frame: Frame, problems: tuple[Problem, ...], *, early: int | None = None) -> None:
        """Pair a response with its request; `early`: its number if it was among the waiting ones."""
        repeats = not self._ids_rise or self._may_repeat(pending) or precedes(frame, pending)
        if self.gapped and repeats and self._is_unproven(pending, frame):
            # Ids repeat on some connections: if bytes are missing, the same id need not be the same exchange.
            self._leave_unpaired(frame, early)
            self._end_without(pending, "lost")
            return
        decoded = decode_response(
            frame.data,
            frame.start,
            frame.end,
            pending.api_key,
            pending.api_version,
            self._detail.decode,
            memory=self.memory,
            request=pending.carry,
            cut=frame.end - frame.start != frame.size,
            later=True,
        )
        self._pass_early(early)
        self.last_answer = pending.correlation_id
        latency = elapsed(pending.time_ns, frame.first_time)
        if pending.hidden:
            self._detail.left_out.responses += 1
            self.opening = None
            self.turns.response(pending, frame, latency)
            return
        duration = elapsed(pending.first_time, frame.time_ns)
        if latency is not None and latency < 0:
            detail = "the response begins before its request ends: the capture's order or clocks are off"
            problems = (*problems, Problem("latency-negative", detail))
        problems += _incomplete(frame)
        if pending.api_key in AUTHENTICATION and (refused := refusal(pending.api_key, decoded.body)) is not None:
            problems += (refused,)
        if self.opening is not None and not self.opening.answered(pending, decoded.body, frame.time_ns):
            self.opening = None
        if self._detail.level:
            problems += self._detail.omissions(pending.api_key, is_request=False, has_body=decoded.body is not None)
        self._log.events.append(
            MessageEvent(
                self._log.order, pending.ordinal, frame, False, decoded, pending.client_id, problems, latency, duration
            )
        )
        waited = self.turns.response(pending, frame, latency)
        self._end(pending.ordinal, "answered", latency, duration, waited)
        if pending.mechanism is not None:
            self._offered = None
            if self._sasl is None and decoded.body is not None and decoded.body.get("error_code") == 0:
                self._sasl = RawSasl(pending.mechanism or None)

    def _leave_unpaired(self, frame: Frame, early: int | None) -> None:
        """Process a response that does not answer the request with its id; `early` as in `_pair`."""
        if self.requests == "behind":
            # Its request may still arrive.
            self.opening = None
            if early is None:
                self._give_up(self._early.add(_INT.unpack_from(frame.data, frame.start)[0], frame))
            else:
                self._give_up(self._early.refuse(early))
            return
        if early is not None:
            self._early.remove(early)
        self._orphan(frame)

    def _pass_early(self, early: int | None) -> None:
        """A response found its request: those that waited before it will not find theirs. `early` as in `_pair`."""
        if early is not None:
            self._give_up(self._early.before(early))
            self._early.remove(early)
        elif self._early:
            self._give_up(self._early.drain())

    def _orphan(self, frame: Frame) -> None:
        self.opening = None
        if frame.end - frame.start < LEAST["response"]:
            self._unreadable(frame, "too few for a response")
            return
        correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
        if not self.is_near(correlation_id) or frame.data.startswith(SCRAM_ANSWERS, frame.start, frame.end):
            self._unreadable(frame, "which are not a response")
            return
        decoded = Decoded(correlation_id=correlation_id)
        problem = Problem("orphan-response", "no request with this correlation id was seen on this connection")
        ordinal = self._ordinal
        self._ordinal += 1
        self.turns.orphan(frame.time_ns)
        self._log.events.append(
            MessageEvent(self._log.order, ordinal, frame, False, decoded, None, (problem, *_incomplete(frame)))
        )
        self._end(ordinal, "orphan")

    def _too_short(self, frame: Frame, kind: str) -> None:
        """A frame that is too short for a message: the first one of a run is reported, the others with its end."""
        self._responses_lost = self._responses_lost or kind == "response"
        run = self._short[frame.direction]
        if run is None:
            self._short[frame.direction] = (kind, 0, 0, 0)
            self._unreadable(frame, f"too few for a {kind}")
            return
        _, count, size, packet = run
        more = 4 + frame.end - frame.start
        self.unread_of[frame.direction] += more
        self._short[frame.direction] = (kind, count + 1, size + more, packet if count else frame.first_packet)

    def _end_short(self, direction: int) -> None:
        run, self._short[direction] = self._short[direction], None
        if run is None or not run[1]:
            return
        kind, count, size, packet = run
        frames = "another frame" if count == 1 else f"{count:,} more frames in a row"
        what = f"of less than {LEAST[kind]} bytes, too few for a {kind}"
        detail = f"{frames} {what}, from packet {packet & PACKET_NUMBER} on"
        self._log.problem("frame-unreadable", detail, direction, size)

    def _unreadable(self, frame: Frame, what: str) -> None:
        """Report a frame that is not a message, without showing it: the bytes could be anything, even a token."""
        self.opening = None
        self.unread_of[frame.direction] += 4 + frame.end - frame.start
        self._log.problem("frame-unreadable", f"a frame of {frame.size} bytes, {what}", frame.direction, frame.size)

    def _give_up(self, frames: list[Frame]) -> None:
        """The requests of these responses will not arrive."""
        for frame in frames:
            self._orphan(frame)


def _incomplete(frame: Frame) -> tuple[Problem, ...]:
    """The problem of a frame with missing bytes at its end."""
    have = frame.end - frame.start
    if have == frame.size:
        return ()
    return (Problem("frame-incomplete", f"{have} of {frame.size} bytes of the message are in the capture", have),)
