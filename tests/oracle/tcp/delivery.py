"""Bytes of a TCP connection's two streams: what is delivered, held back, repeated, or missing.

Theory of operation. Each stream has `next`, the position (sequence number, unwrapped) of the next expected byte. A
segment that starts there is delivered; one that starts before it is a retransmission, of which only new bytes count
(the first arrival of a byte wins); one that starts after it is held back, and the hole before it stays open until the
missing bytes arrive or the hole is declared a gap:

- the peer has acknowledged bytes after the hole, so they were sent and received and are just not in the capture,
  and a grace of GRACE_PACKETS packets or GRACE_NS of the connection has passed (captures reorder packets too);
- or no packet of the peer was seen for ONE_SIDED_PACKETS packets (a capture of one direction has no acknowledgements);
- or more than MAX_HELD_BYTES or MAX_HELD_SEGMENTS are held back;
- or the connection ends: RST, reuse of its ports, idleness, end of the capture.

A segment that arrives later, with all its bytes in a gap, is passed on separately (`Late`).

All limits count packets and packet times of this connection alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Final

import msgspec

from kafkasniff.packets import ACK
from kafkasniff.tls.items import Gap, Hole, Item, Late, Retransmit, Segment, TcpProblem
from tests.oracle.tcp.stream import Held, Packet, Stream

GRACE_PACKETS: Final = 32
GRACE_NS: Final = 1_000_000_000
ONE_SIDED_PACKETS: Final = 256
MAX_HELD_BYTES: Final = 16 << 20
"""Bytes held back per stream after holes; larger than the receive windows that Linux grants by default (6 MiB)."""
MAX_HELD_SEGMENTS: Final = 16_384
MAX_AHEAD: Final = 64 << 20
"""A segment further ahead is outside any plausible window (TCP's limit, 1 GiB, would fit half of all forgeries)."""
AHEAD_SEGMENTS: Final = 3
"""This many consecutive segments outside the window mean that the stream continues after a large loss."""
MAX_PROBLEMS: Final = 20
"""Problems reported per connection and kind; forged packets must not flood the output."""


class StreamPair:
    """Both streams of a connection, and the items that its packets made of them."""

    def __init__(self) -> None:
        self.streams = (Stream(), Stream())
        self.packets = 0
        """Packets of both directions that were handled one by one since a hole opened."""
        self.items: list[Item] = []
        """Items of this connection in the current batch, in order."""
        self.buffer = b""
        """The current batch's buffer."""
        self._counts: Counter[str] = Counter()
        """Problems so far, by kind."""
        self.unreported_repeated = 0
        self.unreported_ignored = 0
        """Bytes added to the streams' counts and not yet reported; the reader of the items resets them."""

    def _data(self, packet: Packet, stream: Stream, seq: int) -> None:
        if stream.next is None:
            stream.next = stream.begin = seq  # the capture starts in the middle of the connection
        start = stream.position(seq)
        wire = packet.wire_length
        ahead = start - stream.next
        copied = stream.remember((packet.seq, wire, packet.ident))
        if stream.fin is not None and start + wire > stream.fin:
            self._ignore(stream, packet.length)
            self._problem(packet, "tcp-data-after-fin", "data after the end of the stream was ignored", wire)
            return
        if ahead + wire <= 0:
            if ahead < -MAX_AHEAD:
                self._ignore(stream, packet.length)
                self._problem(packet, "tcp-out-of-window", "data far outside the window was ignored", wire)
                return
            if stream.missing and packet.length == wire and stream.find_missing(start, start + wire):
                data = self.buffer[packet.offset : packet.offset + wire]
                self.items.append(Late(packet.order, packet.direction, data, packet.packet, packet.time_ns))
                return
            self._repeat(stream, start, packet.length)
            if not copied and not (wire == 1 and ahead == -1):  # that is a keep-alive (RFC 9293, 3.8.4)
                self.items.append(Retransmit(packet.order, packet.direction))
            return
        if ahead > MAX_AHEAD:
            if not self._beyond_loss(packet, stream, start):
                self._ignore(stream, packet.length)
                return
            ahead = 0
        data = self.buffer[packet.offset : packet.offset + packet.length]
        if ahead > 0:
            if copied and self._covered(stream, start, wire):
                self._repeat(stream, start, packet.length)
                return
            held = Held(start, data, wire, packet.packet, packet.time_ns, self.packets, packet.clock)
            self._hold(stream, held, packet)
            return
        if ahead < 0:
            self._repeat(stream, start, min(-ahead, packet.length))
            data = data[-ahead:]
            wire += ahead
        had_hole = bool(stream.held)
        self._deliver(stream, packet, Held(stream.next, data, wire, packet.packet, packet.time_ns))
        if had_hole and not stream.held:
            self.items.append(Hole(packet.order, packet.direction, open=False))

    def _beyond_loss(self, packet: Packet, stream: Stream, start: int) -> bool:
        """Whether a segment implausibly far ahead is the continuation of the stream after a large loss."""
        stream.ahead_count = stream.ahead_count + 1 if start == stream.ahead_next else 1
        stream.ahead_next = start + packet.wire_length
        if stream.ahead_count < AHEAD_SEGMENTS:
            if stream.ahead_count == 1:
                self._problem(
                    packet, "tcp-out-of-window", "data far outside the window was ignored", packet.wire_length
                )
            return False
        stream.ahead_count = 0
        while stream.held:
            self._give_up_hole(stream, packet)
        assert stream.next is not None
        size, time_ns = start - stream.next, packet.time_ns
        self.items.append(Gap(packet.order, packet.direction, size, packet.packet, time_ns, resumed_ns=time_ns))
        stream.miss(stream.next, start)
        stream.next = start
        return True

    def _repeat(self, stream: Stream, start: int, count: int) -> None:
        """Count bytes from `start` on that the stream already had; bytes before its first one were not part of it."""
        early = min(max(stream.begin - start, 0), count)
        if early:
            self._ignore(stream, early)
        stream.repeated += count - early
        self.unreported_repeated += count - early

    def _ignore(self, stream: Stream, count: int) -> None:
        """Count bytes that are not part of the stream."""
        stream.ignored += count
        self.unreported_ignored += count

    @staticmethod
    def _covered(stream: Stream, start: int, wire: int) -> bool:
        index = bisect_right(stream.held, start, key=lambda held: held.start) - 1
        return index >= 0 and stream.held[index].start + stream.held[index].wire >= start + wire

    def _hold(self, stream: Stream, segment: Held, packet: Packet) -> None:
        """Keep a segment that lies after a hole; where it overlaps with held segments, those win."""
        if not stream.held:
            stream.opened_count = self.packets
            stream.acked = -1
            self.items.append(Hole(packet.order, packet.direction, open=True))
        held = stream.held
        start, data, wire = segment.start, segment.data, segment.wire
        index = bisect_right(held, start, key=lambda other: other.start)
        if index and held[index - 1].start + held[index - 1].wire > start:
            cut = held[index - 1].start + held[index - 1].wire - start
            start, data, wire = start + cut, data[cut:], wire - cut
        fresh = kept = 0
        while wire > 0:
            room = held[index].start - start if index < len(held) else wire
            if room > 0:
                part = min(room, wire)
                held.insert(index, msgspec.structs.replace(segment, start=start, data=data[:part], wire=part))
                kept += min(len(data), part)
                index += 1
                fresh += part
            cut = room + (held[index].wire if index < len(held) else 0)
            start, data, wire = start + cut, data[cut:], wire - cut
            index += 1
        stream.held_bytes += kept
        if fresh < segment.wire:
            self._repeat(stream, segment.start, len(segment.data) - kept)
            self.items.append(Retransmit(packet.order, packet.direction))
        while stream.held_bytes > MAX_HELD_BYTES or len(held) > MAX_HELD_SEGMENTS:
            self._give_up_hole(stream, packet)

    def _deliver(self, stream: Stream, packet: Packet, fresh: Held, *, after_gap: bool = False) -> None:
        """Deliver a segment that starts at `next`, and the held ones that it reaches; bytes that were held first win.

        They count as contiguous from `packet` on, which filled the hole before them. After a gap, which nothing fills,
        each counts from the latest packet on that brought bytes up to it.
        """
        direction = 0 if stream is self.streams[0] else 1
        held = stream.held
        segments: list[Held] = []
        doubled = len(fresh.data)
        position = fresh.start
        end = fresh.start + fresh.wire
        taken = 0
        while taken < len(held) and held[taken].start <= max(position, end):
            segment = held[taken]
            taken += 1
            stream.held_bytes -= len(segment.data)
            if segment.start > position:
                segments.append(fresh.part(position, segment.start))
                doubled -= len(segments[-1].data)
            segments.append(segment)
            position = segment.start + segment.wire
        if position < end:
            segments.append(fresh.part(position, end))
            doubled -= len(segments[-1].data)
            position = end
        if doubled:
            self._repeat(stream, fresh.start, doubled)
        if taken:
            del held[:taken]
            stream.opened_count = self.packets
        stream.next = position
        latest = fresh
        for segment in segments:
            if segment.held_count > latest.held_count:
                latest = segment
            released = latest.time_ns if after_gap else packet.time_ns
            if segment.data:
                place = segment.packet, segment.time_ns
                self.items.append(Segment(packet.order, direction, segment.data, *place, released))
            if (missing := segment.wire - len(segment.data)) > 0:
                gap = Gap(packet.order, direction, missing, segment.packet, packet.time_ns, True, released)
                self.items.append(gap)
        self._finish(stream)

    # -- holes ------------------------------------------------------------------------------------------------------

    def _look_at_holes(self, packet: Packet) -> None:
        self.packets += 1
        for direction in (0, 1):
            stream = self.streams[direction]
            while stream.held and self._is_gap(stream, direction, packet):
                self._give_up_hole(stream, packet)

    def _is_gap(self, stream: Stream, direction: int, packet: Packet) -> bool:
        """Whether the first hole of the stream has become a gap."""
        first = stream.held[0]
        if packet.direction != direction:
            stream.opened_count = self.packets
            if packet.flags & ACK:
                stream.acked = max(stream.acked, stream.position(packet.ack))
        elif self.packets - stream.opened_count >= ONE_SIDED_PACKETS:
            return True
        return stream.acked >= first.start and (
            self.packets - first.held_count >= GRACE_PACKETS or packet.clock - first.held_clock >= GRACE_NS
        )

    def _give_up_hole(self, stream: Stream, packet: Packet) -> None:
        """The first hole of the stream becomes a gap; segments held back after it are delivered."""
        assert stream.next is not None
        first = stream.held.pop(0)
        stream.held_bytes -= len(first.data)
        direction = 0 if stream is self.streams[0] else 1
        size = first.start - stream.next
        self.items.append(Gap(packet.order, direction, size, packet.packet, packet.time_ns, resumed_ns=first.time_ns))
        stream.miss(stream.next, first.start)
        stream.next = first.start
        self._deliver(stream, packet, first, after_gap=True)
        if not stream.held:
            self.items.append(Hole(packet.order, direction, open=False))

    def _finish(self, stream: Stream) -> None:
        if stream.fin is not None and not stream.finished and stream.next is not None and stream.next >= stream.fin:
            stream.finished = True
            stream.next = stream.fin + 1

    def _problem(self, packet: Packet, kind: str, detail: str, count: int | None = None) -> None:
        self._counts[kind] += 1
        reported = self._counts[kind]
        if reported > MAX_PROBLEMS:
            return
        if reported == MAX_PROBLEMS:
            detail += " (further ones on this connection are not reported)"
        self.items.append(
            TcpProblem(packet.order, packet.direction, kind, detail, packet.packet, packet.time_ns, count)
        )
