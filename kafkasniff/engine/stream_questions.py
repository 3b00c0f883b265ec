"""Answers to what the stream engine asks in the middle of a packet: whether bytes fit, what TLS makes clear."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from kafkasniff.engine.stream_items import StreamItems
from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.connection.opening import AUTHENTICATION
from kafkasniff.kafka.connection.waits import answers_at_once
from kafkasniff.kafka.messages.message import Decoded, decode_response, request_header
from kafkasniff.kafka.messages.message_plan import INHERITS, request_plan, response_plan
from kafkasniff.kafka.messages.plausibility import (
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
from kafkasniff.kafka.schema.program import pairing_program
from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import ENTER, NOTHING, PLAUSIBLE, QuestionKind, StreamEngine

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
        self._memory: int | None = None
        """None: to be counted."""
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
        self._memory = None

    def recount(self) -> None:
        """The engine may have asked questions: count the memory again."""
        self._memory = None

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of TLS. Hot: asked for each request that is kept."""
        if self._memory is None:
            self._memory = self.items.memory
        return self._memory

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
