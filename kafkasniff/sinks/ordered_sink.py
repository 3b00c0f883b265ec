"""A sink for a filter that decides on requests later than they are due: their lines keep their places.

Without it, a request that only its response selects would be shown with it, after lines of other connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkasniff.model import Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.sinks.ordered_output import OrderedOutput

if TYPE_CHECKING:
    from kafkasniff.sinks.formats import FormatSink
    from kafkasniff.sinks.lines import ByteOutput

__all__ = ["OrderedSink"]


class OrderedSink:
    """Writes to the sink that `make` opens for an output, up to the first request that waits.

    `limit`: messages to be shown, None for all; a caller stops once they are.
    """

    def __init__(self, stream: ByteOutput, make: Callable[[ByteOutput], FormatSink], limit: int | None = None) -> None:
        self._output = OrderedOutput(stream, limit=limit)
        self.inner = make(self._output)
        """The sink of the format."""
        self._limits = limit is not None
        self._count = 0
        self.late = 0
        """Requests that waited for too many others, and were shown with their responses."""

    @property
    def shown(self) -> int:
        """Messages shown; those that wait for a request count at once if there is no limit."""
        return self._output.shown if self._limits else self._count

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write an event. Hot."""
        self.inner.write(event)
        if type(event) is Message:
            self._counted()

    def write_lines(self, lines: Lines) -> None:
        """Write lines that the format's line maker made; without a limit only."""
        self.inner.write_lines(lines)
        self._count += lines.count

    def hold(self, request: Message) -> None:
        """Keep the place of a request for `decide`. The message itself is not kept."""
        assert request.exchange is not None
        self._collect()
        with self._output.headings():
            self.inner.write_headings(request)
            self._collect()
        self._output.open(request.exchange)

    def decide(self, exchange: int, request: Message | None) -> None:
        """Write the held request of an exchange at its place; None: it is not shown."""
        if request is None:
            self._output.close(exchange)
            return
        # May give up this place.
        self._collect()
        if exchange in self._output:
            with self._output.at(exchange):
                self.inner.write_earlier(request)
                self._counted()
                self._collect()
        else:
            self.late += 1
            self.write(request)

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
