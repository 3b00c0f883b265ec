"""JSON lines and rows of CSV of messages found by the native feed: the facts that the kernel needs for them.

They are identical to those of `jsonl.JsonSink` and `csv.CsvSink`, which write what the kernel leaves to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import adds_names, teaches
from kafkasniff.enrich.sessions import session_fields
from kafkasniff.kafka.connection.events import Detail, Level
from kafkasniff.kafka.messages.message import unknown_version
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan, response_plan
from kafkasniff.kafka.messages.rendered import MAX_SIZE, Renderer, careful, wordings
from kafkasniff.kafka.schema.codes import error_codes, error_name, uuid_text
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Direction, Endpoint, Lines, Problem
from kafkasniff.native.caller import Program, WantedBatch
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import RAW, REDACTED, JsonLines, LineBatch, LineKind
from kafkasniff.native.names import LineNames
from kafkasniff.redact.payload import may_carry
from kafkasniff.sinks.jsonl import plain_text, problem_objects
from kafkasniff.sinks.lines import BLOCK_BYTES
from kafkasniff.text.printable import visible_json

# -- facts that an enricher adds ---------------------------------------------------------------------------------------


class AddedNames:
    """The facts of `enricher` (`names.NameFacts`), which must have processed everything before a message."""

    def __init__(self, enricher: Enricher) -> None:
        self.enricher = enricher

    @property
    def learned(self) -> int:
        """Increases with every learned topic."""
        return self.enricher.catalog.topics_learned

    @property
    def forgets(self) -> bool:
        """Whether topics may be evicted when others are learned."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Number of topics that can be learned before others are evicted."""
        catalog = self.enricher.catalog
        return catalog.most_topics - len(catalog.learnt)

    def topic(self, topic_id: bytes) -> tuple[bytes | None, bool]:
        """The name of a topic id, and whether it came from a message."""
        catalog, text = self.enricher.catalog, uuid_text(topic_id)
        name = catalog.topic(text)
        return None if name is None else name.encode("utf-8", "surrogatepass"), text in catalog.learnt


SessionText = Callable[[int, int | None], bytes]
"""What is shown of a fetch session: the number of its partitions, and `unnamed` of `SessionContent`."""


@lru_cache(maxsize=1 << 10)
def session_json(partitions: int, unnamed: int | None) -> bytes:
    """What JSON lines show of a session."""
    return orjson.dumps(session_fields(partitions, unnamed))


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


def _ends_of(lines: list[bytes]) -> NDArray[np.uint64]:
    """Where each of these ends, if they are joined."""
    return np.cumsum([len(line) for line in lines], dtype=np.uint64)


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
        self.facts = AddedNames(enricher)
        """Names added to bodies."""
        self.session_text: SessionText = session_json
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
                names=LineNames(self.facts),
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

    def bind(self, batch: LineBatch) -> None:
        """The batch whose lines are taken from here on."""
        assert self._way is not None
        self._way.lines.bind(batch)

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, one or more at a time; the index of a message that is left to Python."""
        assert self._way is not None
        lines = self._way.lines
        for piece in lines.take(first, last, only=self.only_asked):
            if isinstance(piece, int):
                yield piece
            else:
                view, ends, problems = piece
                count = len(ends)
                # Copying large lines takes as long as a third of writing them. Without threads, they are written before
                # the next ones are requested.
                if not self._terminal and len(view) >= BLOCK_BYTES and (not self._ahead or lines.keep(len(view))):
                    yield Lines(view, count, problems=problems, ends=ends)
                elif self._terminal:
                    data = bytes(view)
                    shown = [visible_json(data[begin:end]) for begin, end in pairwise([0, *ends.tolist()])]
                    yield Lines(b"".join(shown), count, problems=problems, ends=_ends_of(shown))
                else:
                    yield Lines(bytes(view), count, problems=problems, ends=ends)

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
