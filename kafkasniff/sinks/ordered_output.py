"""Output with places that are filled, or removed, later: lines of messages that a filter has yet to decide on.

Sinks know nothing of it: they write to the end, and a line that belongs to an earlier place while `at` is active.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafkasniff.sinks.lines import ByteOutput

__all__ = ["MAX_HELD", "MAX_PLACES", "OrderedOutput"]

MAX_HELD: Final = 64 << 20
"""Bytes of lines that wait for earlier places; with more, the earliest place is given up."""
MAX_PLACES: Final = 1 << 16
"""Places that are open at a time; with more, the earliest one is given up."""


class _Part:
    """Consecutive output. `count`: its messages; `heading`: it is shown only if something follows it."""

    __slots__ = ("count", "data", "heading", "is_open")

    def __init__(self, *, is_open: bool = False, heading: bool = False) -> None:
        self.data: list[bytes] = []
        self.count = 0
        self.is_open = is_open
        self.heading = heading


class OrderedOutput:
    """Passes output on to `stream` up to the first open place.

    `limit`: waiting output ends after this many messages, of which `counted` has to be called for each; None: it does
    not end. A caller flushes its sink before it opens or fills a place, and before and after it counts a message.
    """

    def __init__(self, stream: ByteOutput, *, limit: int | None = None) -> None:
        self._stream = stream
        self._limit = limit
        self._parts: deque[_Part] = deque()
        """Output that waits, the earliest first; the last one is not a place."""
        self._places: dict[int, _Part] = {}
        """The open places, the earliest first."""
        self._heading: list[bytes] = []
        """Headings that were passed on, but after which nothing followed."""
        self._at: _Part | None = None
        self._held = 0
        self.collects = False
        """Whether a flush only moves the output of a sink to its place."""
        self.shown = 0
        """Messages passed on, as far as they are counted."""

    def __contains__(self, key: int) -> bool:
        """Whether there is an open place for this key."""
        return key in self._places

    def write(self, data: bytes | memoryview, /) -> None:
        """Take output for the current place."""
        if not self._parts:
            self._pass(data)
            return
        part = self._parts[-1] if self._at is None else self._at
        part.data.append(bytes(data))
        self._held += len(data)
        if self._held > MAX_HELD:
            self._give_up()

    def flush(self) -> None:
        """Flush what was passed on."""
        if not self.collects:
            self._stream.flush()

    @contextmanager
    def headings(self) -> Iterator[None]:
        """Output written within is shown only if something follows it."""
        self._parts.append(_Part(heading=True))
        yield
        self._parts.append(_Part())
        self._release()

    def open(self, key: int) -> None:
        """Open a place at the end."""
        part = self._places[key] = _Part(is_open=True)
        self._parts += (part, _Part())
        if len(self._places) > MAX_PLACES:
            self._give_up()

    @contextmanager
    def at(self, key: int) -> Iterator[None]:
        """Output written within is shown at this open place, which is then closed."""
        part = self._at = self._places.pop(key)
        yield
        part.is_open, self._at = False, None
        self._release()

    def close(self, key: int) -> None:
        """Nothing is shown at this place."""
        part = self._places.pop(key, None)
        if part is not None:
            part.is_open = False
            self._release()

    def counted(self) -> None:
        """The output so far, at the current place, includes another message."""
        if not self._parts:
            self.shown += 1
            return
        (self._parts[-1] if self._at is None else self._at).count += 1
        if self._at is None:
            self._parts.append(_Part())

    def finish(self) -> None:
        """No more places are filled."""
        for key in list(self._places):
            self.close(key)

    def _give_up(self) -> None:
        """Continue without the earliest places, until little waits."""
        while self._places and (self._held > MAX_HELD // 2 or len(self._places) > MAX_PLACES):
            self.close(next(iter(self._places)))

    def _release(self) -> None:
        """Pass on the parts before the first open place."""
        while self._parts and not self._parts[0].is_open:
            part = self._parts.popleft()
            self._held -= sum(map(len, part.data))
            if self._limit is not None and self.shown >= self._limit:
                continue
            if part.heading:
                self._heading += part.data
            else:
                for data in part.data:
                    self._pass(data)
            self.shown += part.count

    def _pass(self, data: bytes | memoryview) -> None:
        if self._heading:
            self._stream.write(b"".join(self._heading))
            self._heading.clear()
        self._stream.write(data)
