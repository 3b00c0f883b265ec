"""JSON lines of messages that the native feed has found: what the kernel has to know for them.

They are those of `jsonl.JsonSink`, byte for byte; what the kernel leaves to Python goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import adds_names, tells
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.detail import Detail, Level
from kafkasniff.kafka.errors import error_codes, error_name
from kafkasniff.kafka.message_plan import request_plan, response_plan
from kafkasniff.kafka.rendered import MAX_SIZE, Renderer
from kafkasniff.model import Direction, Endpoint, Lines
from kafkasniff.native.caller import Program, Wanted
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import JsonLines, Kind
from kafkasniff.native.names import LineNames
from kafkasniff.sinks.jsonl import plain_text, problem_objects
from kafkasniff.sinks.native_names import AddedNames, NamesAhead
from kafkasniff.sinks.printable import visible_json

__all__ = ["Ends", "NativeLines"]

Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


class _Way(NamedTuple):
    """How lines are written at a level."""

    options: DecodeOptions
    rendering: DecodeOptions
    """Of the bodies that are read."""
    lines: JsonLines
    kinds: dict[tuple[int, int, bool], bool]
    """Which of those seen have lines; as many as there are versions."""
    programs: list[Program]
    """Of those that the kernel has the addresses of."""


class NativeLines:
    """Makes lines by the kernel.

    `renderer`: says what bodies look like, and which ones the kernel renders; `ends`: of a connection by its index in
    the feed; `capture`: the name of a capture by its index; `enricher`: adds to bodies, and has taken what comes before
    lines when they are taken; `names_captures`: the capture is in every line; `terminal`: escape what would act on one;
    `ahead`: lines are made in a thread of their own, before it is their turn.
    """

    def __init__(
        self,
        kernel: Kernel,
        renderer: Renderer,
        ends: Callable[[int], Ends],
        capture: Callable[[int], str | None],
        enricher: Enricher,
        *,
        names_captures: bool = False,
        terminal: bool = False,
        ahead: bool = False,
    ) -> None:
        self._kernel = kernel
        self._renderer = renderer.another() if ahead else renderer
        self._ends = ends
        self._capture_name = capture
        self._names_captures = names_captures
        self._terminal = terminal
        self.facts = (NamesAhead if ahead else AddedNames)(enricher, lambda index: ends(index)[2])
        """What is added to bodies."""
        self.only_asked = False
        self._detail: Detail | None = None
        self._ways: dict[Level, _Way] = {}
        self._way: _Way | None = None

    def use(self, detail: Detail) -> None:
        """Write at the current level of `detail` from here on. Another level costs some 0.1 ms, the first time."""
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
            errors = {code: orjson.dumps(error_name(code)) for code in error_codes()}
            names = LineNames(self.facts)
            lines = JsonLines(self._kernel, self._renderer.caller(), self, errors=errors, most=MAX_SIZE, names=names)
            way = self._ways[detail.level] = _Way(options, rendering, lines, {}, [])
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

    def bind(  # noqa: PLR0917 - once for each batch
        self,
        messages: NDArray[np.void],
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        earlier: NDArray[np.void] | None = None,
        shown: NDArray[np.uint8] | None = None,
    ) -> None:
        """The batch whose lines are taken from here on; see `JsonLines.bind`."""
        assert self._way is not None
        self.facts.bind(messages, numbers, buffer, arena)
        self._way.lines.bind(messages, numbers, buffer, arena, earlier, shown)

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, of one or more at a time; for one that is Python's its index."""
        assert self._way is not None
        for piece in self._way.lines.take(first, last, only=self.only_asked):
            if isinstance(piece, int):
                yield piece
            else:
                data, count = piece
                yield Lines(visible_json(data) if self._terminal else data, count)

    # -- what the lines say beside the messages' own bytes (`LineFacts`) ---------------------------------------------

    def connection(self, index: int) -> tuple[int, bytes]:
        """The number of a connection, and its ends as members of an object."""
        number, client, broker = self._ends(index)
        texts = {"client": None if client is None else str(client), "broker": None if broker is None else str(broker)}
        return number, orjson.dumps(texts)[1:-1]

    def kind(self, key: int, version: int, is_request: bool) -> Kind:
        """What messages of a version of an API have in common."""
        plan = request_plan(key, version) if is_request else response_plan(key, version)
        text = orjson.dumps({"api_key": key, "api": plan.api, "api_version": version})[1:-1]
        assert self._way is not None
        assert self._detail is not None
        # What is said of a connection is Python's to know, and the version of some of these responses is another one.
        if plan.needed or plan.asks_connection or not plan.known_version:
            return Kind(text, 0)
        problems = orjson.dumps(problem_objects(self._detail.lack(key, is_request=is_request)))
        if self._way.rendering.headers or not self._detail.reads_body(key, is_request=is_request):
            return Kind(text, 0, bare=True, problems=problems)
        direction: Direction = "request" if is_request else "response"
        if not adds_names(key, version, direction):
            return Kind(text, 0)
        self._renderer.use(self._way.rendering)
        program = self._renderer.line_program(key, version, direction)
        if program is None:
            return Kind(text, 0)
        self._way.programs.append(program)
        return Kind(text, program.address, tells=tells(key, version, direction), problems=problems)

    def capture(self, index: int) -> bytes:
        """The name of a capture."""
        return plain_text(self._capture_name(index)) if self._names_captures else b""

    def inflate(self, data: bytes | memoryview) -> Callable[[Wanted], bytes | None]:
        """Decompresses batches of a message."""
        return self._renderer.inflate(data)
