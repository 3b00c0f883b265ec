"""Lines that other threads make before they are asked for, and what a part of the packets yields until then."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from kafkasniff.accounts import OpenExchange
from kafkasniff.line_runs import FactsAhead, LineRun, LineWriter, MakeLines
from kafkasniff.model import Lines
from kafkasniff.threads import Task, Threads

__all__ = ["LinesAhead", "Window"]

_T = TypeVar("_T")

WINDOWS: Final = 2
"""Windows that wait: lines of one are made while packets of the next are taken, and nobody waits for the other."""
TASK_BYTES: Final = 512 << 10
"""Bytes of the messages of one task, about: so many that threads seldom need the interpreter's lock."""
MESSAGE_BYTES: Final = 128
"""What a message counts for besides its own bytes."""
MAX_MADE: Final = 16 << 20
"""Bytes of lines that one task makes at most; the rest is made when it is asked for."""
MAX_WAITING: Final = 64 << 20
"""Bytes of lines that wait to be asked for; no task begins above that."""

Piece = Lines | int


class _Made(NamedTuple):
    """Lines of a range of messages."""

    pieces: list[Piece]
    """Up to a message that was not looked at; the index of one that has no line."""
    size: int
    """Bytes of lines."""
    told: int
    """`Facts.told` before the first one was made."""
    requests: set[int]
    responses: dict[int, tuple[int, int]]
    """Of these messages, as `FactsAhead` has them."""


class Window:
    """What a part of the packets yields, in order.

    - `keyed`: events, as the inspector sorts them
    - `run`: messages that are no events, in `ranges` in front of the first event, between two, and behind the last
    - `names`: address and name, from the packets' name records
    - `begun`: exchanges that begin with events, by their indices
    """

    __slots__ = ("_help", "_taken", "_tasks", "begun", "keyed", "names", "ranges", "run")

    def __init__(
        self,
        keyed: list[Any],
        run: LineRun | None,
        ranges: list[tuple[int, int]],
        names: list[tuple[str, str]],
        begun: dict[int, OpenExchange],
    ) -> None:
        self.keyed = keyed
        self.run = run
        self.ranges = ranges
        self.names = names
        self.begun = begun
        self._tasks: dict[int, tuple[int, Task[dict[int, _Made]]]] = {}
        self._taken: Callable[[int], object] = int
        self._help: Callable[[], bool] = bool

    def make(
        self,
        ranges: list[tuple[int, int]],
        task: Task[dict[int, _Made]],
        taken: Callable[[int], None],
        help_: Callable[[], bool],
    ) -> None:
        """The lines of these messages, parts of `ranges`, are the task's.

        `taken`: is told the bytes of lines taken; `help_`: does another task instead of waiting, if there is one.
        """
        self._taken, self._help = taken, help_
        for first, last in ranges:
            self._tasks[first] = last, task

    def take(self, first: int, last: int, writer: LineWriter) -> Iterator[Piece]:
        """The lines of these messages, a range or its rest; for one that is Python's its index."""
        run = self.run
        assert run is not None
        while first < last:
            stop, task = self._tasks.pop(first, (last, None))
            # What no thread has begun is made here, one message after the other.
            if task is not None and not task.leave():
                while not task.is_done and self._help():
                    pass
                made = task.result().pop(first)
                self._taken(made.size)
                for piece in _still_so(run, first, made, writer):
                    yield piece
                    first = piece + 1 if isinstance(piece, int) else first + piece.count
            if first < stop:
                yield from run.write(first, stop, writer)
            first = stop


class LinesAhead:
    """Threads that make lines and take packets; closed by whoever closes `threads` and `feeding`.

    `threads`: those that make lines; `feeding`: one that takes packets.
    """

    def __init__(self, threads: Threads, feeding: Threads) -> None:
        self._threads = threads
        self.feed: Callable[[Callable[[int], Any]], Task[Any]] = feeding.begin
        """Have work done beside the lines."""
        self._windows: deque[Window] = deque()
        self.writers: list[LineWriter] = []
        """By the number of the thread; the first one's is for what the thread that asks makes instead of waiting."""
        self._lock = threading.Lock()
        self._waiting = 0
        """Bytes of lines that wait."""

    def write_by(self, writer: LineWriter, make: MakeLines, capture: Callable[[int], str | None]) -> None:
        """Who makes lines: `writer` where they are asked for, others like it in the threads."""
        if self._threads.count:
            self.writers = [LineWriter(make, capture, ahead=True) for _ in range(self._threads.count + 1)]
        for one in (writer, *self.writers):
            one.lines.only_asked = True

    # -- windows ------------------------------------------------------------------------------------------------------

    def due(self) -> Window | None:
        """The window that is to be reported before another one is added."""
        return self.next() if len(self._windows) >= WINDOWS else None

    def next(self) -> Window | None:
        """The next one to be reported."""
        return self._windows.popleft() if self._windows else None

    def add(self, window: Window) -> None:
        """Have the lines of a window made, which is reported after those before it."""
        self._windows.append(window)
        run = window.run
        if run is None or not self._threads.count:
            return
        ranges: list[tuple[int, int]] = []
        weights = run.weights(MESSAGE_BYTES)
        begun = 0
        for begin, last in window.ranges:
            first = begin
            while first < last:
                base = int(weights[first - 1]) if first else 0
                stop = min(int(np.searchsorted(weights, base + TASK_BYTES - begun)) + 1, last)
                ranges.append((first, stop))
                begun += int(weights[stop - 1]) - base
                first = stop
                if begun >= TASK_BYTES:
                    self._begin(window, run, ranges)
                    ranges, begun = [], 0
        self._begin(window, run, ranges)

    def _begin(self, window: Window, run: LineRun, ranges: list[tuple[int, int]]) -> None:
        if ranges:
            task = self._threads.begin(lambda thread: self._make(run, ranges, self.writers[thread]))
            window.make(ranges, task, self._taken, self._threads.help)

    def _taken(self, size: int) -> None:
        """So many bytes of lines wait no longer; negative: more do."""
        with self._lock:
            self._waiting -= size
            self._threads.hold(held=self._waiting > MAX_WAITING)

    def _make(self, run: LineRun, ranges: list[tuple[int, int]], writer: LineWriter) -> dict[int, _Made]:
        found: dict[int, _Made] = {}
        size = 0
        facts = cast(FactsAhead, writer.lines.facts)
        for first, last in ranges:
            pieces: list[Piece] = []
            before, told = size, facts.told
            if size < MAX_MADE:
                for piece in run.write(first, last, writer):
                    pieces.append(piece)
                    if isinstance(piece, Lines):
                        size += len(piece.data)
                    if size >= MAX_MADE:
                        break
            found[first] = _Made(pieces, size - before, told, facts.requests, facts.responses)
            facts.requests, facts.responses = set(), {}
        self._taken(-size)
        return found


def _still_so(run: LineRun, first: int, made: _Made, writer: LineWriter) -> Iterator[Piece]:
    """What was made ahead from a message on, as far as the same would be made now."""
    writer.begin(run)
    facts = writer.lines.facts
    responses = made.responses
    for piece in made.pieces:
        # Else lines may show names that were not known then.
        if facts.told != made.told:
            return
        if isinstance(piece, Lines):
            stop = first + piece.count
            while responses and (index := next(iter(responses))) < stop:
                facts.session(index, *responses.pop(index))
            yield piece
            first = stop
            continue
        responses.pop(piece, None)
        if piece in made.requests:
            yield from run.write(piece, piece + 1, writer)
        else:
            yield piece
        first = piece + 1
