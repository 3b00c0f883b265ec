"""Clear bytes, collected into runs as reassembly makes them."""

from __future__ import annotations

from itertools import accumulate

from kafkasniff.tcp.segments import Run, Stretch
from kafkasniff.tls.record import Record

__all__ = ["ClearBytes"]


class _Pieces:
    """Pieces of one stream, as columns."""

    __slots__ = ("data", "order", "packet", "released", "time")

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.packet: list[int] = []
        self.time: list[int] = []
        self.order: list[int] = []
        self.released: list[int] = []

    def run(self) -> Run:
        data = self.data
        lengths = [len(piece) for piece in data]
        ends = list(accumulate(lengths))
        buffer = data[0] if len(data) == 1 else b"".join(data)
        starts = [0, *ends[:-1]]
        return Run(buffer, starts, lengths, ends, self.packet, self.time, self.order, self.released, 0, len(data))


class ClearBytes:
    """The clear bytes of both streams since they were last taken."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces = (_Pieces(), _Pieces())
        self.size = [0, 0]
        """Number of bytes of each stream so far; the reader may reset it."""

    def add(self, direction: int, record: Record, lead: int, clear: bytes, now: int) -> None:
        """Take the contents of a record, at the packet of order `now`; its first byte is at `lead` in the fragment.

        All of it is available only when the record is complete. But each byte is attributed to the packet that carried
        it, so that latencies are right; the last one to the packet with the record's last byte.
        """
        pieces = self._pieces[direction]
        self.size[direction] += len(clear)
        *marks, last = record.marks
        order, released = max(last.order, now), last.released
        at, end = 0, len(clear)
        for mark in marks:
            stop = min(mark.end - lead, end - 1)
            if stop > at:
                pieces.data.append(clear[at:stop])
                pieces.packet.append(mark.packet)
                pieces.time.append(mark.time_ns)
                pieces.order.append(order)
                pieces.released.append(released)
                at = stop
        pieces.data.append(clear[at:])
        pieces.packet.append(last.packet)
        pieces.time.append(last.time_ns)
        pieces.order.append(order)
        pieces.released.append(released)

    def would_tie(self, direction: int, order: int) -> bool:
        """Whether the other stream has bytes of this order or later: then those have to be taken before."""
        other = self._pieces[1 - direction].order
        return bool(other) and other[-1] >= order

    def take(self) -> Stretch | None:
        """The bytes so far, as runs; None if there are none."""
        if not (self._pieces[0].data or self._pieces[1].data):
            return None
        first, second = (pieces.run() if pieces.data else None for pieces in self._pieces)
        self._pieces = (_Pieces(), _Pieces())
        return Stretch((first, second))
