"""The dialogue of a Kafka connection: what each frame is, and which response answers which request."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, Literal, NamedTuple

import msgspec

from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.detail import Detail
from kafkasniff.kafka.early import EarlyResponses
from kafkasniff.kafka.events import EventLog, ExchangeEvent, MessageEvent, TokenEvent
from kafkasniff.kafka.exchange import Ledger, Pending
from kafkasniff.kafka.framing import Frame
from kafkasniff.kafka.memory import ConnectionMemory
from kafkasniff.kafka.message import Decoded, decode_request, decode_response, read_rest
from kafkasniff.kafka.message_plan import request_plan, response_plan
from kafkasniff.kafka.named_apis import SASL_HANDSHAKE
from kafkasniff.kafka.opening import AUTHENTICATION, Opening, refusal
from kafkasniff.kafka.plausibility import MAX_KEY, is_exact_request, is_likely_request
from kafkasniff.kafka.sasl import SCRAM_ANSWERS, RawSasl
from kafkasniff.kafka.weight import EARLY_BYTES, REQUEST_BYTES, likely_bytes
from kafkasniff.model import Problem, Status
from kafkasniff.streams import NO_TIME

__all__ = ["CLOSED_BEFORE", "Dialogue", "Turn"]

_TRUNCATED: Final = ("body-truncated", "array-too-long")
"""Problems of a body that ends too early and is right up to there."""
NEAR: Final = 10_000
"""Outstanding responses have ids less than this away from the last request's."""
NS_IN_S: Final = 1_000_000_000
MOST_RETRANSMITS: Final = 0xFFFF
"""Retransmitted segments between two exchanges; with more of them, the kernel does not go on with a connection."""
CLOSED_BEFORE: Final = "the broker had closed it"
"""Of a request without a response, in its problem: it came behind the end of its connection."""
_INT = Struct(">i")
_TRIAL: Final = DecodeOptions(records="skip", show_secrets=True, inside=False)


class Turn(NamedTuple):
    """Where a dialogue is whose messages come in turn; the names are those of `Dialogue`."""

    ordinal: int
    last_id: int | None
    ids_vary: bool
    ids_rise: bool
    last_answer: int | None
    retransmits: int


class Dialogue:
    """Frames of both streams in, messages, tokens and ends of exchanges into the log."""

    __slots__ = (
        "_detail",
        "_early",
        "_every_end",
        "_ids_rise",
        "_ids_vary",
        "_last_id",
        "_log",
        "_offered",
        "_ordinal",
        "_requests_lost_before",
        "_responses_lost",
        "_sasl",
        "gapped",
        "last_answer",
        "ledger",
        "memory",
        "one_sided",
        "opening",
        "requests",
        "retransmits",
        "unread_of",
    )

    def __init__(self, log: EventLog, detail: Detail, *, every_end: bool = True) -> None:
        self._every_end = every_end
        self._log = log
        self._detail = detail
        self._sasl: RawSasl | None = None
        self._offered: str | None = None
        """Mechanism of a SaslHandshake v0 that is not answered: tokens may follow if the answer was lost."""
        self._early = EarlyResponses()
        self._last_id: int | None = None
        """Correlation id of the last request."""
        self._ids_vary = False
        """Two requests on end had different correlation ids: some clients give the same to all."""
        self._ids_rise = True
        """Each request so far had a higher correlation id than the one before: none is used twice."""
        self.last_answer: int | None = None
        """Correlation id of the last response that was paired."""
        self._ordinal = 0
        self._requests_lost_before = -1
        """Between the requests below this ordinal and those from it on, others may be in missing bytes; -1: nowhere."""
        self._responses_lost = False
        """Responses may be in missing bytes."""
        self.memory = ConnectionMemory()
        self.ledger = Ledger()
        self.opening: Opening | None = Opening()
        """Until the first answer that is neither a greeting nor authentication, or until something does not fit."""
        self.gapped = False
        """Bytes of this connection are missing."""
        self.one_sided = False
        """Responses were sent of which the capture has none: which requests they answered is unknown."""
        self.requests: Literal["none", "behind", "here"] = "none"
        """What is at hand of the client's stream: nothing so far; not all of it up to where the broker's is, because of
        a hole, or because its frames are searched for; or all that was sent."""
        self.retransmits = 0
        """Retransmitted segments since the last exchange ended."""
        self.unread_of = [0, 0]
        """Bytes of each stream's frames that are no message, with their length prefixes."""

    def begin_raw_sasl(self, mechanism: str) -> None:
        """Raw tokens follow."""
        self._sasl = RawSasl(mechanism)

    @property
    def early_bytes(self) -> int:
        """Bytes of the responses that wait for their requests."""
        return self._early.size

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory of the requests and responses that wait for each other; requests without what was decoded."""
        early = self._early
        return self.ledger.count * REQUEST_BYTES + early.size + len(early) * EARLY_BYTES

    # -- in step (in_step.py) -----------------------------------------------------------------------------------------

    def is_plain(self) -> bool:
        """Whether frames are messages, and a response that comes next answers the oldest request or does not fit."""
        return (
            self.opening is None
            and self.requests == "here"
            and not self.gapped
            and self._sasl is None
            and self._offered is None
            and not self._early
            and self.ledger.is_plain
            and not (self._every_end and self.retransmits > MOST_RETRANSMITS)
        )

    def hand_over(self) -> Turn:
        """Where a dialogue is that `is_plain`, in the numbers that change with each exchange."""
        return Turn(self._ordinal, self._last_id, self._ids_vary, self._ids_rise, self.last_answer, self.retransmits)

    def take_back(self, turn: Turn) -> None:
        """Go on with what was handed over, as it has become."""
        self._ordinal, self._last_id, self._ids_vary, self._ids_rise, self.last_answer, self.retransmits = turn

    @property
    def detail(self) -> Detail:
        """How much of messages is decoded."""
        return self._detail

    @property
    def ids_rise(self) -> bool:
        """Whether each request so far had a higher correlation id than the one before: none is used twice."""
        return self._ids_rise

    # What a search for responses asks: search.Requests.

    def __contains__(self, correlation_id: object) -> bool:
        return correlation_id in self.ledger

    def is_near(self, correlation_id: int) -> bool:
        """Whether this could be the id of a request of this connection; True where no request was seen."""
        return self._last_id is None or abs(correlation_id - self._last_id) < NEAR

    def is_next(self, correlation_id: int) -> bool:
        """Whether this could be the id of a response that comes next; True where nothing was seen of the connection."""
        return self.is_near(correlation_id) and (self.last_answer is None or correlation_id > self.last_answer)

    def is_exact(self, correlation_id: int, message: bytes) -> bool:
        """Whether a message decodes to its last byte as the response to the outstanding request of this id."""
        pending = self.ledger.oldest(correlation_id)
        if pending is None:
            return False
        decoded = decode_response(message, 0, len(message), pending.api_key, pending.api_version, _TRIAL)
        return decoded.body is not None and not decoded.problems

    def is_beginning_of_response(self, message: bytes) -> bool:
        """Whether what is there of a message decodes, as far as it goes, as a response to an outstanding request."""
        pending = self.ledger.oldest(_INT.unpack_from(message)[0])
        if pending is None:
            return False
        decoded = decode_response(message, 0, len(message), pending.api_key, pending.api_version, _TRIAL)
        return all(problem.kind in _TRUNCATED for problem in decoded.problems)

    def are_messages(self, frames: Sequence[Frame]) -> bool:
        """Whether each of these frames of one stream is a request, or a response to an outstanding one, exactly."""
        for frame in frames:
            if frame.direction == self._log.client:
                if not is_exact_request(frame.data, frame.start, frame.end):
                    return False
            elif frame.end - frame.start < 4 or not self.is_exact(
                _INT.unpack_from(frame.data, frame.start)[0], frame.data[frame.start : frame.end]
            ):
                return False
        return True

    def close(self, reason: Literal["fin", "rst", "reused", "idle", "end"], left_ns: int = NO_TIME) -> None:
        """The connection is over: so are its exchanges. `left_ns`: when the broker closed its side, where it did."""
        self._give_up(self._early.drain())
        for rest in self.ledger.drain():
            if rest.silent:
                self._end_silent(rest)
            elif rest.lost:
                self._end_without(rest, "lost")
            elif (late := _elapsed(left_ns, rest.first_time)) is not None and late > 0:
                # Such a request has no response, whenever the capture ends.
                self._end_without(rest, "unanswered", f"{CLOSED_BEFORE} {_span(late)} before the request")
            elif self.one_sided:
                self._end_without(rest, "lost", told=False)
            else:
                self._end_without(rest, "open" if reason == "end" else "unanswered")

    def lose_requests(self) -> None:
        """Bytes are missing where requests begin, or no request can be found in them."""
        self._requests_lost_before = self._ordinal

    def lose_responses(self, resumed_ns: int, *, has_head: bool) -> None:
        """Bytes are missing where responses begin; `resumed_ns` and `has_head` as in `Ledger.gap`."""
        self._responses_lost = True
        for lost in self.ledger.gap(resumed_ns, has_head=has_head):
            self._end_without(lost, "lost")

    def frame(self, frame: Frame) -> None:
        """Take the next frame of either stream, in the order of their completion. Hot."""
        log = self._log
        log.at(frame.order, frame.time_ns, frame.last_seen)
        is_request = frame.direction == log.client
        if (self._sasl is not None or self._offered is not None) and self._is_token(frame, is_request):
            mechanism = None if self._sasl is None else self._sasl.mechanism
            log.events.append(TokenEvent(log.order, frame, is_request, mechanism))
            if self.opening is not None:
                self.opening.token(is_request=is_request, time_ns=frame.time_ns)
            return
        if is_request:
            self._request(frame)
        else:
            self._response(frame)
        if self._early and self.requests == "here":
            self._give_up(self._early.tick())

    def _is_token(self, frame: Frame, is_request: bool) -> bool:
        """Whether a frame is a raw token, in an authentication or behind a handshake whose answer is not there."""
        if is_request:
            if self._sasl is None:
                is_request_frame = is_likely_request(frame.data, frame.start, frame.end)
                offered, self._offered = self._offered, None
                if is_request_frame:
                    return False
                self._sasl = RawSasl(offered)
            return self._sasl.takes_request_frame(frame)
        if self._sasl is None:
            return False
        if len(self.ledger) and frame.end - frame.start >= 4:
            # Where bytes are missing, tokens cannot be counted: an answer that fits is one.
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
            self._unreadable(frame, "which are no request")
            return
        if decoded.correlation_id is None and _incomplete(frame):
            self.lose_requests()
            self._unreadable(frame, f"cut after {frame.end - frame.start} of them")
            return
        ordinal = self._ordinal
        self._ordinal += 1
        if decoded.correlation_id is None or decoded.api_key is None or decoded.api_version is None:
            self._log.events.append(
                MessageEvent(self._log.order, ordinal, frame, True, decoded, decoded.client_id, _incomplete(frame))
            )
            self._end(ordinal, "unanswered")
            return
        hidden = detail.hides and not request_plan(decoded.api_key, decoded.api_version).needed
        if hidden:
            detail.left_out.requests += 1
        else:
            problems = _incomplete(frame)
            if detail.level:
                problems += detail.told(decoded.api_key, is_request=True, has_body=decoded.body is not None)
            self._log.events.append(
                MessageEvent(self._log.order, ordinal, frame, True, decoded, decoded.client_id, problems)
            )
        repeats = decoded.correlation_id == self._last_id
        self._ids_vary = self._ids_vary or not (repeats or self._last_id is None)
        self._ids_rise = self._ids_rise and (self._last_id is None or decoded.correlation_id > self._last_id)
        self._last_id = decoded.correlation_id
        mechanism = None
        if decoded.api_key == SASL_HANDSHAKE and decoded.api_version == 0 and decoded.body is not None:
            offered = decoded.body.get("mechanism")
            mechanism = self._offered = offered if isinstance(offered, str) else "?"
        pending = Pending(
            ordinal,
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            decoded.client_id,
            frame.first_time,
            frame.time_ns,
            silent=decoded.silent,
            mechanism=mechanism,
            carry=decoded.carry,
            hidden=hidden,
        )
        if decoded.silent and self.opening is not None and self.opening.heard:
            # It went on to produce: a broker that closes the connection now refuses a batch, and not the client.
            self.opening = None
        if self._early:
            # Where bytes are missing and ids may all be the same, what came before this request may answer another one.
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
                self._end_without(leaver, "lost" if lost else "unanswered", told=leaver.lost or not lost)

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

    def _is_stale(self, correlation_id: int, frame: Frame) -> bool:
        """Whether a response answers a request in missing bytes that had the same id as the one outstanding.

        It began before that one was there. So it does where capture points disagree about order, too; but then the id
        is enough to tell, and it fits.
        """
        pending = self.ledger.oldest(correlation_id)
        if pending is None or not _precedes(frame, pending):
            return False
        if not self._ids_vary or self.ledger.has_same_id(correlation_id):
            return True
        decoded = decode_response(frame.data, frame.start, frame.end, pending.api_key, pending.api_version, _TRIAL)
        return self._is_unproven(decoded, pending, frame)

    def _pair(self, pending: Pending, frame: Frame, problems: tuple[Problem, ...], *, early: int | None = None) -> None:
        """Take a response and its request together; `early`: the number that it had among those that waited."""
        if pending.hidden:
            self._detail.left_out.responses += 1
            self.opening = None
            self.last_answer = pending.correlation_id
            self._pass_early(early)
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
        if self.gapped:
            whole = read_rest(decoded)
            repeats = not self._ids_rise or self._may_repeat(pending) or _precedes(frame, pending)
            if repeats and self._is_unproven(self._to_judge(whole, pending, frame), pending, frame):
                # Ids repeat on some connections: where bytes are missing, the same id need not be the same exchange.
                self._leave_unpaired(frame, early)
                self._end_without(pending, "lost")
                return
            if self._detail.keeps(likely_bytes(whole.api_key, "response", frame.size, whole.body)):
                decoded = whole
        self._pass_early(early)
        self.last_answer = pending.correlation_id
        latency = _elapsed(pending.time_ns, frame.first_time)
        duration = _elapsed(pending.first_time, frame.time_ns)
        if latency is not None and latency < 0:
            detail = "the response begins before its request ends: the capture's order or clocks are off"
            problems = (*problems, Problem("latency-negative", detail))
        problems += _incomplete(frame)
        if pending.api_key in AUTHENTICATION and (refused := refusal(pending.api_key, decoded.body)) is not None:
            problems += (refused,)
        if self.opening is not None and not self.opening.answered(pending, decoded.body, frame.time_ns):
            self.opening = None
        if self._detail.level:
            problems += self._detail.told(pending.api_key, is_request=False, has_body=decoded.body is not None)
        self._log.events.append(
            MessageEvent(
                self._log.order, pending.ordinal, frame, False, decoded, pending.client_id, problems, latency, duration
            )
        )
        self._end(pending.ordinal, "answered", latency, duration)
        if pending.mechanism is not None:
            self._offered = None
            if self._sasl is None and decoded.body is not None and decoded.body.get("error_code") == 0:
                self._sasl = RawSasl(pending.mechanism)

    def _may_repeat(self, pending: Pending) -> bool:
        """Whether the response to a request may be lost, and a later one that is not at hand have the same id.

        Java clients restart their ids after authentication. The later request may be in missing bytes, or be held back
        behind a hole: that ids have risen so far does not rule it out.
        """
        return self._responses_lost and (self.requests == "behind" or pending.ordinal < self._requests_lost_before)

    def _is_unproven(self, decoded: Decoded, pending: Pending, frame: Frame) -> bool:
        """Whether nothing but its id shows that a response answers a request: `decoded`, all of it, as that."""
        cut = frame.end - frame.start != frame.size
        if cut and (
            self._may_repeat(pending)
            or (_precedes(frame, pending) and (self._requests_lost_before >= 0 or not self._ids_rise))
        ):
            # The beginning of a message is the beginning of many others.
            return True
        return _does_not_fit(decoded, cut=cut)

    def _leave_unpaired(self, frame: Frame, early: int | None) -> None:
        """Take a response that does not answer the request with its id; `early` as in `_pair`."""
        if self.requests == "behind":
            # The request that it answers may still come.
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
        """A response has its request: those that waited before it will not find theirs. `early` as in `_pair`."""
        if early is not None:
            self._give_up(self._early.before(early))
            self._early.remove(early)
        elif self._early:
            self._give_up(self._early.drain())

    def _to_judge(self, decoded: Decoded, pending: Pending, frame: Frame) -> Decoded:
        """The response with all that may be wrong with it, also where its body is not wanted.

        What is kept as bytes for columns is not looked at yet.
        """
        options = self._detail.decode
        if options.headers:
            options = msgspec.structs.replace(options, bodies=True, records="full")
        elif options.records == "columns" and response_plan(pending.api_key, pending.api_version).reads_records:
            options = msgspec.structs.replace(options, records="full")
        else:
            return decoded
        return decode_response(frame.data, frame.start, frame.end, pending.api_key, pending.api_version, options)

    def _orphan(self, frame: Frame) -> None:
        self.opening = None
        if frame.end - frame.start < 4:
            self._unreadable(frame, "too few for a response")
            return
        correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
        if not self.is_near(correlation_id) or frame.data.startswith(SCRAM_ANSWERS, frame.start, frame.end):
            self._unreadable(frame, "which are no response")
            return
        decoded = Decoded(correlation_id=correlation_id)
        problem = Problem("orphan-response", "no request with this correlation id was seen on this connection")
        ordinal = self._ordinal
        self._ordinal += 1
        self._log.events.append(
            MessageEvent(self._log.order, ordinal, frame, False, decoded, None, (problem, *_incomplete(frame)))
        )
        self._end(ordinal, "orphan")

    def _unreadable(self, frame: Frame, what: str) -> None:
        """Nothing that is not a message may be shown as one: these bytes could be anything, a token too."""
        self.opening = None
        self.unread_of[frame.direction] += 4 + frame.end - frame.start
        self._log.problem("frame-unreadable", f"a frame of {frame.size} bytes, {what}", frame.direction, frame.size)

    def _give_up(self, frames: list[Frame]) -> None:
        """The requests of these responses will not come."""
        for frame in frames:
            self._orphan(frame)

    # -- ends -------------------------------------------------------------------------------------------------------

    def _end(self, ordinal: int, status: Status, latency: int | None = None, duration: int | None = None) -> None:
        if not self._every_end and status in ("answered", "orphan"):
            return
        log = self._log
        log.events.append(
            ExchangeEvent(
                log.order, ordinal, status, log.time_ns, log.packet, latency, duration, retransmits=self.retransmits
            )
        )
        self.retransmits = 0

    def _end_silent(self, pending: Pending) -> None:
        """End an exchange that needed no response."""
        if not pending.hidden:
            self._end(pending.ordinal, "no_response")

    def _end_without(self, pending: Pending, status: Status, reason: str = "", *, told: bool = True) -> None:
        """End an exchange that should have had a response and has none.

        `reason`: why, in words; `told`: whether the loss is reported here and not for the connection as a whole.
        """
        problems: tuple[Problem, ...] = ()
        if status == "unanswered":
            detail = "the connection ended without a response to this request"
            problems = (Problem("request-unanswered", f"{detail}: {reason}" if reason else detail),)
        elif status == "lost" and told:
            problems = (Problem("response-lost", "the response was in bytes that are not in the capture"),)
        if pending.hidden:
            client = self._log.client
            assert client is not None  # there was a request
            for problem in problems:
                what = f"API {pending.api_key} v{pending.api_version} corr {pending.correlation_id}, not shown"
                self._log.problem(problem.kind, f"{what}: {problem.detail}", client)
            return
        self._end(pending.ordinal, status)
        event = self._log.events[-1]
        assert isinstance(event, ExchangeEvent)
        event.problems = problems


def _does_not_fit(decoded: Decoded, *, cut: bool) -> bool:
    """Whether a body was not read exactly to its end (of a cut message: as far as it is there), although it should."""
    # Whether secrets are shown is no matter here.
    kinds = {problem.kind for problem in decoded.problems} - {"body-withheld"}
    if decoded.raw is None and decoded.raw_redacted is None:
        return "trailing-bytes" in kinds or (cut and bool(kinds))
    return "version-unknown" not in kinds and not (cut and kinds.issubset(_TRUNCATED))


def _incomplete(frame: Frame) -> tuple[Problem, ...]:
    """The problem of a frame that lacks bytes at its end."""
    have = frame.end - frame.start
    if have == frame.size:
        return ()
    return (Problem("frame-incomplete", f"{have} of {frame.size} bytes of the message are in the capture", have),)


def _precedes(frame: Frame, pending: Pending) -> bool:
    """Whether a response begins before its request is complete."""
    return (_elapsed(pending.time_ns, frame.first_time) or 0) < 0


def _span(nanoseconds: int) -> str:
    """A time for people."""
    if nanoseconds < NS_IN_S:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    return f"{nanoseconds / NS_IN_S:,.1f} s"


def _elapsed(earlier: int, later: int) -> int | None:
    return None if NO_TIME in (earlier, later) else later - earlier
