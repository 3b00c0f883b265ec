"""Delay between a message's last packet and the writing of its line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkasniff.model import Lines, Message

if TYPE_CHECKING:
    from kafkasniff.cli.running.pipeline import Event, LineSink

__all__ = ["MAX_SAMPLES", "TimedSink"]

MAX_SAMPLES: Final = 16_384
"""Maximum number of samples. When it is reached, every other sample is dropped and the sampling rate is halved, so the
samples stay evenly spread over the run."""


class TimedSink:
    """Passes events on to a sink and samples the delay of messages. `now`: the clock of the packets, in ns."""

    def __init__(self, inner: LineSink, *, now: Callable[[], int] = time.time_ns) -> None:
        self._inner = inner
        self._now = now
        self._delays: list[int] = []
        self._every = 1
        self._skip = 0

    def write(self, event: Event) -> None:
        """Pass an event on. Hot."""
        self._inner.write(event)
        if type(event) is Message:
            if self._skip:
                self._skip -= 1
            elif event.time_ns is not None:
                self._take(self._now() - event.time_ns)

    def write_lines(self, lines: Lines) -> None:
        """Pass on lines of messages; the delay is that of the last one."""
        self._inner.write_lines(lines)
        if self._skip >= lines.count:
            self._skip -= lines.count
        elif lines.time_ns is not None:
            self._take(self._now() - lines.time_ns)

    def close(self) -> None:
        """End of events."""
        self._inner.close()

    def _take(self, delay: int) -> None:
        self._delays.append(delay)
        if len(self._delays) == MAX_SAMPLES:
            del self._delays[1::2]
            self._every *= 2
        self._skip = self._every - 1

    def line(self) -> str:
        """Median and 99th percentile as text; "" if there was no message."""
        if not self._delays:
            return ""
        from kafkasniff.text.times import duration

        ordered = sorted(self._delays)
        middle, late = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99))
        return f"lines {duration(middle)} after their packets (99th percentile {duration(late)})"
