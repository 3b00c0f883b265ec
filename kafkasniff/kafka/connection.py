"""One connection as Kafka: whether it is, where its frames are, what answers what.

Takes the items of a reassembled connection (streams.py) and yields events in capture order. What it yields depends on
the items of this connection only, not on how they were batched: while a boundary or the verdict is not known, the
streams are looked at segment by segment in capture order; once both streams are in step, whole stretches are cut at
once, which gives the same frames.

The verdict. Kafka has no magic number. A connection is Kafka when one request decodes to its last byte, or when
frames follow each other that plausibly are requests (or, where only the broker's side was captured, responses). With a
forced port the roles are given, and one plausible frame will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, Literal

import msgspec

from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.exchange import EARLY_FRAMES, Ledger, Pending, expects_no_response
from kafkasniff.kafka.framing import MAX_FRAME, Frame, Framer
from kafkasniff.kafka.message import Decoded, decode_request, decode_response, request_header
from kafkasniff.kafka.proxy import MAX_PROLOGUE, proxy_prologue
from kafkasniff.kafka.sasl import RawSasl
from kafkasniff.kafka.search import MIN_CHAIN, RESPONSE_CHAIN, Searcher, is_gssapi_token, name_protocol
from kafkasniff.model import Problem, Status
from kafkasniff.streams import NO_TIME, Closed, Gap, Item, Retransmit, Run, Started, Stretch, TcpProblem

__all__ = [
    "ConnectionOptions",
    "Event",
    "ExchangeEvent",
    "KafkaConnection",
    "MessageEvent",
    "ProblemEvent",
    "TokenEvent",
    "VerdictEvent",
]

_SASL_HANDSHAKE: Final = 17
_INT = Struct(">i")

Verdict = Literal["undecided", "kafka", "not-kafka"]


class ConnectionOptions(msgspec.Struct, frozen=True):
    """What all connections of a run have in common."""

    decode: DecodeOptions = DecodeOptions()
    max_frame: int = MAX_FRAME


class MessageEvent(msgspec.Struct):
    """A request or a response."""

    order: int
    ordinal: int
    """Ordinal of the exchange within the connection."""
    frame: Frame
    is_request: bool
    decoded: Decoded
    client_id: str | bytes | None
    problems: tuple[Problem, ...] = ()
    """What is to be told besides the decoder's problems."""
    latency_ns: int | None = None
    duration_ns: int | None = None


class ExchangeEvent(msgspec.Struct):
    """An exchange is over."""

    order: int
    ordinal: int
    status: Status
    latency_ns: int | None = None
    duration_ns: int | None = None
    problems: tuple[Problem, ...] = ()
    retransmits: int = 0


class TokenEvent(msgspec.Struct):
    """A raw SASL token."""

    order: int
    frame: Frame
    is_request: bool
    mechanism: str | None


class ProblemEvent(msgspec.Struct):
    """A problem of a stream."""

    order: int
    kind: str
    detail: str
    time_ns: int
    packet: int
    is_request: bool | None
    """Which stream; None where the roles are not known or the problem is of both."""
    bytes: int | None = None


class VerdictEvent(msgspec.Struct):
    """It is clear now whether the connection is Kafka."""

    order: int
    is_kafka: bool
    client: int | None
    """Direction of the client's stream."""
    detail: str
    time_ns: int
    packet: int


Event = MessageEvent | ExchangeEvent | TokenEvent | ProblemEvent | VerdictEvent


class _Trial:
    """Frames of a stream that a gap went through before it was in step: damaged, but their headers can be seen."""

    __slots__ = ("framer", "frames")

    def __init__(self, framer: Framer, frames: list[Frame]) -> None:
        self.framer = framer
        self.frames = frames


class KafkaConnection:
    """The state of one connection."""

    __slots__ = (
        "_client",
        "_closed",
        "_early",
        "_events",
        "_forced",
        "_framers",
        "_held_problems",
        "_ledger",
        "_now",
        "_options",
        "_ordinal",
        "_packet",
        "_proxied",
        "_retransmits",
        "_sasl",
        "_searchers",
        "_time",
        "_trials",
        "bytes_decoded",
        "bytes_lost",
        "bytes_seen",
        "verdict",
    )

    def __init__(self, options: ConnectionOptions, forced_client: int | None = None) -> None:
        self._options = options
        self._forced = forced_client is not None
        self._client = forced_client
        self.verdict: Verdict = "undecided"
        self._framers: list[Framer | None] = [None, None]
        self._searchers: list[Searcher] = [self._new_searcher(), self._new_searcher()]
        self._trials: list[_Trial | None] = [None, None]
        self._proxied = [False, False]
        self._ledger = Ledger()
        self._sasl: RawSasl | None = None
        self._early: list[tuple[int, Frame]] = []
        """Responses that wait for their request: (frames of patience left, frame)."""
        self._ordinal = 0
        self._retransmits = 0
        self._held_problems: list[TcpProblem] = []
        self._events: list[Event] = []
        self._now = 0
        self._time = NO_TIME
        self._packet = 0
        self._closed = False
        self.bytes_seen = 0
        """Bytes of both streams."""
        self.bytes_decoded = 0
        """Bytes of both streams that became frames."""
        self.bytes_lost = 0
        """Bytes of both streams that the capture lacks."""

    def feed(self, items: Sequence[Item]) -> list[Event]:
        """Take what happened on the connection; returns what it means, in capture order."""
        self._events = []
        for item in items:
            if isinstance(item, Stretch):
                self._stretch(item)
            elif isinstance(item, Retransmit):
                self._retransmits += 1
            elif isinstance(item, Started):
                self._started(item)
            elif isinstance(item, Gap):
                self._gap(item)
            elif isinstance(item, TcpProblem):
                self._tcp_problem(item)
            else:
                self._close(item)
        events, self._events = self._events, []
        return events

    # -- items ------------------------------------------------------------------------------------------------------

    def _new_searcher(self, *, aligned: bool = False) -> Searcher:
        return Searcher(aligned=aligned, max_size=self._options.max_frame)

    def _started(self, item: Started) -> None:
        if not self._forced and self._client is None and self.verdict == "undecided":
            self._client = item.direction if item.client else 1 - item.direction
        if self._framers[item.direction] is None and not len(self._searchers[item.direction]):
            self._searchers[item.direction] = self._new_searcher(aligned=True)

    def _stretch(self, item: Stretch) -> None:
        runs = item.runs
        for run in runs:
            if run is not None:
                self.bytes_seen += run.end[run.last - 1] - run.end[run.first] + run.length[run.first]
        if self.verdict == "not-kafka":
            return
        if self.verdict == "kafka" and all(
            run is None or framer is not None for run, framer in zip(runs, self._framers, strict=True)
        ):
            saved = [None if framer is None else framer.copy() for framer in self._framers]
            frames: list[Frame] = []
            in_step = True
            for run, framer in zip(runs, self._framers, strict=True):
                if run is not None and framer is not None:
                    frames += framer.cut(run, run.first, run.last)
                    in_step = in_step and framer.lost_at is None
            if in_step:
                if runs[0] is not None and runs[1] is not None:
                    frames.sort(key=itemgetter(0))
                for frame in frames:
                    self._frame(frame)
                return
            self._framers = saved
        segments = [
            (run.order[index], direction, run, index)
            for direction, run in enumerate(runs)
            if run is not None
            for index in range(run.first, run.last)
        ]
        segments.sort(key=itemgetter(0))
        for _, direction, run, index in segments:
            self._segment(direction, run, index)

    def _segment(self, direction: int, run: Run, index: int) -> None:
        """One segment, while the verdict or a boundary is not known."""
        if self.verdict == "not-kafka":
            return
        self._at(run.order[index], run.released[index], run.packet[index])
        framer = self._framers[direction]
        if framer is not None:
            self._cut(direction, framer, run, index, index + 1)
        elif self._trials[direction] is not None:
            self._try(direction, run, index)
        else:
            self._searchers[direction].add(run, index)
            self._search(direction)

    def _cut(self, direction: int, framer: Framer, run: Run, first: int, last: int) -> None:
        """Cut segments of a stream in step; where it falls out of step, search what follows."""
        for frame in framer.cut(run, first, last):
            self._frame(frame)
        lost_at = framer.lost_at
        if lost_at is None:
            return
        self._framers[direction] = None
        self._problem("frame-size", "a frame of impossible size: its stream is searched for the next frame", direction)
        searcher = self._searchers[direction] = self._new_searcher()
        for index in range(first, last):
            start = run.end[index] - run.length[index]
            if run.end[index] > lost_at:
                searcher.add(run, index, max(lost_at - start, 0))
                self._search(direction)
                if self._framers[direction] is not None:
                    rest = self._framers[direction]
                    assert rest is not None
                    if index + 1 < last:
                        self._cut(direction, rest, run, index + 1, last)
                    return

    def _gap(self, item: Gap) -> None:
        self.bytes_lost += item.size
        if self.verdict == "not-kafka":
            return
        direction = item.direction
        self._at(item.order, item.time_ns, item.packet)
        framer = self._framers[direction]
        if framer is None:
            self._gap_in_search(item)
            return
        if not item.snapped:
            detail = f"{item.size} bytes of the stream are not in the capture"
            self._problem("tcp-gap", detail, direction, item.size)
        in_step, frame = framer.gap(item.size, item.order, item.time_ns, item.packet)
        if frame is not None:
            self._frame(frame)
        if not in_step:
            self._framers[direction] = None
            self._searchers[direction] = self._new_searcher()
            if direction != self._client:
                self._ledger.gap()

    def _gap_in_search(self, item: Gap) -> None:
        direction = item.direction
        if self.verdict == "kafka" and not item.snapped:
            detail = f"{item.size} bytes of the stream are not in the capture"
            self._problem("tcp-gap", detail, direction, item.size)
        if self.verdict == "kafka" and direction != self._client:
            self._ledger.gap()
        trial = self._trials[direction]
        if trial is None:
            trial = self._begin_trial(direction)
        self._searchers[direction] = self._new_searcher()
        if trial is None:
            return
        in_step, frame = trial.framer.gap(item.size, item.order, item.time_ns, item.packet)
        if frame is not None:
            trial.frames.append(frame)
        self._trials[direction] = trial
        self._judge_trial(direction)
        if not in_step:
            self._trials[direction] = None
            self._framers[direction] = None

    def _tcp_problem(self, item: TcpProblem) -> None:
        if self.verdict == "undecided":
            self._held_problems.append(item)
        elif self.verdict == "kafka":
            self._tell(item)

    def _tell(self, item: TcpProblem) -> None:
        self._at(item.order, item.time_ns, item.packet)
        self._problem(item.kind, item.detail, item.direction, item.bytes)

    # -- trials: streams with gaps before their first whole frame -------------------------------------------

    def _begin_trial(self, direction: int) -> _Trial | None:
        """What is there so far, as frames, if it begins like one."""
        searcher = self._searchers[direction]
        beginning = searcher.beginning(32)
        if len(beginning) < 8:
            return None
        if self._client in (None, direction):
            # A client id may be longer than what there is: the header is judged by what stands before it.
            plausible = request_header(beginning[:12] + b"\xff\xff\0", 4, 15) is not None
        else:
            plausible = self.verdict == "kafka" and _INT.unpack_from(beginning, 4)[0] in self._ledger
        size = _INT.unpack_from(beginning)[0]
        if not plausible or not 4 <= size <= self._options.max_frame:
            return None
        run = searcher.take(0)
        assert run is not None
        framer = Framer(direction, self._options.max_frame)
        return _Trial(framer, framer.cut(run, run.first, run.last))

    def _try(self, direction: int, run: Run, index: int) -> None:
        trial = self._trials[direction]
        assert trial is not None
        trial.frames += trial.framer.cut(run, index, index + 1)
        if trial.framer.lost_at is not None:
            self._trials[direction] = None
            self._searchers[direction].add(run, index)
            self._search(direction)
            return
        self._judge_trial(direction)

    def _judge_trial(self, direction: int) -> None:
        trial = self._trials[direction]
        assert trial is not None
        if self._client in (None, direction):
            if any(request_header(frame.data, frame.start, frame.end) is None for frame in trial.frames):
                self._trials[direction] = None
                return
            enough = len(trial.frames) >= (1 if self.verdict == "kafka" or self._forced else 2)
        else:
            enough = self.verdict == "kafka" and bool(trial.frames)
        if not enough:
            return
        self._trials[direction] = None
        if self.verdict == "undecided":
            self._judge_kafka(direction if self._client is None else self._client)
        self._framers[direction] = trial.framer
        for frame in trial.frames:
            self._frame(frame)

    # -- searching --------------------------------------------------------------------------------------------------

    def _search(self, direction: int) -> None:
        """Look whether the bytes of a stream that is not in step tell where its frames are, and what it is."""
        while self._framers[direction] is None and self.verdict != "not-kafka":
            searcher = self._searchers[direction]
            if not len(searcher) or not self._without_prologue(direction, searcher):
                return
            start = self._find(direction, searcher)
            if start is None:
                if self.verdict == "undecided":
                    self._judge_hopeless(direction, searcher)
                return
            self._enter_step(direction, searcher, start)

    def _enter_step(self, direction: int, searcher: Searcher, start: int) -> None:
        skipped = start + searcher.dropped
        undecided = self.verdict == "undecided"
        if undecided:
            self._judge_kafka(self._role_of(direction))
        if skipped:
            detail = f"{skipped} bytes were passed over before the first frame that could be told"
            self._problem("stream-resync", detail, direction, skipped)
        run = searcher.take(start)
        assert run is not None
        if undecided and is_gssapi_token(run.buffer, 4, len(run.buffer)):
            self._sasl = RawSasl("GSSAPI")
        self._searchers[direction] = self._new_searcher()
        framer = self._framers[direction] = Framer(direction, self._options.max_frame)
        self._cut(direction, framer, run, run.first, run.last)
        if undecided:
            self._search(1 - direction)

    def _role_of(self, direction: int) -> int:
        """The client's direction, when the searcher of `direction` has just accepted a chain."""
        if self._client is not None:
            return self._client
        return direction if self._searchers[direction].accepted_requests else 1 - direction

    def _find(self, direction: int, searcher: Searcher) -> int | None:
        if self.verdict == "kafka" and searcher.aligned:
            return 0
        start = None
        if self._client in (None, direction):
            start = searcher.find_request(1 if self._forced else MIN_CHAIN)
        if start is None and self._client in (None, 1 - direction):
            chain = 1 if self._forced else RESPONSE_CHAIN
            start = searcher.find_response(self._ledger, self._is_exact_response, chain)
        return start

    def _is_exact_response(self, correlation_id: int, message: bytes) -> bool:
        pending = self._ledger.oldest(correlation_id)
        if pending is None:
            return False
        options = DecodeOptions(records="skip", show_secrets=True)
        decoded = decode_response(message, 0, len(message), pending.api_key, pending.api_version, options)
        return decoded.body is not None and not decoded.problems

    def _without_prologue(self, direction: int, searcher: Searcher) -> bool:
        """Take off a PROXY protocol header in front of the client's stream; False while it is not complete."""
        if self._proxied[direction] or not searcher.aligned or self._client not in (None, direction):
            return True
        prologue = proxy_prologue(searcher.beginning(MAX_PROLOGUE))
        if prologue is None:
            return False
        self._proxied[direction] = True
        length, detail = prologue
        if length:
            searcher.strip(length)
            self._problem("proxy-protocol", detail, direction, length, even_undecided=True)
        return len(searcher) > 0

    def _judge_hopeless(self, direction: int, searcher: Searcher) -> None:
        as_requests = self._client in (None, direction) and not searcher.hopeless_for_requests
        as_responses = self._client in (None, 1 - direction) and not searcher.hopeless_for_responses
        if as_requests or as_responses:
            return
        head = searcher.beginning(16)
        name = name_protocol(head)
        detail = f"this is {name}" if name else f"the first bytes are no Kafka: {head.hex(' ')}"
        self.verdict = "not-kafka"
        self._held_problems = []
        self._searchers = [self._new_searcher(), self._new_searcher()]
        self._trials = [None, None]
        self._events.append(VerdictEvent(self._now, False, self._client, detail, self._time, self._packet))

    def _judge_kafka(self, client: int) -> None:
        self.verdict = "kafka"
        self._client = client
        self._events.append(VerdictEvent(self._now, True, client, "", self._time, self._packet))
        held, self._held_problems = self._held_problems, []
        now = self._now, self._time, self._packet
        for item in held:
            self._problem(item.kind, item.detail, item.direction, item.bytes)
        self._at(*now)

    # -- frames -----------------------------------------------------------------------------------------------------

    def _at(self, order: int, time_ns: int, packet: int) -> None:
        self._now = max(self._now, order)
        self._time = time_ns
        self._packet = packet

    def _frame(self, frame: Frame) -> None:
        self._now = max(self._now, frame.order)
        self._time = frame.time_ns
        self._packet = frame.last_seen
        self.bytes_decoded += 4 + frame.end - frame.start
        is_request = frame.direction == self._client
        if self._sasl is not None:
            if is_request:
                if self._sasl.takes_request_frame(frame):
                    self._events.append(TokenEvent(self._now, frame, True, self._sasl.mechanism))
                    return
            elif self._sasl.takes_response_frame():
                self._events.append(TokenEvent(self._now, frame, False, self._sasl.mechanism))
                return
        if is_request:
            self._request(frame)
        else:
            self._response(frame)
        if self._early:
            self._wait_for_requests()

    def _request(self, frame: Frame) -> None:
        decoded = decode_request(frame.data, frame.start, frame.end, self._options.decode)
        ordinal = self._ordinal
        self._ordinal += 1
        self._events.append(
            MessageEvent(self._now, ordinal, frame, True, decoded, decoded.client_id, _incomplete(frame))
        )
        if decoded.correlation_id is None or decoded.api_key is None or decoded.api_version is None:
            self._end(ordinal, "unanswered")
            return
        mechanism = None
        if decoded.api_key == _SASL_HANDSHAKE and decoded.api_version == 0 and decoded.body is not None:
            mechanism = str(decoded.body.get("mechanism"))
        pending = Pending(
            ordinal,
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            decoded.client_id,
            frame.first_time,
            frame.time_ns,
            silent=expects_no_response(decoded.api_key, decoded.body),
            mechanism=mechanism,
        )
        if self._early and self._answer_early(pending):
            return
        leaver = self._ledger.add(pending)
        if leaver is not None:
            self._end_without(leaver, "lost" if leaver.lost else "unanswered")

    def _response(self, frame: Frame) -> None:
        if frame.end - frame.start < 4:
            self._orphan(frame)
            return
        correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
        answered = self._ledger.answer(correlation_id)
        problems: tuple[Problem, ...] = ()
        if answered is None:
            pending = self._ledger.answer_silent(correlation_id)
            if pending is None:
                if self._framers[1 - frame.direction] is None or frame.end - frame.start != frame.size:
                    # The client's stream is not there to have the request in it (yet).
                    self._orphan(frame)
                else:
                    self._early.append((EARLY_FRAMES + 1, frame))
                return
            problems = (Problem("response-to-acks-0", "the broker answered a Produce request with acks 0"),)
        else:
            pending, in_order = answered
            if not in_order:
                for lost in self._ledger.older_lost(pending.ordinal):
                    self._end_without(lost, "lost")
                if self._ledger.holds_before(pending.ordinal):
                    detail = "a response came before that of an earlier request"
                    problems = (Problem("response-out-of-order", detail),)
        for silent in self._ledger.silent_before(pending.ordinal):
            self._end(silent.ordinal, "no_response")
        self._pair(pending, frame, problems)

    def _pair(self, pending: Pending, frame: Frame, problems: tuple[Problem, ...]) -> None:
        decoded = decode_response(
            frame.data, frame.start, frame.end, pending.api_key, pending.api_version, self._options.decode
        )
        latency = _elapsed(pending.time_ns, frame.first_time)
        duration = _elapsed(pending.first_time, frame.time_ns)
        if latency is not None and latency < 0:
            detail = "the response begins before its request ends: the capture's order or clocks are off"
            problems = (*problems, Problem("latency-negative", detail))
        problems += _incomplete(frame)
        self._events.append(
            MessageEvent(
                self._now, pending.ordinal, frame, False, decoded, pending.client_id, problems, latency, duration
            )
        )
        self._end(pending.ordinal, "answered", latency, duration)
        if pending.mechanism is not None and decoded.body is not None and decoded.body.get("error_code") == 0:
            self._sasl = RawSasl(pending.mechanism)

    def _orphan(self, frame: Frame) -> None:
        correlation_id = None
        if frame.end - frame.start >= 4:
            correlation_id = _INT.unpack_from(frame.data, frame.start)[0]
        decoded = Decoded(correlation_id=correlation_id)
        problem = Problem("orphan-response", "no request with this correlation id was seen on this connection")
        ordinal = self._ordinal
        self._ordinal += 1
        self._events.append(
            MessageEvent(self._now, ordinal, frame, False, decoded, None, (problem, *_incomplete(frame)))
        )
        self._end(ordinal, "orphan")

    def _answer_early(self, pending: Pending) -> bool:
        for index, (_, frame) in enumerate(self._early):
            if _INT.unpack_from(frame.data, frame.start)[0] == pending.correlation_id:
                del self._early[index]
                self._pair(pending, frame, ())
                return True
        return False

    def _wait_for_requests(self) -> None:
        """One frame more has come: the patience of early responses runs out."""
        waiting = [(patience - 1, frame) for patience, frame in self._early]
        self._early = [(patience, frame) for patience, frame in waiting if patience]
        for patience, frame in waiting:
            if not patience:
                self._orphan(frame)

    # -- ends -------------------------------------------------------------------------------------------------------

    def _end(self, ordinal: int, status: Status, latency: int | None = None, duration: int | None = None) -> None:
        self._events.append(ExchangeEvent(self._now, ordinal, status, latency, duration, retransmits=self._retransmits))
        self._retransmits = 0

    def _end_without(self, pending: Pending, status: Status) -> None:
        """End an exchange that should have had a response and has none."""
        problems: tuple[Problem, ...] = ()
        if status == "unanswered":
            problems = (Problem("request-unanswered", "the connection ended without a response to this request"),)
        elif status == "lost":
            problems = (Problem("response-lost", "the response was in bytes that are not in the capture"),)
        self._end(pending.ordinal, status)
        event = self._events[-1]
        assert isinstance(event, ExchangeEvent)
        event.problems = problems

    def _close(self, item: Closed) -> None:
        if self._closed:
            return
        self._closed = True
        self._at(item.order, item.time_ns, item.packet)
        if self.verdict == "undecided" and self._client is not None:
            searcher = self._searchers[self._client]
            if searcher.began:
                # A connection that ended behind a request that is plausible only: nothing better will come.
                self._enter_step(self._client, searcher, 0)
        if self.verdict != "kafka":
            return
        for _, frame in self._early:
            self._orphan(frame)
        self._early = []
        for direction, framer in enumerate(self._framers):
            pending = framer.pending if framer is not None else len(self._searchers[direction])
            if pending:
                what = "of a frame that was not complete" if framer is not None else "in which no frame was found"
                self._problem("stream-cut", f"the stream ended with {pending} bytes {what}", direction, pending)
        for rest in self._ledger.drain():
            if rest.silent:
                self._end(rest.ordinal, "no_response")
            elif rest.lost:
                self._end_without(rest, "lost")
            else:
                self._end_without(rest, "open" if item.reason == "end" else "unanswered")

    def _problem(
        self, kind: str, detail: str, direction: int, count: int | None = None, *, even_undecided: bool = False
    ) -> None:
        if self.verdict == "undecided" and even_undecided:
            self._held_problems.append(TcpProblem(self._now, direction, kind, detail, self._packet, self._time, count))
            return
        is_request = None if self._client is None else direction == self._client
        self._events.append(ProblemEvent(self._now, kind, detail, self._time, self._packet, is_request, count))


def _incomplete(frame: Frame) -> tuple[Problem, ...]:
    """The problem of a frame that lacks bytes at its end."""
    have = frame.end - frame.start
    if have == frame.size:
        return ()
    return (Problem("frame-incomplete", f"{have} of {frame.size} bytes of the message are in the capture", have),)


def _elapsed(earlier: int, later: int) -> int | None:
    return None if NO_TIME in (earlier, later) else later - earlier
