"""Keeping up with a live capture: the further decoding is behind, the less of each message is decoded.

What the kernel has captured waits in a ring; when that is full, packets are lost, and a lost packet costs more than one
message. So as the ring fills, first records are left out, then bodies, then whole exchanges, which are still paired and
counted; as it empties they come back one by one. Every such time is told by two problems, with what was left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from kafkasniff.inspector import Inspector
from kafkasniff.kafka.detail import LeftOut, Level
from kafkasniff.model import Problem
from kafkasniff.packets import NO_TIME, Note, PacketBatch

__all__ = ["CALM_SECONDS", "RAISE_AT", "Pressure", "left_out_line"]

RAISE_AT: Final = {Level.NO_RECORDS: 0.5, Level.NO_BODIES: 0.7, Level.NO_MESSAGES: 0.85}
"""Part of the ring that has to wait for each level. Many connections that begin at once, each of which costs as much as
a hundred messages, fill half of the usual ring."""
LOWER_BELOW: Final = 0.5
"""A level is left when less waits than this part of what raised it: else it would come and go with every batch."""
CALM_SECONDS: Final = 1.0
"""Nothing was left out for so long: then it is told that it is over."""

_FROM_HERE: Final = {
    Level.NO_RECORDS: "records are not decoded",
    Level.NO_BODIES: "bodies are not decoded but for those of Produce requests",
    Level.NO_MESSAGES: "exchanges that begin now are counted and not shown",
}


class Pressure:
    """Sets the level of inspectors, in front of each batch.

    - `backlog`: part of the ring, 0 to 1, that waits
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
        """Since it was last told that it was over."""
        self._since = self._calm_since = 0.0
        self._before = LeftOut()
        """What had been left out before."""

    def batches(self, source: Iterable[PacketBatch]) -> Iterator[PacketBatch]:
        """The batches of a source; what there is to tell is among their notes."""
        for batch in source:
            problem = self._look(self._backlog())
            if problem is not None:
                if len(batch) and batch.time_ns[0] != NO_TIME:
                    problem = msgspec.structs.replace(problem, time_ns=int(batch.time_ns[0]))
                batch.notes.insert(0, Note(batch.end_order - batch.packets, problem))
            yield batch

    def _look(self, backlog: float) -> Problem | None:
        """Set the level by what waits; returns what is to be told."""
        now = self._clock()
        level = self._level
        raised = max((one for one, part in RAISE_AT.items() if backlog >= part), default=Level.ALL)
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
            told = left_out_line(_difference(self.left_out(), self._before)) or "nothing was left out"
            return Problem("live-caught-up", f"after {self._calm_since - self._since:.1f} s: {told}")
        return None

    def left_out(self) -> LeftOut:
        """What was left out so far, of the first inspector's messages."""
        return msgspec.structs.replace(self._inspectors[0][0].left_out) if self._inspectors else LeftOut()


def _difference(later: LeftOut, earlier: LeftOut) -> LeftOut:
    return LeftOut(*(getattr(later, name) - getattr(earlier, name) for name in LeftOut.__struct_fields__))


def left_out_line(left_out: LeftOut) -> str:
    """What was left out, in words; "" where nothing was."""
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
