"""Lines made by other threads before they are needed, and the output of a part of the packets until then.

`LineOutput` has all that writes the lines of an inspector.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeVar

import msgspec
import numpy as np

from kafkasniff.engine.lines import LineRun, MakeLines, RunWriter, SelectsLines
from kafkasniff.engine.message_table import Collected
from kafkasniff.engine.session_follower import SessionFollower
from kafkasniff.kafka.connection.events import Detail, MessageEvent
from kafkasniff.model import Lines
from kafkasniff.native.library import kernel
from kafkasniff.runtime.threads import Task, Threads

_T = TypeVar("_T")

WINDOWS: Final = 2
"""Windows in the queue: lines of one are made while packets of the next are decoded, without blocking each other."""
MOST_WINDOWS: Final = 5
"""The same while lines of the first one are still being made: the requesting thread decodes more instead of waiting."""
TASK_BYTES: Final = 512 << 10
"""Approximate bytes of messages per task: enough that threads seldom need the interpreter's lock."""
MESSAGE_BYTES: Final = 128
"""Cost of a message besides its bytes."""
MAX_MADE: Final = 16 << 20
"""Maximum bytes of lines made by one task; the rest is made on request."""
MAX_WAITING: Final = 64 << 20
"""Maximum bytes of lines waiting to be taken; no task begins above that."""

Piece = Lines | int


class _Made(msgspec.Struct, frozen=True):
    """Lines of a range of messages."""

    pieces: list[Piece]
    """Up to a message that was not processed; a message without a line is represented by its index."""
    size: int
    """Bytes of lines."""
    learned: int
    """`Facts.learned` before the first line was made."""


class Window:
    """The output of a part of the packets, in order.

    `run`: those of the messages that have lines, in `ranges` before the first event, between events, and after the
    last one.
    """

    __slots__ = ("_help", "_taken", "_tasks", "collected", "lost", "ranges", "run")

    def __init__(self, collected: Collected, run: LineRun | None) -> None:
        self.collected = collected
        self.run = run
        self.lost: str | None = None
        """What earlier packets have lost (`inspector_state.Beside`)."""
        self.ranges = [] if run is None else list(pairwise((0, *collected.stops, len(run))))
        self._tasks: dict[int, tuple[int, Task[dict[int, _Made]]]] = {}
        self._taken: Callable[[int], object] = int
        self._help: Callable[[], bool] = bool

    @property
    def is_made(self) -> bool:
        """Whether all lines that threads make are there."""
        return all(task.is_done for _, task in self._tasks.values())

    def make(
        self,
        ranges: list[tuple[int, int]],
        task: Task[dict[int, _Made]],
        taken: Callable[[int], None],
        help_: Callable[[], bool],
    ) -> None:
        """Let the task make the lines of these messages, parts of `ranges`.

        `taken`: called with the bytes of lines taken; `help_`: runs another task instead of waiting, if there is one.
        """
        self._taken, self._help = taken, help_
        for first, last in ranges:
            self._tasks[first] = last, task

    def take(self, first: int, last: int, writer: RunWriter) -> Iterator[Piece]:
        """The lines of these messages, a range or its rest; the index of a message that is left to Python."""
        run = self.run
        assert run is not None
        while first < last:
            stop, task = self._tasks.pop(first, (last, None))
            # Lines that no thread has begun are made here, message by message.
            if task is not None and not task.leave():
                while not task.is_done and self._help():
                    pass
                made = task.result().pop(first)
                self._taken(made.size)
                writer.begin(run)
                for piece in made.pieces:
                    # Otherwise lines may show names that were unknown before.
                    if writer.lines.facts.learned != made.learned:
                        break
                    yield piece
                    first = piece + 1 if isinstance(piece, int) else first + piece.count
            if first < stop:
                yield from run.write(first, stop, writer)
            first = stop


class LinesAhead:
    """Threads that make lines, and one that follows the next packets meanwhile; their owner closes them."""

    def __init__(self, threads: Threads, following: Threads) -> None:
        self._threads = threads
        self.following = following
        self._windows: deque[Window] = deque()
        self.writers: list[RunWriter] = []
        """By thread number; the first one is for tasks that the requesting thread runs instead of waiting."""
        self._lock = threading.Lock()
        self._waiting = 0
        """Bytes of waiting lines."""

    def write_by(self, writer: RunWriter, make: MakeLines, capture: Callable[[int], str | None]) -> None:
        """Set the makers of lines: `writer` for the requesting thread, others like it for the threads."""
        if self._threads.count:
            self.writers = [RunWriter(make, capture, ahead=True) for _ in range(self._threads.count + 1)]
        for run_writer in (writer, *self.writers):
            run_writer.lines.only_asked = True

    # -- windows ------------------------------------------------------------------------------------------------------

    def due(self) -> Window | None:
        """The window that has to be reported before another one is added."""
        windows = self._windows
        if len(windows) >= MOST_WINDOWS or (len(windows) >= WINDOWS and windows[0].is_made):
            return self.next()
        return None

    def next(self) -> Window | None:
        """The next window to report."""
        return self._windows.popleft() if self._windows else None

    def add(self, window: Window) -> None:
        """Start making the lines of a window, which is reported after those before it."""
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
        """Subtract from the bytes of waiting lines; negative: add."""
        with self._lock:
            self._waiting -= size
            self._threads.hold(held=self._waiting > MAX_WAITING)

    def _make(self, run: LineRun, ranges: list[tuple[int, int]], writer: RunWriter) -> dict[int, _Made]:
        found: dict[int, _Made] = {}
        size = 0
        for first, last in ranges:
            pieces: list[Piece] = []
            before, learned = size, writer.lines.facts.learned
            if size < MAX_MADE:
                for piece in run.write(first, last, writer):
                    pieces.append(piece)
                    if isinstance(piece, Lines):
                        size += len(piece.data)
                    if size >= MAX_MADE:
                        break
            found[first] = _Made(pieces, size - before, learned)
        self._taken(-size)
        return found


class LineOutput:
    """The writers of an inspector's lines.

    - `make`: returns a line writer, given the ends of a connection and the name of a capture by their indices
    - `capture`: the name of a capture by its index
    - `selects`: decides which messages have lines; None: all of them
    - `ahead`: threads that read packets ahead and write lines, if any
    """

    def __init__(
        self,
        make: MakeLines,
        capture: Callable[[int], str | None],
        selects: SelectsLines | None,
        ahead: LinesAhead | None,
    ) -> None:
        self._make = make
        self._capture = capture
        self.selects = selects
        self.ahead = ahead
        self.writer: RunWriter | None = None
        """Created with the first message: creating it takes longer than printing the first lines."""
        self.follower: SessionFollower | None = None
        """Likewise."""
        self._runs = 0
        self._gone: list[int] = []
        """Freed indices of connections in step, which may be reused."""

    def window(self, collected: Collected, detail: Detail) -> Window:
        """The results of the next packets: their fetch sessions are known, and which lines are written natively."""
        messages = collected.messages
        if messages is None and not any(isinstance(one[4], MessageEvent) for one in collected.keyed):
            return Window(collected, None)
        writer, ahead = self._begin(), self.ahead
        assert self.follower is not None
        collected = collected._replace(sessions=self.follower.apply(collected, detail))
        if messages is None:
            return Window(collected, None)
        self._runs += 1
        if self._gone:
            for one in (writer, *(() if ahead is None else ahead.writers)):
                one.forget(self._runs, self._gone)
            self._gone = []
        return Window(collected, LineRun(collected, writer.lines, detail, self._runs, self.selects))

    def _begin(self) -> RunWriter:
        if self.writer is None:
            self.writer = RunWriter(self._make, self._capture)
            self.follower = SessionFollower(kernel(), self.writer.lines.facts.enricher)
            if self.ahead is not None:
                self.ahead.write_by(self.writer, self._make, self._capture)
        return self.writer

    def forget(self, place: int) -> None:
        """The index of a connection was freed (-1: it had none)."""
        if place >= 0 and self.writer is not None:
            self._gone.append(place)
