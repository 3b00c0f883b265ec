"""Answers to what the stream engine asks in the middle of a packet: whether bytes fit, what TLS makes clear.

Items of connections that may be TLS come here, and those of the clear streams go back. Problems of TCP get their words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, Protocol

from kafkasniff.engine.connection_stats import REASONS
from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.connection.waits import answers_at_once
from kafkasniff.kafka.messages.message import Decoded, decode_response, request_header
from kafkasniff.kafka.messages.message_plan import INHERITS, request_plan, response_plan
from kafkasniff.kafka.messages.plausibility import (
    AUTHENTICATION,
    NAMED,
    TRIAL,
    TRUNCATED,
    does_not_fit,
    has_request_form,
    highest_versions,
    is_answer,
    is_likely_request,
    judge_request,
    may_be_request,
    may_begin_request,
    name_protocol,
    proxy_prologue,
)
from kafkasniff.kafka.schema.definition import pairing_program
from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import ENTER, NOTHING, PLAUSIBLE, QuestionKind, StreamEngine
from kafkasniff.tls.gate import TlsGate
from kafkasniff.tls.items import (
    Closed,
    Gap,
    Hole,
    Item,
    Late,
    Rejected,
    Retransmit,
    Segment,
    Started,
    TcpProblem,
    Wrapped,
)
from kafkasniff.tls.keylog import KeyLog

# -- words of problems -------------------------------------------------------------------------------------------------


MISSING_BYTES, ONE_DIRECTION, SYN_IGNORED, DATA_AFTER_RST, RST_IGNORED, RST_UNACKNOWLEDGED = range(6)
FIN_IGNORED, DATA_AFTER_FIN, OUT_OF_WINDOW = range(6, 9)
"""`stream_types.TcpProblem`."""
NO_BYTES: Final = -1
"""`stream_types.NO_BYTES`."""

TCP_KINDS: Final = (
    "tcp-gap",
    "one-direction",
    "tcp-syn-ignored",
    "tcp-data-after-rst",
    "tcp-rst-ignored",
    "tcp-rst-ignored",
    "tcp-fin-ignored",
    "tcp-data-after-fin",
    "tcp-out-of-window",
)
"""Kinds of problems, by number."""
UNREADABLE: Final = (
    "which are not a request",
    "truncated after {} of them",
    "too few for a {}",
    "which are not a response",
)
"""Why a frame is not a message, by number (`stream_types.Unreadable`)."""
TOO_SHORT: Final = 2
LEAST: Final = {"request": 8, "response": 4}
"""Bytes of a header: shorter frames cannot be a message."""

_DETAILS: Final = {
    SYN_IGNORED: "a SYN on an open connection was not followed by a new one",
    DATA_AFTER_RST: (
        "data that was sent after the other side had reset the connection: nobody reads it, and it is not decoded"
    ),
    FIN_IGNORED: "a FIN whose sequence number does not fit the stream",
    DATA_AFTER_FIN: "data after the end of the stream was ignored",
    OUT_OF_WINDOW: "data far outside the window was ignored",
}
_MAX_AHEAD: Final = 64 << 20
"""`stream_delivery.MAX_AHEAD`."""
_WITHOUT_BYTES: Final = frozenset({SYN_IGNORED, RST_IGNORED, RST_UNACKNOWLEDGED, FIN_IGNORED})


def tcp_problem(number: int, value: int, *, last: bool, is_client: bool) -> tuple[str, int | None]:
    """Detail and bytes of a TCP problem. `is_client`: it concerns the client's stream; `last`: of its kind."""
    if number == MISSING_BYTES:
        detail = f"{value} bytes of the stream are not in the capture"
    elif number == ONE_DIRECTION:
        captured, missing, by = (
            ("broker → client", "requests", "broker") if is_client else ("client → broker", "responses", "client")
        )
        detail = f"only {captured} was captured: the {by} acknowledged {value:,} bytes of {missing}"
    elif number == RST_IGNORED:
        detail = _reset(value, "the end of its stream")
    elif number == RST_UNACKNOWLEDGED:
        detail = _reset(value, "what its peer has sent, by its acknowledgement")
    else:
        detail = _DETAILS[number]
    if last:
        detail += " (further ones on this connection are not reported)"
    return detail, None if number in _WITHOUT_BYTES else value


def _reset(ahead: int, what: str) -> str:
    """A RST that is this many bytes ahead of an acceptable position."""
    side = "ahead of" if ahead > 0 else "behind"
    if 0 < ahead <= _MAX_AHEAD:
        guess = "bytes before it are not in the capture, or it is not of this connection"
    else:
        guess = "it is not of this connection"
    return f"a RST {abs(ahead):,} bytes {side} {what}: {guess}"


# -- items of connections that may be TLS ------------------------------------------------------------------------------


SEGMENT, STARTED, GAP, LATE, HOLE, RETRANSMIT, CLOSED, PROBLEM, WRAPPED, REJECTED, TEXT = range(11)
"""Kinds of items (`stream_types.Item`)."""
SNAPPED, UNHEARD, INEXACT = 1, 2, 4
NOT_KAFKA: Final = 2


class Says(Protocol):
    """Gives a text a number."""

    def __call__(self, kind: str, detail: str, *, likely: bool = False) -> int:
        """The number of a text."""


class StreamItems:
    """The TLS of one engine's connections. `keys`: returns the secrets; `say`: gives a text a number."""

    def __init__(self, engine: StreamEngine, keys: Callable[[], KeyLog], say: Says) -> None:
        self._engine = engine
        self._keys = keys
        self._say = say
        self.gates: dict[int, TlsGate] = {}
        """By connection."""
        self.tap: Callable[[Any], None] | None = None
        """Called with each item before that, if set."""

    def forget(self, connection: int) -> None:
        """A connection is over."""
        self.gates.pop(connection, None)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory."""
        return sum(gate.memory for gate in self.gates.values())

    def take(self, question: Any) -> int:
        """Take an item of a connection, and pass on what it makes clear. Returns 1 if the connection is not TLS."""
        if self.tap is not None:
            self.tap(question)
        gate = self.gates.get(question.connection)
        if gate is None:
            aligned = [bool(question.aligned[0]), bool(question.aligned[1])]
            gate = self.gates[question.connection] = TlsGate.after(aligned)
        wanted = question.verdict != NOT_KAFKA
        for item in gate.feed(self._item(question), self._keys(), wanted=wanted):
            self._pass(item)
        return int(gate.plain)

    def _item(self, question: Any) -> Item:
        direction, order, packet, time_ns = question.direction, question.order, question.packet, question.time
        kind = question.a
        if kind == SEGMENT:
            data = ctypes.string_at(question.data, question.size)
            return Segment(order, direction, data, packet, time_ns, question.released)
        if kind == STARTED:
            return Started(order, direction, client=bool(question.b))
        if kind == GAP:
            flags = question.c
            snapped, unheard = bool(flags & SNAPPED), bool(flags & UNHEARD)
            return Gap(order, direction, question.b, packet, time_ns, snapped, question.released, unheard=unheard)
        if kind == LATE:
            return Late(order, direction, ctypes.string_at(question.data, question.size), packet, time_ns)
        if kind == HOLE:
            return Hole(order, direction, bool(question.b))
        if kind == RETRANSMIT:
            return Retransmit(order, direction)
        if kind == PROBLEM:
            number = question.c
            detail, count = tcp_problem(number >> 1, question.b, last=bool(number & 1), is_client=False)
            return TcpProblem(order, direction, TCP_KINDS[number >> 1], detail, packet, time_ns, count)
        assert kind == CLOSED
        by = None if question.c < 0 else question.c
        return Closed(order, REASONS[question.b], packet, time_ns, by=by, by_ns=question.released)

    def _pass(self, item: Item) -> None:
        """Pass an item of the clear streams on."""
        if isinstance(item, Segment):
            place = item.order, item.packet, item.time_ns, item.released
            self._call(SEGMENT, item.direction, *place, data=item.data)
        elif isinstance(item, Started):
            self._call(STARTED, item.direction, item.order, size=int(item.client))
        elif isinstance(item, Gap):
            flags = SNAPPED * item.snapped | UNHEARD * item.unheard | INEXACT * (not item.exact)
            place = item.order, item.packet, item.time_ns, item.resumed_ns
            self._call(GAP, item.direction, *place, size=item.size, flags=flags)
        elif isinstance(item, Late):
            self._call(LATE, item.direction, item.order, item.packet, item.time_ns, data=item.data)
        elif isinstance(item, Hole):
            self._call(HOLE, item.direction, item.order, size=int(item.open))
        elif isinstance(item, Retransmit):
            self._call(RETRANSMIT, item.direction, item.order)
        elif isinstance(item, Wrapped):
            self._call(WRAPPED, item.direction, size=item.size)
        elif isinstance(item, Rejected):
            text = self._say(item.kind, item.detail, likely=item.likely)
            self._call(REJECTED, item.direction, item.order, item.packet, item.time_ns, flags=text)
        elif isinstance(item, TcpProblem):
            text, count = self._say(item.kind, item.detail), NO_BYTES if item.bytes is None else item.bytes
            self._call(TEXT, item.direction, item.order, item.packet, item.time_ns, size=count, flags=text)
        else:
            self._call(CLOSED, 0, item.order, item.packet, item.time_ns)

    def _call(
        self,
        kind: int,
        direction: int,
        *place: int,
        size: int = 0,
        flags: int = 0,
        data: bytes = b"",
    ) -> None:
        """Pass an item on; `place`: order, packet, its time, and when the bytes became contiguous."""
        item = self._engine.ask()
        item.a, item.b, item.c, item.direction = kind, size, flags, direction
        item.order, item.packet, item.time, item.released = (*place, 0, 0, 0, 0)[:4]
        item.data, item.size = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data)
        self._engine.pass_item(item)


# -- questions ---------------------------------------------------------------------------------------------------------


Text = tuple[str, str, bool]
"""Kind and detail of a problem; whether a connection that is not Kafka may well be Kafka that could not be decoded."""

_API_VERSIONS: Final = API_VERSIONS.to_bytes(2, "big")
_KNOWN, _USUAL, _TAGGED_ANSWER, _THROTTLED_AT_ONCE, _SERVED = (1 << bit for bit in range(2, 7))
"""Bits of the facts of a version (`stream_types.Traits`)."""


class StreamQuestions:
    """Answers the questions of one engine.

    - `texts`: what answers say in words, by number; cleared by the reader after each call of the engine
    - `keys`: returns the secrets that decrypt TLS
    - `options`: of the engine (`StreamEngine`)
    """

    def __init__(self, kernel: Kernel, keys: Any, *, max_frame: int, **options: Any) -> None:
        self.texts: list[Text] = []
        self.engine = StreamEngine(kernel, self._answer, max_frame=max_frame, **options)
        self.items = StreamItems(self.engine, keys, self.say)
        self.prologues: dict[tuple[int, int], bytes] | None = None
        """Receives what comes before the first frame of a stream, by connection and direction, if it is a dict."""
        self._kernel = kernel
        self._programs: dict[bytes, Program] = {}
        """Programs of pairing, which the engine refers to."""
        self._answers = {
            QuestionKind.FACTS: self._facts,
            QuestionKind.HIGHEST_VERSIONS: self._highest_versions,
            QuestionKind.PROLOGUE: self._prologue,
            QuestionKind.BEGINS_REQUEST: self._begins_request,
            QuestionKind.BEGINS_HEADER: self._begins_header,
            QuestionKind.BEGINS_RESPONSE: self._begins_response,
            QuestionKind.JUDGE_REQUEST: self._judge_request,
            QuestionKind.ANSWERS: self._is_answer,
            QuestionKind.AGAINST: self._against,
            QuestionKind.MAY_BE_REQUEST: self._may_be_request,
            QuestionKind.FITS: self._fits,
            QuestionKind.EXACT_RESPONSE: self._is_exact_response,
            QuestionKind.LIKELY_REQUEST: self._is_likely_request,
            QuestionKind.ITEM: self.items.take,
        }

    def forget(self, connection: int) -> None:
        """A connection is over."""
        self.items.forget(connection)

    def say(self, kind: str, detail: str, *, likely: bool = False) -> int:
        """The number of a text."""
        self.texts.append((kind, detail, likely))
        return len(self.texts) - 1

    def _answer(self, question: Any) -> int:
        answer: int = self._answers[question.kind](question)
        return answer

    # -- where frames begin -------------------------------------------------------------------------------------------

    @staticmethod
    def _highest_versions(question: Any) -> int:
        versions = highest_versions()
        question.data, question.size = versions.ctypes.data, len(versions)
        return NOTHING

    def _prologue(self, question: Any) -> int:
        found = proxy_prologue(_data(question))
        if found is None:
            return NOTHING
        length, detail = found
        if length:
            if self.prologues is not None:
                self.prologues[question.connection, question.direction] = ctypes.string_at(question.data, length)
            question.out_text, question.out_count = self.say("proxy-protocol", detail) + 1, length
        return ENTER

    def _against(self, question: Any) -> int:
        head = _data(question)
        name = name_protocol(head)
        if name is not None:
            reason = f"{NAMED}{name}"
        elif question.a:
            # The position of a length or magic number. Further bytes, or bytes in mid-stream, could be a secret.
            reason = f"its bytes are not Kafka; it begins with {head[:4].hex(' ')}"
        else:
            reason = "its bytes are not Kafka"
        question.out_text = self.say("not-kafka", reason) + 1
        return NOTHING

    def _begins_request(self, question: Any) -> int:
        head = _data(question)
        begins = may_begin_request(head, aligned=bool(question.b))
        return int(begins or (bool(question.c) and has_request_form(head, question.a)))

    def _begins_header(self, question: Any) -> int:
        # A client id may be longer than the available bytes: judge the header by the fields before it.
        header = _data(question) + b"\xff\xff\0"
        return int(request_header(header, 0, len(header), strict=True) is not None)

    def _begins_response(self, question: Any) -> int:
        return int(all(problem.kind in TRUNCATED for problem in _tried(question).problems))

    def _judge_request(self, question: Any) -> int:
        frame = _data(question)
        judgement = judge_request(frame, 0, len(frame), strict=bool(question.a))
        if judgement == "no" and not (question.c and has_request_form(frame, len(frame))):
            return NOTHING
        # Nearly always a client's first request, maybe in a version newer than the definitions.
        greeting = question.b and frame.startswith(_API_VERSIONS)
        return ENTER if judgement == "exact" or greeting else PLAUSIBLE

    def _is_answer(self, question: Any) -> int:
        return int(is_answer(ctypes.string_at(question.a, question.b), _data(question)))

    # -- whether bytes fit --------------------------------------------------------------------------------------------

    def _facts(self, question: Any) -> int:
        key, version = question.a, question.b
        plan, answer = request_plan(key, version), response_plan(key, version)
        tokens = False
        if plan.schema is not None and answer.schema is not None:
            tokens = any(field.tokens for field in plan.schema.root.fields)
            question.out_programs[0] = self._program(pairing_program(plan.schema.root))
            # The code shows that a response to ApiVersions is in another version.
            reads_code = tokens or key == API_VERSIONS
            question.out_programs[1] = self._program(pairing_program(answer.schema.root, reads_code=reads_code))
        # Messages that describe the connection have to be read before those that follow, even in the same batch. For an
        # unknown version only the header is read, which does not show whether a response is expected.
        unusual = plan.asks_connection or plan.needed or tokens or plan.header >= INHERITS
        unusual = unusual or (plan.silences and not plan.known_version)
        facts: int = plan.header | _KNOWN * (plan.api is not None)
        facts |= _USUAL * (not unusual) | _TAGGED_ANSWER * (answer.header > 0)
        facts |= _SERVED * (key != API_VERSIONS and key not in AUTHENTICATION)
        return facts | _THROTTLED_AT_ONCE * answers_at_once(key, version)

    def _program(self, program: bytes | None) -> int:
        """Its address; 0: there is none."""
        if program is None:
            return 0
        if program not in self._programs:
            self._programs[program] = Program(self._kernel, program)
        return self._programs[program].address

    def _may_be_request(self, question: Any) -> int:
        return int(may_be_request(_data(question), question.a, known=bool(question.b)))

    def _fits(self, question: Any) -> int:
        return int(not does_not_fit(_tried(question), cut=bool(question.c)))

    def _is_exact_response(self, question: Any) -> int:
        decoded = _tried(question)
        return int(decoded.body is not None and not decoded.problems)

    def _is_likely_request(self, question: Any) -> int:
        return int(is_likely_request(_data(question), 0, question.size))


def _tried(question: Any) -> Decoded:
    """A message that may be a response to a version of an API."""
    data = _data(question)
    return decode_response(data, 0, len(data), question.a, question.b, TRIAL)


def _data(question: Any) -> bytes:
    return ctypes.string_at(question.data, question.size) if question.size else b""
