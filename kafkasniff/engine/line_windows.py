"""Windows: the results of a part of the packets whose messages have lines, collected now and emitted later.

Lines are written natively where no message has to be decoded; everything else is emitted between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafkasniff.engine.emitting import Emitter, taken
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.line_runs import LineRun
from kafkasniff.engine.lines_ahead import LineOutput, Window
from kafkasniff.engine.memory_budget import MemoryBudget
from kafkasniff.engine.message_table import LOSS, Shown
from kafkasniff.engine.stream_feeding import StreamFeeder
from kafkasniff.model import Lines, Problem
from kafkasniff.packets import PacketBatch


class LineWindows:
    """Feeds packets and emits lines, a window at a time."""

    def __init__(
        self,
        state: InspectorState,
        memory: MemoryBudget,
        feeder: StreamFeeder,
        emitter: Emitter,
        lines: LineOutput,
    ) -> None:
        self._state = state
        self._memory = memory
        self._feeder = feeder
        self._emitter = emitter
        self._lines = lines
        self._selected: Callable[[int], None] | None = None

    def report_selected(self, selected: Callable[[int], None]) -> None:
        """Call `selected` with the number of each connection with lines that a filter selects."""
        self._selected = selected

    def feed(self, batch: PacketBatch) -> Iterator[Sequence[Shown]]:
        """Process the next packets. With threads that read ahead, the results are yielded some batches later."""
        ahead, selects = self._lines.ahead, self._lines.selects
        for part in self._feeder.parts(batch):
            if selects is not None and self._state.detail.level:
                # Filters also need what is omitted: at a lower level of detail, Python reads all their messages.
                yield from self._emitter.slices(self._feeder.collect(part))
                continue
            if ahead is None:
                yield from self._emit(self._window(part))
                continue
            if (window := ahead.due()) is not None:
                yield from self._emit(window)
            # Requests kept for filters count towards the budget from when they are emitted.
            if selects is not None or self._memory.is_tight:
                yield from self.finish()
            ahead.add(self._window(part))

    def finish(self) -> Iterator[Sequence[Shown]]:
        """Emit all pending windows."""
        ahead = self._lines.ahead
        while ahead is not None and (window := ahead.next()) is not None:
            yield from self._emit(window)

    def _window(self, batch: PacketBatch) -> Window:
        """The results of the next packets."""
        collected = self._feeder.collect(batch, lines=True)
        if collected.messages is None:
            return Window(collected, None)
        run = self._lines.run_of(collected.messages, self._state.detail)
        if self._lines.selects is not None:
            selected = run.select(self._state.capture_at)
            if self._selected is not None:
                for connection in selected:
                    self._selected(connection)
        return Window(collected, run)

    def _emit(self, window: Window) -> Iterator[Sequence[Shown]]:
        """Emit the results in a window; earlier windows were emitted."""
        emitter = self._emitter
        lost = self._memory.take_loss()
        emitter.slice_bytes = 0
        out: list[Shown] = []
        ranges = iter(window.ranges)
        first, last = next(ranges, (0, 0))
        if last > first:
            yield from self._lines_of(window, first, last, out)
        for _, _, _, connection, event in window.collected.keyed:
            first, last = next(ranges, (0, 0))
            if isinstance(event, tuple) and out:
                # What precedes a name is written without it.
                yield taken(out)
            if event is not LOSS:
                emitter.emit(connection, event, out)
            elif lost is not None:
                emitter.emit_problem(Problem("memory-bound", lost), out)
            if emitter.is_full(out):
                yield out
                out = []
                emitter.slice_bytes = 0
            if last > first:
                yield from self._lines_of(window, first, last, out)
        yield out

    def _lines_of(self, window: Window, first: int, last: int, out: list[Shown]) -> Iterator[list[Shown]]:
        """Lines of messages, after the contents of `out`, which are consumed before the lines are written."""
        emitter, summary, writer = self._emitter, self._state.summary, self._lines.writer
        assert writer is not None
        run = window.run
        assert run is not None
        began = run.requests(first, last)
        others = 0
        out += run.decided(first, last)
        if out:
            yield taken(out)
        at = first
        selects = self._lines.selects
        pieces: Iterator[Lines | int | list[int]] = (
            window.take(first, last, writer) if selects is None else run.write_selected(first, last, writer)
        )
        for piece in pieces:
            if isinstance(piece, Lines):
                summary.problems += run.lacking(at, at + piece.count) + piece.problems
                at += piece.count
                if piece.count:
                    yield [Lines(piece.data, piece.count, run.time_of(at - 1)) if piece.time_ns is None else piece]
            elif isinstance(piece, list):
                others += len(piece)
                began -= sum(map(run.is_request, piece))
                for index in piece:
                    emitter.emit_row(run.objects, run.objects.row(index), out)
                    if emitter.is_full(out):
                        yield taken(out)
                        emitter.slice_bytes = 0
                yield taken(out)
            else:
                counted = piece < 0
                index = -1 - piece if counted else piece
                at = index + 1
                # Natively written lines update the summary themselves.
                if counted:
                    summary.requests -= 1
                else:
                    others += 1
                    began -= run.is_request(index)
                yield from self._emit_decided(window, run, index, out)
        emitter.slice_bytes = 0
        summary.requests += began
        summary.responses += last - first - others - began

    def _emit_decided(self, window: Window, run: LineRun, index: int, out: list[Shown]) -> Iterator[list[Shown]]:
        """Emit a message that has no line; whether a filter selects it is decided."""
        number, answer = run.number_of(index), run.answer(index)
        pins = self._lines.selects if answer is not None and number not in window.collected.pinned else None
        if pins is not None:
            assert answer is not None
            pins.pin(number, answer)
        self._emitter.emit_row(run.objects, run.objects.row(index), out, run.problems(index), ends=answer is None)
        yield taken(out)
        if pins is not None:
            pins.unpin(number)
