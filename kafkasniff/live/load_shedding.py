"""Load shedding for live captures: the further decoding lags, the less of each message is decoded.

Captured packets wait in a ring of the kernel. When that is full, packets are lost, and a lost packet costs more than
one message. So as the ring fills, first records are skipped, then bodies, then whole exchanges, which are still paired
and counted; as it empties they return one by one. While decoding catches up by itself, nothing is skipped, unless the
ring is nearly full. Each such period is reported by two problems that say what was skipped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.events import LeftOut, Level
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import Note, PacketBatch

RAISE_AT: Final = {Level.NO_RECORDS: 0.5, Level.NO_BODIES: 0.7, Level.NO_MESSAGES: 0.85}
"""Fraction of the ring that has to wait for each level."""
GROWTH_SECONDS: Final = 0.25
"""Records and bodies are skipped only if the backlog has not shrunk for this long. So the backlog of a burst or a busy
disk is decoded in full: 15% of the usual ring, the distance between two levels, is 0.2 s of 200,000 small packets
per second. Skipping would not help with small messages anyway, whose packets take 2 to 3 µs with or without bodies;
for large batches as JSON it saves half.
"""
LOWER_BELOW: Final = 0.5
"""A level ends when the backlog falls below this fraction of its threshold; otherwise it would toggle all the time."""
CALM_SECONDS: Final = 1.0
"""After this long without skipping, the end is reported."""

_FROM_HERE: Final = {
    Level.NO_RECORDS: "records are not decoded",
    Level.NO_BODIES: "bodies are not decoded",
    Level.NO_MESSAGES: "exchanges that begin now are counted and not shown",
}


class Pressure:
    """Sets the level of inspectors before each batch.

    - `backlog`: waiting fraction of the ring, 0 to 1
    - `inspectors`: each with the highest level that it may be set to
    """

    def __init__(
        self,
        backlog: Callable[[], float],
        inspectors: Iterable[tuple[Inspector, Level]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backlog = backlog
        self._inspectors = tuple(inspectors)
        self._has_records = any(inspector.reads_records for inspector, _ in self._inspectors)
        self._clock = clock
        self._level = Level.ALL
        self._worst = Level.ALL
        """Since the end was last reported."""
        self._since = self._calm_since = 0.0
        self._looks: deque[tuple[float, float]] = deque()
        """Times and backlogs of `GROWTH_SECONDS`, and the one before."""
        self._before = LeftOut()
        """What had been skipped before."""

    def batches(self, source: Iterable[PacketBatch]) -> Iterator[PacketBatch]:
        """The batches of a source, with reports among their notes."""
        for batch in source:
            problem = self._look(self._backlog())
            if problem is not None:
                if len(batch) and batch.time_ns[0] != NO_TIME:
                    problem = msgspec.structs.replace(problem, time_ns=int(batch.time_ns[0]))
                batch.notes.insert(0, Note(batch.end_order - batch.packets, problem))
            yield batch

    def _look(self, backlog: float) -> Problem | None:
        """Set the level by the backlog; returns what to report."""
        now = self._clock()
        level = self._level
        raised = self._wanted(now, backlog)
        if raised > level:
            level = raised
        elif level and backlog < RAISE_AT[level] * LOWER_BELOW:
            level = Level(level - 1)
            self._calm_since = now
        if level != self._level:
            self._level = level
            for inspector, highest in self._inspectors:
                inspector.level = min(level, highest)
        if level > self._worst and (level > Level.NO_RECORDS or self._has_records):
            if not self._worst:
                self._since, self._before = now, self.left_out()
            self._worst = level
            return Problem(
                "live-behind", f"{backlog:.0%} of the ring waits to be read: from here on {_FROM_HERE[level]}"
            )
        if self._worst and not level and now - self._calm_since >= CALM_SECONDS:
            self._worst = Level.ALL
            skipped = left_out_line(_difference(self.left_out(), self._before)) or "nothing was skipped"
            return Problem("live-caught-up", f"after {self._calm_since - self._since:.1f} s: {skipped}")
        return None

    def _wanted(self, now: float, backlog: float) -> Level:
        """The level for a backlog, depending on the previous level."""
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now - GROWTH_SECONDS:
            looks.popleft()
        before = looks[-1][1] if looks else 0.0
        grows = all(backlog >= one for _, one in looks)
        looks.append((now, backlog))
        wanted = Level.ALL
        for level, part in RAISE_AT.items():
            # Only a second look shows whether the backlog of a batch grows.
            if backlog >= part and (level == Level.NO_MESSAGES or (grows and before >= part)):
                wanted = level
        return wanted

    def left_out(self) -> LeftOut:
        """What was skipped so far, judged by the first inspector's messages."""
        return msgspec.structs.replace(self._inspectors[0][0].left_out) if self._inspectors else LeftOut()


def _difference(later: LeftOut, earlier: LeftOut) -> LeftOut:
    return LeftOut(*(getattr(later, name) - getattr(earlier, name) for name in LeftOut.__struct_fields__))


def left_out_line(left_out: LeftOut) -> str:
    """A phrase for the skipped parts; "" if nothing was."""
    hidden = left_out.requests + left_out.responses
    parts = [
        f"{count:,} {'message' if count == 1 else 'messages'} {what}"
        for count, what in (
            (left_out.records, "without records"),
            (left_out.bodies, "without body"),
            (hidden, "not shown"),
        )
        if count
    ]
    return ", ".join(parts)
