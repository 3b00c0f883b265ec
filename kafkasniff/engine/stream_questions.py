"""Answers to the questions of the stream engine: is this Kafka, where do frames begin, do these bytes fit.

An answer depends on the bytes in the question, and on the engine's outstanding requests. A search that is not kept
between questions is made again from these bytes; only TLS has a state of its own (`StreamItems`).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from kafkasniff.engine.stream_items import StreamItems
from kafkasniff.kafka.connection.boundaries import Boundaries
from kafkasniff.kafka.connection.fitting import NEAR, TRIAL, TRUNCATED, does_not_fit
from kafkasniff.kafka.connection.proxy import MAX_PROLOGUE
from kafkasniff.kafka.messages.message import Decoded, DecodeOptions, decode_response
from kafkasniff.kafka.messages.message_plan import INHERITS, request_plan, response_plan
from kafkasniff.kafka.messages.other_protocols import is_gssapi_token
from kafkasniff.kafka.messages.plausibility import is_exact_request, is_likely_request, may_be_request
from kafkasniff.kafka.schema.program import pairing_program
from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import ENTER, NOT_KAFKA, NOTHING, QuestionKind, StreamEngine
from kafkasniff.tcp.segments import Gap, Run

__all__ = ["StreamQuestions", "Text"]

Text = tuple[str, str, bool]
"""Kind and detail of a problem; whether a connection that is not Kafka may well be Kafka that could not be decoded."""

_FULL: Final = DecodeOptions()
_KNOWN, _USUAL, _TAGGED_ANSWER = 1 << 2, 1 << 3, 1 << 4
"""Bits of the facts of a version (`stream_types.Traits`)."""


class _Client:
    """The side that is the client, as far as it is known: what `Boundaries` needs of a log."""

    client: int | None = None


class _Requests:
    """The outstanding requests of the connection of the present question: `search.Requests`."""

    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine

    def __contains__(self, correlation_id: object) -> bool:
        assert isinstance(correlation_id, int)
        return self._engine.oldest(correlation_id) is not None

    def is_next(self, correlation_id: int) -> bool:
        asked, answered = self._engine.ids()
        is_near = asked is None or abs(correlation_id - asked) < NEAR
        return is_near and (answered is None or correlation_id > answered)

    def is_exact(self, correlation_id: int, message: bytes) -> bool:
        decoded = self._decoded(correlation_id, message)
        return decoded is not None and decoded.body is not None and not decoded.problems

    def is_beginning_of_response(self, message: bytes) -> bool:
        decoded = self._decoded(int.from_bytes(message[:4], "big", signed=True), message)
        return decoded is not None and all(problem.kind in TRUNCATED for problem in decoded.problems)

    def _decoded(self, correlation_id: int, message: bytes) -> Decoded | None:
        asked = self._engine.oldest(correlation_id)
        return None if asked is None else decode_response(message, 0, len(message), *asked, TRIAL)


class _Search(Boundaries):
    """The streams of one connection whose boundaries are unknown."""

    __slots__ = ("fresh", "generation", "stripped")

    def __init__(self, requests: Any, *, forced: bool, max_frame: int) -> None:
        super().__init__(_Client(), requests, forced=forced, max_frame=max_frame)
        self.generation = [-1, -1]
        self.stripped = [0, 0]
        """Bytes of a prologue that were removed from each stream."""
        self.fresh = [True, True]
        """Each stream has not been searched since it was made from the engine's bytes."""

    def update(self, question: Any, piece: np.dtype[Any]) -> None:
        """Take what the engine collected since."""
        self._log.client = None if question.client < 0 else question.client
        for direction in (0, 1):
            if self.generation[direction] != question.generation[direction]:
                self._begin(direction, question)
            if question.pieces_count[direction]:
                self._add(direction, question, piece)

    def _begin(self, direction: int, question: Any) -> None:
        """A search begins, or is made again."""
        self.generation[direction] = question.generation[direction]
        self._searchers[direction] = None
        self._proxied[direction] = False
        self.stripped[direction], self.fresh[direction] = 0, True
        base = question.base[direction]
        if question.aligned[direction]:
            self.begin(direction)
        if not base:
            return
        if question.aligned[direction] and base <= MAX_PROLOGUE:
            self.stripped[direction], self._proxied[direction] = base, True
        else:
            self.searcher(direction).dropped = base

    def _add(self, direction: int, question: Any, dtype: np.dtype[Any]) -> None:
        """Add the segments that are new."""
        searcher = self.searcher(direction)
        known = self.place(direction, len(searcher))
        count, base = question.pieces_count[direction], question.base[direction]
        size = count * dtype.itemsize
        pieces = np.frombuffer((ctypes.c_char * size).from_address(question.pieces[direction]), dtype)
        first = int(np.searchsorted(pieces["end"], known, side="right"))
        at = max(known, base)
        for packet, time_ns, order, released, end in pieces[first:].tolist():
            data = ctypes.string_at(question.bytes[direction] + at - base, end - at)
            length = len(data)
            searcher.add(Run(data, [0], [length], [length], [packet], [time_ns], [order], [released], 0, 1), 0)
            at = end

    def place(self, direction: int, position: int) -> int:
        """A position in a search as the engine counts it."""
        return self.stripped[direction] + self.searcher(direction).dropped + position

    def has_bytes(self, direction: int) -> bool:
        """Whether bytes of the stream are searched."""
        return self.collected(direction) > 0


class StreamQuestions:
    """Answers the questions of one engine.

    - `texts`: what answers say in words, by number; cleared by the reader after each call of the engine
    - `keys`: returns the secrets that decrypt TLS
    - `options`: of the engine (`StreamEngine`)
    """

    def __init__(self, kernel: Kernel, keys: Any, *, max_frame: int, **options: Any) -> None:
        self._max_frame = max_frame
        self.texts: list[Text] = []
        self.engine = StreamEngine(kernel, self._answer, max_frame=max_frame, **options)
        self.items = StreamItems(self.engine, keys, self.say)
        self._requests = _Requests(self.engine)
        self._searches: dict[int, _Search] = {}
        self.prologues: dict[tuple[int, int], bytes] | None = None
        """Receives what comes before the first frame of a stream, by connection and direction, if it is a dict."""
        self._kernel = kernel
        self._programs: dict[bytes, Program] = {}
        """Programs of pairing, which the engine refers to."""
        self._memory: int | None = None
        """None: to be counted."""
        self._answers = {
            QuestionKind.FACTS: self._facts,
            QuestionKind.SEEK: self._seek,
            QuestionKind.BEGIN_TRIAL: self._begin_trial,
            QuestionKind.MAY_BE_REQUEST: self._may_be_request,
            QuestionKind.FITS: self._fits,
            QuestionKind.EXACT_RESPONSE: self._is_exact_response,
            QuestionKind.EXACT_REQUEST: self._is_exact_request,
            QuestionKind.LIKELY_REQUEST: self._is_likely_request,
            QuestionKind.BEGAN: self._began,
            QuestionKind.LAST_RESPONSE: self._last_response,
            QuestionKind.ITEM: self.items.take,
        }

    def forget(self, connection: int) -> None:
        """A connection is over."""
        self._searches.pop(connection, None)
        self.items.forget(connection)
        self._memory = None

    def recount(self) -> None:
        """The engine may have asked questions: count the memory again."""
        self._memory = None

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of searches and of TLS. Hot: asked for each request that is kept."""
        if self._memory is None:
            searches = sum(one.memory_bytes(0) + one.memory_bytes(1) for one in self._searches.values())
            self._memory = searches + self.items.memory
        return self._memory

    def say(self, kind: str, detail: str, *, likely: bool = False) -> int:
        """The number of a text."""
        self.texts.append((kind, detail, likely))
        return len(self.texts) - 1

    def _answer(self, question: Any) -> int:
        answer: int = self._answers[question.kind](question)
        return answer

    # -- where frames begin -------------------------------------------------------------------------------------------

    def _search(self, question: Any) -> _Search:
        found = self._searches.get(question.connection)
        if found is None:
            forced = bool(question.forced)
            found = _Search(self._requests, forced=forced, max_frame=self._max_frame)
            self._searches[question.connection] = found
        found.update(question, self.engine.piece)
        return found

    def _enter(self, question: Any, search: _Search, direction: int, start: int) -> int:
        searcher = search.searcher(direction)
        question.position, question.out_direction = search.place(direction, start), direction
        question.out_skipped = start + searcher.dropped
        if question.verdict == 0:
            question.out_client = search.client_by(direction)
            search._log.client = question.out_client
            if direction == question.out_client:
                search.restart_responses(1 - direction, searcher.order_at(start))
            beginning = searcher.beginning(len(searcher))[start:]
            question.out_flag = is_gssapi_token(beginning, 4, len(beginning))
        if not search.has_bytes(1 - direction):
            self._searches.pop(question.connection, None)
        return ENTER

    def _seek(self, question: Any) -> int:
        search, direction = self._search(question), question.direction
        searcher = search.searcher(direction)
        search.fresh[direction] = False
        if question.a:
            search.restart_responses(direction)
        if not len(searcher):
            return NOTHING
        prologue = search.take_prologue(direction)
        if prologue is None:
            question.keep = search.place(direction, 0)
            return NOTHING
        length, detail = prologue
        if length:
            if self.prologues is not None:
                at = question.bytes[direction] + search.stripped[direction] - question.base[direction]
                self.prologues[question.connection, direction] = ctypes.string_at(at, length)
            search.stripped[direction] += length
            question.out_text, question.out_count = self.say("proxy-protocol", detail) + 1, length
            if not len(searcher):
                question.keep = search.place(direction, 0)
                return NOTHING
        start = search.find(direction, kafka=question.verdict == 1)
        if start is not None:
            return self._enter(question, search, direction, start)
        if question.verdict == 0:
            exchange = search.find_exchange()
            if exchange is not None:
                return self._enter(question, search, *exchange)
            reason = search.reason_against(direction, peer_held=bool(question.peer_hole))
            if reason is not None:
                question.out_text = self.say("not-kafka", reason) + 1
                return NOT_KAFKA
        search.forget(direction)
        question.keep = search.place(direction, 0)
        return NOTHING

    def _began(self, question: Any) -> int:
        search, direction = self._search(question), question.direction
        if search.fresh[direction]:
            search.find(direction, kafka=False)
        return self._enter(question, search, direction, 0) if search.searcher(direction).began else NOTHING

    def _last_response(self, question: Any) -> int:
        search, direction = self._search(question), question.direction
        if search.fresh[direction]:
            search.find(direction, kafka=True)
        start = search.searcher(direction).find_last_response()
        return NOTHING if start is None else self._enter(question, search, direction, start)

    def _begin_trial(self, question: Any) -> int:
        search, direction = self._search(question), question.direction
        question.position = search.place(direction, 0)
        gap = Gap(question.order, direction, question.a, question.packet, question.time, bool(question.b))
        return NOTHING if search.take_beginning(gap, kafka=question.verdict == 1) is None else ENTER

    # -- whether bytes fit --------------------------------------------------------------------------------------------

    def _facts(self, question: Any) -> int:
        key, version = question.a, question.b
        plan, answer = request_plan(key, version), response_plan(key, version)
        tokens = False
        if plan.schema is not None and answer.schema is not None:
            tokens = any(field.tokens for field in plan.schema.root.fields)
            question.out_programs[0] = self._program(pairing_program(plan.schema.root))
            question.out_programs[1] = self._program(pairing_program(answer.schema.root, reads_code=tokens))
        # Messages that describe the connection have to be read before those that follow, even in the same batch. For an
        # unknown version only the header is read, which does not show whether a response is expected.
        unusual = plan.asks_connection or plan.needed or tokens or not 0 < plan.header < INHERITS
        unusual = unusual or (plan.silences and not plan.known_version)
        facts: int = plan.header | _KNOWN * (plan.api is not None)
        return facts | _USUAL * (not unusual) | _TAGGED_ANSWER * (answer.header > 0)

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
        data, cut = _data(question), bool(question.c)
        return int(
            not does_not_fit(decode_response(data, 0, len(data), question.a, question.b, _FULL, cut=cut), cut=cut)
        )

    def _is_exact_response(self, question: Any) -> int:
        data = _data(question)
        decoded = decode_response(data, 0, len(data), question.a, question.b, TRIAL)
        return int(decoded.body is not None and not decoded.problems)

    def _is_exact_request(self, question: Any) -> int:
        return int(is_exact_request(_data(question), 0, question.size))

    def _is_likely_request(self, question: Any) -> int:
        return int(is_likely_request(_data(question), 0, question.size))


def _data(question: Any) -> bytes:
    return ctypes.string_at(question.data, question.size) if question.size else b""
