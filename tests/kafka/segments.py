"""Streams as segments: runs for a framer or a search, and a connection that is fed them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from kafkasniff.kafka.connection.events import Event
from kafkasniff.tcp.segments import Gap, Run, Stretch
from tests.oracle.kafka.connection import KafkaConnection
from tests.oracle.kafka.recognition import ConnectionOptions


def run_of(segments: Sequence[bytes], orders: Sequence[int] | None = None) -> Run:
    """Segments of one stream, one after the other; each comes with the packet of its order, a microsecond apart."""
    lengths = [len(segment) for segment in segments]
    ends = list(accumulate(lengths))
    offsets = [end - length for end, length in zip(ends, lengths, strict=True)]
    known = list(range(len(segments)) if orders is None else orders)
    times = [1000 * order for order in known]
    return Run(b"".join(segments), offsets, lengths, ends, known, times, known, times, 0, len(segments))


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Bytes cut at these positions; no piece is empty."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


class Talk:
    """A connection that is fed its segments and gaps; `events` is its output."""

    def __init__(self) -> None:
        self.connection = KafkaConnection(ConnectionOptions())
        self.events: list[Event] = []
        self._order = 0

    def send(self, direction: int, segments: Sequence[bytes]) -> None:
        """Segments of one stream, one after the other."""
        run = run_of(segments, range(self._order, self._order + len(segments)))
        self._order += len(segments)
        self.events += self.connection.feed([Stretch((None, run) if direction else (run, None))])

    def lose(self, direction: int, size: int = 10) -> None:
        """A gap."""
        order, self._order = self._order, self._order + 1
        gap = Gap(order, direction, size, order, 1000 * order, False, 1000 * order)
        self.events += self.connection.feed([gap])
