"""A sink for a filter that decides on requests later than they are due: their lines keep their places.

Without it, a request that only its response selects would be shown with it, after lines of other connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkasniff.model import DecidedRequest, Exchange, HeldLines, Lines, Message, Problem, SaslToken
from kafkasniff.sinks.lines import ByteOutput

if TYPE_CHECKING:
    from kafkasniff.sinks.formats import FormatSink


# -- output with places ------------------------------------------------------------------------------------------------
#
# Sinks know nothing of it: they write to the end, or to a place while it is `at` hand.


MAX_HELD: Final = 64 << 20
"""Bytes that wait for a decision on earlier places; with more, the earliest place is given up. Bytes of places that
were given up; with more, the earliest one is dropped."""
MAX_PLACES: Final = 1 << 16
"""Places that are open at a time; with more, the earliest one is given up. Likewise those that were given up."""


class _Part:
    """Consecutive output. `count`: its messages."""

    __slots__ = ("count", "data", "is_open", "size")

    def __init__(self, *, is_open: bool = False) -> None:
        self.data: list[bytes] = []
        self.size = 0
        self.count = 0
        self.is_open = is_open

    def add(self, data: bytes) -> None:
        self.data.append(data)
        self.size += len(data)


class OrderedOutput:
    """Passes output on to `stream` up to the first open place.

    `limit`: waiting output ends after this many messages, of which `counted` has to be called for each; None: it does
    not end. A caller flushes its sink before and after it fills a place or counts a message.
    """

    def __init__(self, stream: ByteOutput, *, limit: int | None = None) -> None:
        self._stream = stream
        self._limit = limit
        self._parts: deque[_Part] = deque()
        """Output that waits, the earliest first; the last one is not a place."""
        self._places: dict[int, _Part] = {}
        """The open places, the earliest first."""
        self._given_up: dict[int, _Part] = {}
        """The contents of places for which the output did not wait."""
        self._at: _Part | None = None
        self._held = self._held_late = 0
        self.collects = False
        """Whether a flush only moves the output of a sink to its place."""
        self.shown = 0
        """Messages passed on, as far as they are counted."""
        self.late = 0
        """Places that were shown after later output."""
        self.dropped = 0
        """Places that were dropped without a decision."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Take output for the current place."""
        if not self._parts:
            self._stream.write(data)
            return
        (self._parts[-1] if self._at is None else self._at).add(bytes(data))
        self._held += len(data)
        if self._held > MAX_HELD:
            self._give_up()

    def write_held(self, data: bytes, held: Sequence[HeldLines]) -> None:
        """Take lines of which some have places of their own. Hot."""
        at = 0
        for key, begin, end in held:
            if begin > at:
                self.write(data[at:begin])
            self._open(key).add(data[begin:end])
            self._held += end - begin
            if self._held > MAX_HELD or len(self._places) > MAX_PLACES:
                self._give_up()
            at = end
        if at < len(data):
            self.write(data[at:])

    def flush(self) -> None:
        """Flush what was passed on."""
        if not self.collects:
            self._stream.flush()

    @contextmanager
    def at(self, key: int) -> Iterator[None]:
        """Open a place at the end, for the output written within."""
        self._at = self._open(key)
        yield
        self._at = None
        if len(self._places) > MAX_PLACES:
            self._give_up()

    def _open(self, key: int) -> _Part:
        part = self._places[key] = _Part(is_open=True)
        self._parts += (part, _Part())
        return part

    def decide(self, key: int, *, shown: bool) -> bool:
        """Show a place, or drop its content; returns whether it is shown."""
        part = self._places.pop(key, None)
        if part is not None:
            if not shown:
                self._held -= part.size
                part.data, part.size, part.count = [], 0, 0
            part.is_open = False
            self._release()
            return shown
        part = self._given_up.pop(key, None)
        if part is None:
            return False
        self._held_late -= part.size
        if shown:
            self.late += 1
            for data in part.data:
                self.write(data)
            self.counted(part.count)
        return shown

    def counted(self, count: int = 1) -> None:
        """The output so far, at the current place, includes more messages."""
        if not self._parts:
            self.shown += count
            return
        (self._parts[-1] if self._at is None else self._at).count += count
        if self._at is None:
            self._parts.append(_Part())

    def finish(self) -> None:
        """No more decisions follow."""
        for key in list(self._places):
            self.decide(key, shown=False)

    def _give_up(self) -> None:
        """Continue without the earliest places, until little waits."""
        while self._places and (self._held > MAX_HELD // 2 or len(self._places) > MAX_PLACES):
            key = next(iter(self._places))
            if self._places[key] is self._at:
                break
            self._given_up[key] = late = _Part()
            part = self._places[key]
            late.data, late.size, late.count = part.data, part.size, part.count
            self._held_late += late.size
            self.decide(key, shown=False)
        while self._held_late > MAX_HELD or len(self._given_up) > MAX_PLACES:
            self._held_late -= self._given_up.pop(next(iter(self._given_up))).size
            self.dropped += 1

    def _release(self) -> None:
        """Pass on the parts before the first open place."""
        while self._parts and not self._parts[0].is_open:
            part = self._parts.popleft()
            self._held -= part.size
            if self._limit is not None and self.shown >= self._limit:
                continue
            for data in part.data:
                self._stream.write(data)
            self.shown += part.count


# -- the sink ----------------------------------------------------------------------------------------------------------


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
        if lines.held:
            self._collect()
            self._output.write_held(bytes(lines.data), lines.held)
        else:
            self.inner.write_lines(lines)
        self._count += lines.count

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
