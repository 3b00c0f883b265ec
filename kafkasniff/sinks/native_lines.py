"""JSON lines of messages that the native feed has found: what the kernel has to know for them.

They are those of `jsonl.JsonSink`, byte for byte; what the kernel leaves to Python goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import orjson
from numpy.typing import NDArray

from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.errors import error_codes, error_name
from kafkasniff.kafka.message_plan import request_plan, response_plan
from kafkasniff.kafka.named_apis import PRODUCE
from kafkasniff.kafka.rendered import MAX_SIZE, Renderer
from kafkasniff.model import Endpoint, Lines
from kafkasniff.native.caller import Wanted
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import JsonLines, Kind
from kafkasniff.sinks.jsonl import plain_text
from kafkasniff.sinks.printable import visible_json

__all__ = ["Ends", "NativeLines"]

Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


class NativeLines:
    """Makes lines by the kernel.

    `renderer`: says what bodies look like, and which ones the kernel renders; `ends`: of a connection by its index in
    the feed; `capture`: the name of a capture by its index; `names_captures`: it is in every line; `terminal`: escape
    what would act on one.
    """

    at_once = False

    def __init__(
        self,
        kernel: Kernel,
        renderer: Renderer,
        ends: Callable[[int], Ends],
        capture: Callable[[int], str | None],
        *,
        names_captures: bool = False,
        terminal: bool = False,
    ) -> None:
        self._kernel = kernel
        # Lines may be made in a thread of their own.
        self._renderer = renderer.another()
        self._ends = ends
        self._capture_name = capture
        self._names_captures = names_captures
        self._terminal = terminal
        self._options: DecodeOptions | None = None
        self._lines: JsonLines | None = None
        self._kinds: dict[tuple[int, int, bool], bool] = {}
        """Which of those seen have lines; as many as there are versions."""

    def use(self, options: DecodeOptions) -> None:
        """From here on write as these options say. They are asked for by identity; new ones cost some 0.1 ms."""
        if options is self._options:
            return
        self._options = options
        self._kinds.clear()
        self._renderer.use(options)
        errors = {code: orjson.dumps(error_name(code)) for code in error_codes()}
        self._lines = JsonLines(self._kernel, self._renderer.caller(), self, errors=errors, most=MAX_SIZE)

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether messages of a version of an API have lines."""
        known = self._kinds.get((key, version, is_request))
        if known is None:
            kind = self.kind(key, version, is_request)
            known = self._kinds[key, version, is_request] = kind.bare or kind.program != 0
        return known

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices, or their ends have changed."""
        if self._lines is not None:
            self._lines.forget(connections)

    def bind(  # noqa: PLR0917 - as `JsonLines.bind`
        self,
        messages: int,
        count: int,
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        earlier: NDArray[np.void] | None = None,
    ) -> None:
        """The batch whose lines are taken from here on; see `JsonLines.bind`."""
        assert self._lines is not None
        self._lines.bind(messages, count, numbers, buffer, arena, earlier)

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, of one or more at a time; for one that is Python's its index."""
        assert self._lines is not None
        for piece in self._lines.take(first, last):
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
        assert self._options is not None
        # What is said of a connection is Python's to know, and the version of some of these responses is another one.
        if plan.needed or plan.asks_connection or not plan.known_version:
            return Kind(text, 0)
        if not self._options.bodies:
            # Those of Produce requests are read where headers are not all that is wanted.
            return Kind(text, 0, bare=self._options.headers or key != PRODUCE)
        program = self._renderer.program(key, version, "request" if is_request else "response")
        return Kind(text, 0 if program is None else program.address)

    def capture(self, index: int) -> bytes:
        """The name of a capture."""
        return plain_text(self._capture_name(index)) if self._names_captures else b""

    def inflate(self, data: bytes) -> Callable[[Wanted], bytes | None]:
        """Decompresses batches of a message."""
        return self._renderer.inflate(data)
