"""One TCP connection: the state of its two streams, packet by packet.

This is the executable specification of reassembly, and the path for every packet that is not plainly the next one of
its stream; `reassembly.py` handles the plain ones in bulk. Both must give the same result, which tests check.

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

At the end of the connection, bytes that the peer has acknowledged and that follow the last captured one are a gap, too.
If no packet of a stream's sender was captured, nothing else is known of the stream.

All limits count packets and packet times of this connection alone.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal

from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.segments import (
    NO_TIME,
    Closed,
    Gap,
    Hole,
    Item,
    Late,
    Retransmit,
    Run,
    Started,
    Stretch,
    TcpProblem,
)
from kafkasniff.tcp.stream import MASK, Held, Packet, Stream

__all__ = [
    "GRACE_NS",
    "GRACE_PACKETS",
    "MAX_AHEAD",
    "MAX_HELD_BYTES",
    "MAX_HELD_SEGMENTS",
    "ONE_SIDED_PACKETS",
    "TcpConnection",
]

GRACE_PACKETS: Final = 32
GRACE_NS: Final = 1_000_000_000
ONE_SIDED_PACKETS: Final = 256
MAX_HELD_BYTES: Final = 16 << 20
"""Bytes held back per stream after holes; larger than the receive windows that Linux grants by default (6 MiB)."""
MAX_HELD_SEGMENTS: Final = 16_384
MAX_AHEAD: Final = 64 << 20
"""A segment further ahead is outside any plausible window (TCP's limit, 1 GiB, would fit half of all forgeries)."""
RESET_BEHIND: Final = MAX_HELD_BYTES
"""A RST that answers a late segment has the sequence number that this segment acknowledged (RFC 9293, 3.10.7.1): the
bytes after the end of its stream are at most those that may have been in flight."""
AHEAD_SEGMENTS: Final = 3
"""This many consecutive segments outside the window mean that the stream continues after a large loss."""
MAX_PROBLEMS: Final = 20
"""Problems reported per connection and kind; forged packets must not flood the output."""

_AFTER_RST = "data that was sent after the other side had reset the connection: nobody reads it, and it is not decoded"
_SYN_IGNORED = "a SYN on an open connection was not followed by a new one"


class TcpConnection:
    """One lifetime of a 4-tuple."""

    __slots__ = (
        "_counts",
        "buffer",
        "clock",
        "closed",
        "deadline",
        "ended",
        "endpoints",
        "first_order",
        "first_packet",
        "first_time",
        "items",
        "last_packet",
        "last_time",
        "owner",
        "packets",
        "pending_syn",
        "place",
        "reset_by",
        "seen",
        "streams",
        "untold_ignored",
        "untold_repeated",
    )

    def __init__(self, endpoints: tuple[tuple[int, int, int], tuple[int, int, int]], first: Packet) -> None:
        self.endpoints = endpoints
        """(address high half, low half, port) of the sender of direction 0 and of direction 1."""
        self.first_order = first.order
        """Order of the packet at which it was recognized as a separate connection."""
        self.first_packet = first.packet
        self.first_time = first.time_ns
        self.seen = 0
        """Packets of both directions up to its end."""
        self.streams = (Stream(), Stream())
        self.packets = 0
        """Packets of both directions that were handled by this module since a hole opened."""
        self.clock = first.clock
        """The packet clock at the last packet of this connection."""
        self.deadline = 0
        self.closed = False
        self.ended: tuple[int | None, int] = (None, NO_TIME)
        """Direction and time of the first accepted FIN or RST."""
        self.reset_by: int | None = None
        """Direction of the RST that closed the connection."""
        self.pending_syn: Packet | None = None
        """A SYN on an open connection: a new connection if the next packets fit it, else a forgery."""
        self.last_packet = first.packet
        self.last_time = first.time_ns
        self.items: list[Item] = []
        """Items of this connection in the current batch, in order."""
        self.buffer = b""
        """The current batch's buffer."""
        self._counts: dict[str, int] = {}
        self.untold_repeated = 0
        self.untold_ignored = 0
        """Bytes added to the streams' counts and not yet reported; the reader of the items resets them."""
        self.place = -1
        """The kernel's index of it, now or last (`in_step.InStep`); -1: none."""
        self.owner: object | None = None
        """Data that the reader of the items attaches to this connection."""

    # -- one packet -------------------------------------------------------------------------------------------------

    def handle(self, packet: Packet) -> Literal["", "reuse"]:
        """Handle one packet. "reuse": it belongs to a new connection on the same 4-tuple (this one is closed then)."""
        direction = packet.direction
        stream = self.streams[direction]
        flags = packet.flags
        if self.closed:
            return self._after_close(packet, stream)
        self.last_packet = packet.packet
        self.last_time = packet.time_ns
        if (flags & SYN or self.pending_syn is not None) and self._is_reuse(packet, stream):
            self.close("reused", packet)
            return "reuse"
        self.seen += 1
        if not stream.heard:
            stream.hear()
        if flags & RST:
            self._reset(packet, stream)
            return ""
        if flags & ACK:
            self.streams[1 - direction].acknowledge(packet.ack)
        seq = packet.seq
        if flags & SYN:
            if stream.isn is None:
                if stream.next is not None:
                    self._ignore(stream, packet.length)
                    return ""  # reported by _is_reuse
                stream.isn = seq
                stream.next = stream.begin = seq + 1
                self.items.append(Started(packet.order, direction, client=not flags & ACK))
            seq = (seq + 1) & MASK  # data on a SYN starts after it (RFC 7413)
        if packet.wire_length:
            self._data(packet, stream, seq)
        if flags & FIN:
            self._fin(packet, stream, seq)
        if stream.held or self.streams[1 - direction].held:
            self._look_at_holes(packet)
        if self.streams[0].finished and self.streams[1].finished:
            self.close("fin", packet)
        return ""

    def _is_reuse(self, packet: Packet, stream: Stream) -> bool:
        pending = self.pending_syn
        if packet.flags & SYN:
            if stream.isn == packet.seq or (stream.next is None and stream.isn is None and pending is None):
                return False  # a retransmitted SYN, or the first of this stream
            if packet.flags & ACK:
                if pending is None or pending.direction == packet.direction:
                    # The answer to a SYN that was not captured.
                    return pending is None
                return packet.ack == (pending.seq + 1) & MASK
            if stream.fin is not None or self.streams[1 - packet.direction].fin is not None:
                return True
            # Its data, if any (TCP fast open), would have to be kept beyond the batch: it counts as truncated.
            self.pending_syn = packet._replace(length=0)
            return False
        if pending is None:
            return False
        expected = (pending.seq + 1) & MASK
        if pending.direction != packet.direction:
            return bool(packet.flags & RST) and packet.flags & ACK > 0 and packet.ack == expected  # refused
        if packet.seq == expected:
            return True
        self.pending_syn = None
        # Reported now, after the items that were passed on meanwhile.
        self._problem(pending._replace(order=packet.order), "tcp-syn-ignored", _SYN_IGNORED)
        return False

    def _after_close(self, packet: Packet, stream: Stream) -> Literal["", "reuse"]:
        """Packets after the end: late copies are ignored, anything else starts a new connection.

        Data that the peer of a RST had in flight, or sends before it knows of it, is ignored, too, and reported once.
        """
        if packet.flags & SYN:
            return "" if stream.isn == packet.seq else "reuse"
        if packet.flags & RST or not packet.wire_length:
            return ""
        if stream.next is None:
            return "reuse"
        ahead = stream.position(packet.seq) - stream.next
        if -MAX_AHEAD < ahead < 0:
            return ""
        if self.reset_by == 1 - packet.direction and 0 <= ahead <= RESET_BEHIND:
            if "tcp-data-after-rst" not in self._counts:
                self._problem(packet, "tcp-data-after-rst", _AFTER_RST, packet.wire_length)
            return ""
        return "reuse"

    def _reset(self, packet: Packet, stream: Stream) -> None:
        """RST: accepted if its sequence number is the next one of its stream (RFC 5961, 3.2).

        One that answers a late segment of the peer has the number that this segment acknowledged; the peer expects a
        later one, and does not accept it either.
        """
        self._ignore(stream, packet.length)  # a reason as text (RFC 9293, 3.5.3)
        peer = self.streams[1 - packet.direction]
        if stream.next is None:
            # A refused or half-captured connection: the RST must acknowledge the peer's data.
            if peer.next is None or not packet.flags & ACK or packet.ack == peer.next & MASK:
                self._end_by(packet)
            elif not max(peer.begin, peer.next - RESET_BEHIND) <= peer.position(packet.ack) <= peer.next:
                self._report_reset(
                    packet, peer.position(packet.ack) - peer.next, "what its peer has sent, by its acknowledgement"
                )
            return
        position = stream.position(packet.seq)
        end = max(stream.next, stream.held[-1].start + stream.held[-1].wire if stream.held else 0, stream.fin or 0)
        # Linux sends the RST that answers data after close with the sequence number after its FIN.
        if position in (stream.next, end, end + 1):
            self._end_by(packet)
        elif not max(stream.begin, end - RESET_BEHIND) <= position <= end:
            self._report_reset(packet, position - end, "the end of its stream")

    def _end_by(self, packet: Packet) -> None:
        self._note_end(packet)
        self.reset_by = packet.direction
        self.close("rst", packet)

    def _report_reset(self, packet: Packet, ahead: int, what: str) -> None:
        """Report a RST that is this many bytes ahead of an acceptable position."""
        side = "ahead of" if ahead > 0 else "behind"
        if 0 < ahead <= MAX_AHEAD:
            guess = "bytes before it are not in the capture, or it is not of this connection"
        else:
            guess = "it is not of this connection"
        self._problem(packet, "tcp-rst-ignored", f"a RST {abs(ahead):,} bytes {side} {what}: {guess}")

    def _fin(self, packet: Packet, stream: Stream, seq: int) -> None:
        if stream.next is None:
            stream.next = stream.begin = seq
        position = stream.position(seq) + packet.wire_length
        ahead = position - stream.next
        if stream.fin is not None and position == stream.fin:
            return
        # Held back data after it contradicts it: the first arrival wins.
        held_end = stream.held[-1].start + stream.held[-1].wire if stream.held else position
        if stream.finished or ahead < 0 or ahead > MAX_AHEAD or stream.fin is not None or position < held_end:
            self._problem(packet, "tcp-fin-ignored", "a FIN whose sequence number does not fit the stream")
            return
        stream.fin = position
        self._note_end(packet)
        self._finish(stream)

    def _note_end(self, packet: Packet) -> None:
        if self.ended[0] is None:
            self.ended = (packet.direction, packet.time_ns)

    def _finish(self, stream: Stream) -> None:
        if stream.fin is not None and not stream.finished and stream.next is not None and stream.next >= stream.fin:
            stream.finished = True
            stream.next = stream.fin + 1

    # -- data -------------------------------------------------------------------------------------------------------

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
        self.untold_repeated += count - early

    def _ignore(self, stream: Stream, count: int) -> None:
        """Count bytes that are not part of the stream."""
        stream.ignored += count
        self.untold_ignored += count

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
                held.insert(index, segment._replace(start=start, data=data[:part], wire=part))
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

    def _deliver(self, stream: Stream, packet: Packet, fresh: Held, *, behind_gap: bool = False) -> None:
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
        plain: list[Held] = []
        released: list[int] = []
        latest = fresh
        for segment in segments:
            plain.append(segment)
            if segment.held_count > latest.held_count:
                latest = segment
            released.append(latest.time_ns if behind_gap else packet.time_ns)
            if len(segment.data) < segment.wire:
                self._run(direction, plain, released, packet)
                missing = segment.wire - len(segment.data)
                gap = Gap(packet.order, direction, missing, segment.packet, packet.time_ns, True, released[-1])
                self.items.append(gap)
                plain, released = [], []
        self._run(direction, plain, released, packet)
        self._finish(stream)

    def _run(self, direction: int, segments: list[Held], released: list[int], packet: Packet) -> None:
        data = [segment.data for segment in segments if segment.data]
        if not data:
            return
        lengths = [len(part) for part in data]
        ends = []
        total = 0
        for length in lengths:
            total += length
            ends.append(total)
        kept = [segment for segment in segments if segment.data]
        count = len(kept)
        run = Run(
            data[0] if count == 1 else b"".join(data),
            [0, *ends[:-1]],
            lengths,
            ends,
            [segment.packet for segment in kept],
            [segment.time_ns for segment in kept],
            [packet.order] * count,
            [time_ns for segment, time_ns in zip(segments, released, strict=True) if segment.data],
            0,
            count,
        )
        self.items.append(Stretch((run, None) if direction == 0 else (None, run)))

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
        self._deliver(stream, packet, first, behind_gap=True)
        if not stream.held:
            self.items.append(Hole(packet.order, direction, open=False))

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, reason: Literal["fin", "rst", "reused", "idle", "end"], packet: Packet) -> None:
        """End the connection at this packet: holes become gaps, nothing is held back any longer."""
        if self.closed:
            return
        for direction, stream in enumerate(self.streams):
            while stream.held:
                self._give_up_hole(stream, packet)
            if stream.fin is not None and stream.next is not None and stream.next < stream.fin:
                # Its end is in the capture, the bytes before that are not.
                size, time_ns = stream.fin - stream.next, packet.time_ns
                self.items.append(Gap(packet.order, direction, size, packet.packet, time_ns, resumed_ns=time_ns))
                stream.next = stream.fin
            missing = self._acknowledged_unseen(stream, self.streams[1 - direction])
            if missing:
                time_ns, unheard = packet.time_ns, not stream.heard
                self.items.append(
                    Gap(packet.order, direction, missing, packet.packet, time_ns, resumed_ns=time_ns, unheard=unheard)
                )
                if stream.next is not None:
                    stream.next += missing
        if self.pending_syn is not None and reason != "reused":
            self._problem(self.pending_syn._replace(order=packet.order), "tcp-syn-ignored", _SYN_IGNORED)
            self.pending_syn = None
        self.closed = True
        # A SYN that turned out to begin another connection belongs to that one.
        seen = self.seen - (self.pending_syn is not None)
        first, second = self.streams
        repeated, ignored = (first.repeated, second.repeated), (first.ignored, second.ignored)
        place = packet.order, reason, packet.packet, packet.time_ns
        self.items.append(Closed(*place, seen, *self.ended, repeated, ignored))

    @staticmethod
    def _acknowledged_unseen(stream: Stream, peer: Stream) -> int:
        """Bytes after the last captured one of a stream that its peer has acknowledged: they were sent and received.

        A single one does not count: FIN takes one (RFC 9293, 3.4). If the peer sent nothing either, acknowledgements
        may be for bytes that were in flight before the capture.
        """
        missing = 0
        if not stream.heard:
            if peer.next is not None:
                missing = stream.passed - (peer.fin is not None)
        elif stream.next is not None and stream.fin is None and stream.ack is not None:
            missing = stream.position(stream.ack) - stream.next
            if missing > MAX_AHEAD:
                return 0
        return missing if missing > 1 else 0

    def _problem(self, packet: Packet, kind: str, detail: str, count: int | None = None) -> None:
        reported = self._counts.get(kind, 0) + 1
        self._counts[kind] = reported
        if reported > MAX_PROBLEMS:
            return
        if reported == MAX_PROBLEMS:
            detail += " (further ones on this connection are not reported)"
        self.items.append(
            TcpProblem(packet.order, packet.direction, kind, detail, packet.packet, packet.time_ns, count)
        )
