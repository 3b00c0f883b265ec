"""Stream bytes of the oracle: several segments at once, as its reassembly makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec

from kafkasniff.tcp import segments
from kafkasniff.tcp.segments import Segment

__all__ = ["Item", "Run", "Stretch", "in_segments", "in_stretches"]


class Run:
    """Consecutive segments [first, last) of one stream, without a hole between them.

    The lists are indexed by segment and may be longer than the run (a batch shares one set of lists among its runs):

    - `offset`, `length`: the segment's bytes are `buffer[offset:offset + length]`
    - `end`: running sum of the lengths, so that positions within the run can be looked up by bisection
    - `packet`: the packet that delivered the segment (see PACKET_SHIFT); `time`: that packet's time_ns
    - `order`: order of the packet that made the segment contiguous with the previous bytes; `released`: its time_ns.
      Differs from the delivering packet if segments were held back. Never decreases within a run.
      After a gap there is no such packet: there `order` is that of the packet at which the gap was declared, and
      `released` the time at which all bytes from the gap up to here were present
    """

    __slots__ = ("buffer", "end", "first", "last", "length", "offset", "order", "packet", "released", "time")

    def __init__(  # noqa: PLR0917 (made in the hot path, where keywords cost)
        self,
        buffer: bytes,
        offset: list[int],
        length: list[int],
        end: list[int],
        packet: list[int],
        time: list[int],
        order: list[int],
        released: list[int],
        first: int,
        last: int,
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.length = length
        self.end = end
        self.packet = packet
        self.time = time
        self.order = order
        self.released = released
        self.first = first
        self.last = last


class Stretch(msgspec.Struct, gc=False):
    """A stretch of a connection during which neither stream had a hole: at most one run for each direction (0, 1)."""

    runs: tuple[Run | None, Run | None]


Item = Stretch | segments.Item


def in_segments(items: Iterable[Item]) -> Iterator[segments.Item]:
    """The same items, segment by segment, in capture order."""
    for item in items:
        if not isinstance(item, Stretch):
            yield item
            continue
        found = [
            Segment(
                run.order[index],
                direction,
                bytes(run.buffer[run.offset[index] : run.offset[index] + run.length[index]]),
                run.packet[index],
                run.time[index],
                run.released[index],
            )
            for direction, run in enumerate(item.runs)
            if run is not None
            for index in range(run.first, run.last)
        ]
        yield from sorted(found, key=attrgetter("order"))


def in_stretches(items: Iterable[segments.Item]) -> Iterator[Item]:
    """The same items, with each segment as a stretch."""
    for item in items:
        if not isinstance(item, Segment):
            yield item
            continue
        size = len(item.data)
        columns = [item.packet], [item.time_ns], [item.order], [item.released]
        run = Run(item.data, [0], [size], [size], *columns, 0, 1)
        yield Stretch((run, None) if item.direction == 0 else (None, run))
