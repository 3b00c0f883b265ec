"""JSON lines and rows of CSV of messages found by the native feed: the facts that the kernel needs for them.

They are identical to those of `jsonl.JsonSink` and `csv.CsvSink`, which write what the kernel leaves to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import adds_names, teaches
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kafkasniff.kafka.connection.events import Detail, Level
from kafkasniff.kafka.messages.message import unknown_version
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.messages.rendered import MAX_SIZE, Renderer, careful, wordings
from kafkasniff.kafka.schema.codes import error_codes, error_name, uuid_text
from kafkasniff.kafka.schema.context import DecodeOptions, Odd
from kafkasniff.model import Direction, Endpoint, Lines, Problem
from kafkasniff.native.caller import Program, WantedBatch
from kafkasniff.native.feed import ARENA, MESSAGE, REQUEST
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import RAW, REDACTED, JsonLines, LineBatch, LineKind
from kafkasniff.native.names import KnownSessions, LineNames, MessageSession
from kafkasniff.redact.payload import may_carry
from kafkasniff.sinks.jsonl import plain_text, problem_objects
from kafkasniff.sinks.lines import BLOCK_BYTES
from kafkasniff.sinks.session_follower import SessionFollower, SessionSteps, SessionText, session_json
from kafkasniff.text.printable import visible_json

# -- facts that an enricher adds ---------------------------------------------------------------------------------------


_NOTHING: Final = MessageSession(-1, None)
_PLACE: Final = itemgetter(
    *((MESSAGE.names or ()).index(name) for name in ("code", "flags", "start", "size", "body", "connection"))
)


class AddedNames:
    """The facts of `enricher` for messages of the feed (`names.NameFacts`).

    The enricher must have processed everything before a message. `broker`: of a connection by its index in the feed.
    `known`: for the sessions that the kernel may follow; `text`: what is shown of them.
    """

    def __init__(
        self,
        kernel: Kernel,
        enricher: Enricher,
        broker: Callable[[int], Endpoint | None] = lambda _: None,
        known: KnownSessions | None = None,
        text: SessionText = session_json,
    ) -> None:
        self._enricher = enricher
        self._broker = broker
        self._rows: NDArray[np.void] = np.zeros(0, MESSAGE)
        self._stores: tuple[memoryview, memoryview]
        self._addresses = 0, 0
        self._steps = SessionSteps(kernel)
        sessions = enricher.sessions
        self._follower = None if known is None or sessions is None else SessionFollower(kernel, sessions, known, text)
        self._text = text

    def bind(self, batch: LineBatch) -> None:
        """From here on sessions are those of these messages."""
        self._rows, stores = batch.messages, (batch.buffer, batch.arena)
        self._stores = stores[0].data, stores[1].data
        self._addresses = stores[0].ctypes.data, stores[1].ctypes.data

    @property
    def learned(self) -> int:
        """Increases with every learned topic."""
        return self._enricher.catalog.topics_learned

    @property
    def forgets(self) -> bool:
        """Whether topics may be evicted when others are learned."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Number of topics that can be learned before others are evicted."""
        catalog = self._enricher.catalog
        return catalog.most_topics - len(catalog.learnt)

    def topic(self, topic_id: bytes) -> tuple[bytes | None, bool]:
        """The name of a topic id, and whether it came from a message."""
        catalog, text = self._enricher.catalog, uuid_text(topic_id)
        name = catalog.topic(text)
        return None if name is None else name.encode("utf-8", "surrogatepass"), text in catalog.learnt

    def session(self, index: int, first: int, second: int) -> MessageSession | None:
        """Apply a Fetch message to its session; see `names.NameFacts`."""
        code, flags, start, size, body, connection = self._place(index)
        exchange, broker = int(self._rows["number"][index]), self._broker(connection)
        if not flags & REQUEST:
            self._enricher.end_fetch(exchange, broker, second, first)
            self.release()
            return _NOTHING
        store = flags & ARENA > 0
        data, address = self._stores[store][start : start + size], self._addresses[store] + start
        try:
            step = self._steps.of(code, data, address, body, (first, second))
        except Odd:
            return None
        follower = self._follower
        before = 0 if follower is None else follower.changes
        session = self._enricher.begin_fetch(exchange, broker, step)
        if follower is not None:
            follower.release()
            if step is not None and step.epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
                follower.asked(connection, code, (broker, step.number), session, is_changed=follower.changes != before)
        if session is None:
            return _NOTHING
        return MessageSession(session.partitions, self._text(session.partitions, session.unnamed))

    def continue_sessions(self, steps: NDArray[np.uint32]) -> None:
        """Apply requests that do not change their sessions, and responses to such requests."""
        assert self._follower is not None
        rows = self._rows[steps]
        requests: list[bool] = ((rows["flags"] & REQUEST) > 0).tolist()
        connections: list[int] = rows["connection"].tolist()
        exchanges: list[int] = rows["number"].tolist()
        self._follower.proceed(zip(requests, connections, exchanges, strict=True))

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""
        if self._follower is not None:
            self._follower.forget(connections)

    def release(self) -> None:
        """Leave requests to Python whose sessions have changed."""
        if self._follower is not None:
            self._follower.release()

    def _place(self, index: int) -> tuple[int, int, int, int, int, int]:
        """A message's code, flags, start, size, start of its body, and connection. Hot."""
        row = self._rows[index].item()
        found: tuple[int, int, int, int, int, int] = _PLACE(row)
        return found


class NamesAhead(AddedNames):
    """The same ahead of the messages' turn, without changing the enricher.

    Names may change until then: `learned` shows whether they did. Fetch sessions are updated in the messages' turn.
    """

    def __init__(self, kernel: Kernel, enricher: Enricher, broker: Callable[[int], Endpoint | None]) -> None:
        super().__init__(kernel, enricher, broker)
        self.requests: set[int] = set()
        """Messages that were left because they may belong to a session."""
        self.responses: dict[int, tuple[int, int]] = {}
        """Error codes and sessions of responses, by message."""

    def session(self, index: int, first: int, second: int) -> MessageSession | None:
        """Record what a Fetch message does to its session. Responses show nothing of it."""
        if self._rows[index]["flags"] & REQUEST:
            self.requests.add(index)
            return None
        self.responses[index] = first, second
        return _NOTHING


# -- lines -------------------------------------------------------------------------------------------------------------


Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


class LineShape(NamedTuple):
    """The form of lines, where it depends on more than a message's bytes."""

    rows: bool
    """Rows of CSV instead of JSON."""
    ends: Callable[[Endpoint | None, Endpoint | None], bytes]
    """A connection's client and broker."""
    version: Callable[[int, str | None, int], bytes]
    """The key and the name of an API, and its version."""
    problems: Callable[[tuple[Problem, ...]], bytes]
    error: Callable[[int], bytes]
    """The name of an error code."""
    capture: Callable[[str | None], bytes]


def _json_ends(client: Endpoint | None, broker: Endpoint | None) -> bytes:
    texts = {"client": None if client is None else str(client), "broker": None if broker is None else str(broker)}
    return orjson.dumps(texts)[1:-1]


JSON: Final = LineShape(
    rows=False,
    ends=_json_ends,
    version=lambda key, api, version: orjson.dumps({"api_key": key, "api": api, "api_version": version})[1:-1],
    problems=lambda problems: orjson.dumps(problem_objects(problems)),
    error=lambda code: orjson.dumps(error_name(code)),
    capture=plain_text,
)


class _DetailPlan(NamedTuple):
    """How lines are written at a detail level."""

    options: DecodeOptions
    rendering: DecodeOptions
    """Decode options of bodies."""
    lines: JsonLines
    kinds: dict[tuple[int, int, bool], bool]
    """Which known versions have lines; as many as there are versions."""
    programs: list[Program]
    """Versions whose programs the kernel refers to."""


class NativeLines:
    """Makes lines with the kernel.

    `renderer`: determines the form of bodies, and which ones the kernel renders; `ends`: of a connection by its index
    in the feed; `capture`: the name of a capture by its index; `enricher`: adds to bodies, and has processed everything
    before a line when that is taken; `shape`: of the lines; `names_captures`: the capture is in every line; `terminal`:
    escape characters that would act on one; `ahead`: lines are made in a separate thread, before their turn.
    """

    def __init__(
        self,
        kernel: Kernel,
        renderer: Renderer,
        ends: Callable[[int], Ends],
        capture: Callable[[int], str | None],
        enricher: Enricher,
        *,
        shape: LineShape = JSON,
        names_captures: bool = False,
        terminal: bool = False,
        ahead: bool = False,
    ) -> None:
        self._kernel = kernel
        self._renderer = renderer.another() if ahead else renderer
        self._ends = ends
        self._capture_name = capture
        self._shape = shape
        self._names_captures = names_captures
        self._terminal = terminal
        self._ahead = ahead
        # Sessions are followed in order.
        self._sessions = None if ahead else KnownSessions()

        def broker(index: int) -> Endpoint | None:
            return ends(index)[2]

        self.facts = (
            NamesAhead(kernel, enricher, broker) if ahead else AddedNames(kernel, enricher, broker, self._sessions)
        )
        """Fields added to bodies."""
        self.only_asked = False
        self._detail: Detail | None = None
        self._ways: dict[Level, _DetailPlan] = {}
        self._way: _DetailPlan | None = None

    def use(self, detail: Detail) -> None:
        """Write at the current level of `detail` from now on. The first use of a level costs some 0.1 ms."""
        self._detail = detail
        way = self._way
        if way is not None and way.options is detail.decode:
            return
        way = self._ways.get(detail.level)
        if way is None or way.options is not detail.decode:
            options = rendering = detail.decode
            if not (options.bodies or options.headers):
                rendering = msgspec.structs.replace(options, bodies=True)
            self._renderer.use(rendering)
            lines = JsonLines(
                self._kernel,
                self._renderer.caller(),
                self,
                errors={code: self._shape.error(code) for code in error_codes()},
                wordings=wordings(),
                most=MAX_SIZE,
                names=LineNames(self.facts, self._sessions),
                rows=self._shape.rows,
            )
            way = self._ways[detail.level] = _DetailPlan(options, rendering, lines, {}, [])
        self._way = way

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether messages of a version of an API have lines."""
        assert self._way is not None
        kinds = self._way.kinds
        known = kinds.get((key, version, is_request))
        if known is None:
            kind = self.kind(key, version, is_request)
            known = kinds[key, version, is_request] = kind.bare or kind.program != 0
        return known

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices, or their ends have changed."""
        for way in self._ways.values():
            way.lines.forget(connections)
        self.facts.forget(connections)

    def bind(self, batch: LineBatch) -> None:
        """The batch whose lines are taken from here on."""
        assert self._way is not None
        self.facts.bind(batch)
        self._way.lines.bind(batch)

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, one or more at a time; the index of a message that is left to Python."""
        assert self._way is not None
        lines = self._way.lines
        for piece in lines.take(first, last, only=self.only_asked):
            if isinstance(piece, int):
                yield piece
            else:
                view, count, problems = piece
                # Copying large lines takes as long as a third of writing them. Without threads, they are written before
                # the next ones are requested.
                if not self._terminal and len(view) >= BLOCK_BYTES and (not self._ahead or lines.keep(len(view))):
                    yield Lines(view, count, problems=problems)
                else:
                    data = bytes(view)
                    yield Lines(visible_json(data) if self._terminal else data, count, problems=problems)

    # -- facts for lines besides the messages' own bytes (`LineFacts`) -----------------------------------------------

    def connection(self, index: int) -> tuple[int, bytes]:
        """The number of a connection, and its ends."""
        number, client, broker = self._ends(index)
        return number, self._shape.ends(client, broker)

    def kind(self, key: int, version: int, is_request: bool) -> LineKind:
        """Common properties of messages of an API's version."""
        plan = request_plan(key, version) if is_request else response_plan(key, version)
        text = self._shape.version(key, plan.api, version)
        assert self._way is not None
        assert self._detail is not None
        # Facts about a connection are only known in Python, and some of these responses have another version.
        if plan.needed or plan.asks_connection:
            return LineKind(text, 0)
        lack = self._detail.lack(key, is_request=is_request)
        problems = self._shape.problems(lack)
        if self._way.rendering.headers or not self._detail.decode.bodies:
            return LineKind(text, 0, bare=True, problems=problems)
        if not plan.known_version:
            return self._unknown(text, plan, key, lack)
        direction: Direction = "request" if is_request else "response"
        if not adds_names(key, version, direction):
            return LineKind(text, 0)
        self._renderer.use(self._way.rendering)
        program = self._renderer.line_program(key, version, direction)
        if program is None:
            return LineKind(text, 0)
        self._way.programs.append(program)
        return LineKind(
            text,
            program.address,
            teaches=teaches(key, version, direction),
            problems=problems,
            careful=careful(plan, show_secrets=self._way.options.show_secrets),
        )

    def _unknown(self, text: bytes, plan: MessagePlan, key: int, lack: tuple[Problem, ...]) -> LineKind:
        """Messages whose bodies have no layout."""
        assert self._way is not None
        is_redacted = False
        if not self._way.options.show_secrets:
            if plan.secret_marks:
                return LineKind(text, 0)
            is_redacted = plan.has_secrets
        if self._renderer.hiding.form != "shown" and (plan.api is None or may_carry(key)):
            is_redacted = True
        problems = self._shape.problems((*lack, Problem(*unknown_version(plan))))
        return LineKind(text, 0, bare=True, problems=problems, raw=REDACTED if is_redacted else RAW)

    def capture(self, index: int) -> bytes:
        """The name of a capture."""
        return self._shape.capture(self._capture_name(index)) if self._names_captures else b""

    def inflate(self, data: bytes | memoryview) -> Callable[[WantedBatch], bytes | None]:
        """Decompresses batches of a message."""
        return self._renderer.inflate(data)
