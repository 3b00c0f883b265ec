"""How the lines of messages are written natively: the line maker, the filter, and the threads that write ahead."""

from __future__ import annotations

from collections.abc import Callable

from kafkasniff.engine.line_makers import MakeLines
from kafkasniff.engine.line_runs import LineRun, RunWriter
from kafkasniff.engine.lines_ahead import LinesAhead
from kafkasniff.engine.message_table import Messages
from kafkasniff.engine.selected_messages import SelectsLines
from kafkasniff.kafka.connection.events import Detail

__all__ = ["LineOutput"]


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
        self._runs = 0
        self._gone: list[int] = []
        """Freed indices of connections in step, which may be reused."""

    def run_of(self, messages: Messages, detail: Detail) -> LineRun:
        """Messages whose lines are written natively."""
        ahead = self.ahead
        if self.writer is None:
            self.writer = RunWriter(self._make, self._capture)
            if ahead is not None:
                ahead.write_by(self.writer, self._make, self._capture)
        self._runs += 1
        if self._gone:
            for writer in (self.writer, *(() if ahead is None else ahead.writers)):
                writer.forget(self._runs, self._gone)
            self._gone = []
        return LineRun(messages, self.writer.lines, detail, self._runs, self.selects)

    def forget(self, place: int) -> None:
        """The index of a connection was freed (-1: it had none)."""
        if place >= 0 and self.writer is not None:
            self._gone.append(place)
