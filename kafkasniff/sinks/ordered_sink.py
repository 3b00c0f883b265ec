"""A sink for a filter that decides on requests later than they are due: their lines keep their places.

Without it, a request that only its response selects would be shown with it, after lines of other connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkasniff.model import DecidedRequest, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.sinks.ordered_output import OrderedOutput

if TYPE_CHECKING:
    from kafkasniff.sinks.formats import FormatSink


class OrderedSink:
    """Writes to `inner`, whose output passes the first request that waits once that is decided.

    `limit`: messages to be shown, None for all; a caller stops once they are.
    """

    def __init__(self, inner: FormatSink, limit: int | None = None) -> None:
        self.inner = inner
        """The sink of the format."""
        self._output = inner.stream = OrderedOutput(inner.stream, limit=limit)
        self._limits = limit is not None
        self._count = 0

    @property
    def shown(self) -> int:
        """Messages shown; those that wait for a request count at once if there is no limit."""
        return self._output.shown if self._limits else self._count

    @property
    def late(self) -> int:
        """Requests that waited for too many others, and were shown with their responses."""
        return self._output.late

    @property
    def dropped(self) -> int:
        """Such requests of which there were too many: they were not shown."""
        return self._output.dropped

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write an event. Hot."""
        self.inner.write(event)
        if type(event) is Message:
            self._counted()

    def write_lines(self, lines: Lines) -> None:
        """Write lines that the format's line maker made; without a limit only."""
        if lines.held is None:
            self.inner.write_lines(lines)
            self._count += lines.count
        else:
            with self._place(lines.held):
                self.inner.write_lines(lines)

    def hold(self, request: Message) -> None:
        """Write a request that is shown, or not, when `decide` is called."""
        assert request.exchange is not None
        with self._place(request.exchange):
            self.inner.write(request)

    @contextmanager
    def _place(self, exchange: int) -> Iterator[None]:
        """Output written within is shown, or not, when `decide` is called."""
        self._collect()
        with self._output.at(exchange):
            yield
            self._collect()
            self._output.counted()

    def decide(self, decided: DecidedRequest) -> None:
        """Show a held request at its place, or do not show it."""
        # If it is late, it follows the output so far.
        self._collect()
        self._count += self._output.decide(decided.exchange, shown=decided.is_selected)

    def flush(self) -> None:
        """Pass everything before the first held request on to the stream."""
        self.inner.flush()

    def close(self) -> None:
        """End of events: requests that are still held are not shown."""
        self._collect()
        self._output.finish()
        self.inner.close()

    def _counted(self) -> None:
        self._count += 1
        if self._limits:
            self._collect()
            self._output.counted()

    def _collect(self) -> None:
        """Move what the sink has collected to its place."""
        self._output.collects = True
        self.inner.flush()
        self._output.collects = False
