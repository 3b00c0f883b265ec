"""One TCP connection: the state of its two streams, packet by packet.

This is the executable specification of reassembly, and the path that every packet takes that is not plainly the next
one of its stream; `reassembly.py` takes the plain ones in bulk. The two must give the same result: tests hold them to
it.

Theory of operation. Each stream has `next`, the position (sequence number, unwrapped) of the byte that comes next. A
segment that starts there is delivered; one that starts before it is a retransmission, of which only what is new counts
(the first arrival of a byte wins); one that starts behind it is held back, and the hole in front of it stays open
until the missing bytes arrive or the hole is declared a gap:

- the peer has acknowledged bytes behind the hole, so they were sent and received and are just not in the capture,
  and a grace of GRACE_PACKETS packets or GRACE_NS of the connection has gone by (captures reorder packets too);
- or no packet of the peer was seen for ONE_SIDED_PACKETS packets (a capture of one direction has no acknowledgements);
- or more is held back than MAX_HELD_BYTES or MAX_HELD_SEGMENTS;
- or the connection ends: RST, reuse of its ports, idleness, end of the capture.

A segment that comes after that, and whose bytes all lie in a gap, is handed on by itself (`Late`).

At the end of the connection, bytes that the peer has acknowledged and that follow the last one captured are a gap, too.
Where no packet of a stream's sender was captured, they are all that is known of it.

All of it counts packets and packet times of this connection alone.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal

from kafkasniff.packets import ACK, FIN, RST, SYN
from kafkasniff.streams import NO_TIME, Closed, Gap, Hole, Item, Late, Retransmit, Run, Started, Stretch, TcpProblem
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
"""Bytes held back per stream behind holes; larger than the receive windows that Linux grants by default (6 MiB)."""
MAX_HELD_SEGMENTS: Final = 16_384
MAX_AHEAD: Final = 64 << 20
"""A segment further ahead is outside any plausible window (TCP's limit, 1 GiB, would fit half of all forgeries)."""
RESET_BEHIND: Final = MAX_HELD_BYTES
"""A RST that answers a late segment has the sequence number that this acknowledged (RFC 9293, 3.10.7.1): no more bytes
behind the end of its stream than may have been on their way."""
AHEAD_SEGMENTS: Final = 3
"""So many consecutive segments outside the window are the stream going on behind a large loss, not a stray packet."""
MAX_PROBLEMS: Final = 20
"""Problems told per connection and kind; forged packets must not flood the output."""

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
        """Order of the packet at which it was known to be a connection of its own."""
        self.first_packet = first.packet
        self.first_time = first.time_ns
        self.seen = 0
        """Packets of either direction up to its end."""
        self.streams = (Stream(), Stream())
        self.packets = 0
        """Packets of either direction that took the path of this module since a hole opened."""
        self.clock = first.clock
        """The packet clock at the last packet of this connection."""
        self.deadline = 0
        self.closed = False
        self.ended: tuple[int | None, int] = (None, NO_TIME)
        """Direction and time of the first FIN or RST that was believed."""
        self.reset_by: int | None = None
        """Direction of the RST that closed the connection."""
        self.pending_syn: Packet | None = None
        """A SYN on an open connection: a new connection if what follows fits it, else a forgery."""
        self.last_packet = first.packet
        self.last_time = first.time_ns
        self.items: list[Item] = []
        """What this connection has yielded in the current batch, in order."""
        self.buffer = b""
        """The current batch's buffer."""
        self._counts: dict[str, int] = {}
        self.untold_repeated = 0
        self.untold_ignored = 0
        """What was added to the streams' counts of such bytes; for the reader of the items to set back."""
        self.place = -1
        """Where the kernel has it, or had it last (`in_step.InStep`); -1: nowhere."""
        self.owner: object | None = None
        """Whatever the reader of the items keeps for this connection."""

    # -- one packet -------------------------------------------------------------------------------------------------

    def handle(self, packet: Packet) -> Literal["", "reuse"]:
        """Take one packet. "reuse": it belongs to a new connection on the same 4-tuple (this one is closed by then)."""
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
                    return ""  # told by _is_reuse
                stream.isn = seq
                stream.next = stream.begin = seq + 1
                self.items.append(Started(packet.order, direction, client=not flags & ACK))
            seq = (seq + 1) & MASK  # data on a SYN starts behind it (RFC 7413)
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
            # Its data, if any (TCP fast open), would have to be kept beyond the batch: it counts as cut off.
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
        # Told where it is known, which is behind what was handed on meanwhile.
        self._problem(pending._replace(order=packet.order), "tcp-syn-ignored", _SYN_IGNORED)
        return False

    def _after_close(self, packet: Packet, stream: Stream) -> Literal["", "reuse"]:
        """Packets behind the end: late copies are passed over, anything else is a new connection.

        So is what the peer of a RST had on the way, or sends before it knows of it: that is told once.
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
        """RST: believed where its sequence number is the next one of its stream (RFC 5961, 3.2).

        One that answers a late segment of the peer has the number that this acknowledged; the peer knows of more, and
        does not believe it either.
        """
        self._ignore(stream, packet.length)  # a reason in words (RFC 9293, 3.5.3)
        peer = self.streams[1 - packet.direction]
        if stream.next is None:
            # A refused or half-captured connection: the RST must acknowledge what the peer sent.
            if peer.next is None or not packet.flags & ACK or packet.ack == peer.next & MASK:
                self._end_by(packet)
            elif not max(peer.begin, peer.next - RESET_BEHIND) <= peer.position(packet.ack) <= peer.next:
                self._tell_reset(
                    packet, peer.position(packet.ack) - peer.next, "what its peer has sent, by its acknowledgement"
                )
            return
        position = stream.position(packet.seq)
        end = max(stream.next, stream.held[-1].start + stream.held[-1].wire if stream.held else 0, stream.fin or 0)
        # Linux sends the RST that answers data after close with the sequence number behind its FIN.
        if position in (stream.next, end, end + 1):
            self._end_by(packet)
        elif not max(stream.begin, end - RESET_BEHIND) <= position <= end:
            self._tell_reset(packet, position - end, "the end of its stream")

    def _end_by(self, packet: Packet) -> None:
        self._note_end(packet)
        self.reset_by = packet.direction
        self.close("rst", packet)

    def _tell_reset(self, packet: Packet, ahead: int, what: str) -> None:
        """Tell of a RST that is so many bytes ahead of where one may be."""
        side = "ahead of" if ahead > 0 else "behind"
        if 0 < ahead <= MAX_AHEAD:
            guess = "bytes in front of it are not in the capture, or it is not of this connection"
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
        # Held back data behind it contradicts it: what came first stands.
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
            self._problem(packet, "tcp-data-after-fin", "data behind the end of the stream was ignored", wire)
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
        """Whether a segment implausibly far ahead is the stream going on after a large loss."""
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
        """Count bytes from `start` on that the stream has had; what is in front of its first byte it has not."""
        early = min(max(stream.begin - start, 0), count)
        if early:
            self._ignore(stream, early)
        stream.repeated += count - early
        self.untold_repeated += count - early

    def _ignore(self, stream: Stream, count: int) -> None:
        """Count bytes that are none of the stream."""
        stream.ignored += count
        self.untold_ignored += count

    @staticmethod
    def _covered(stream: Stream, start: int, wire: int) -> bool:
        index = bisect_right(stream.held, start, key=lambda held: held.start) - 1
        return index >= 0 and stream.held[index].start + stream.held[index].wire >= start + wire

    def _hold(self, stream: Stream, segment: Held, packet: Packet) -> None:
        """Keep a segment that lies behind a hole; where it overlaps with what is held, what is held stays."""
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
        """Hand out a segment that starts at `next`, and the held ones that it reaches; what was held first stays.

        They count as there from `packet` on, which filled the hole in front of them; behind a gap, which none fills,
        from the packet on that brought the last of those up to each.
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
        """Whether the first hole of the stream is a gap by now."""
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
        """The first hole of the stream becomes a gap; what was held back behind it is delivered."""
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
        """End the connection at this packet: holes become gaps, nothing is held back any more."""
        if self.closed:
            return
        for direction, stream in enumerate(self.streams):
            while stream.held:
                self._give_up_hole(stream, packet)
            if stream.fin is not None and stream.next is not None and stream.next < stream.fin:
                # Its end is in the capture, what stands in front of that is not.
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
        # A SYN that turned out to begin another connection is one of that.
        seen = self.seen - (self.pending_syn is not None)
        first, second = self.streams
        repeated, ignored = (first.repeated, second.repeated), (first.ignored, second.ignored)
        place = packet.order, reason, packet.packet, packet.time_ns
        self.items.append(Closed(*place, seen, *self.ended, repeated, ignored))

    @staticmethod
    def _acknowledged_unseen(stream: Stream, peer: Stream) -> int:
        """Bytes behind the last one captured of a stream that its peer has acknowledged: they were sent and received.

        A single one is none: FIN counts as one (RFC 9293, 3.4). Where the peer sent nothing either, acknowledgements
        may be of what was on its way before the capture.
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
        told = self._counts.get(kind, 0) + 1
        self._counts[kind] = told
        if told > MAX_PROBLEMS:
            return
        if told == MAX_PROBLEMS:
            detail += " (no more of this kind are told for this connection)"
        self.items.append(
            TcpProblem(packet.order, packet.direction, kind, detail, packet.packet, packet.time_ns, count)
        )
