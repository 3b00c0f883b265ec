"""One TCP connection: the state of its two streams, packet by packet.

`delivery.py` has the theory of operation of a stream. This module begins and ends both streams of a connection: SYN,
FIN, RST, the reuse of ports.

At the end of the connection, bytes that the peer has acknowledged and that follow the last captured one are a gap, too.
If no packet of a stream's sender was captured, nothing else is known of the stream.

All limits count packets and packet times of this connection alone.
"""

from __future__ import annotations

from typing import Final, Literal

from kafkasniff.model import NO_TIME
from kafkasniff.packets import ACK, FIN, RST, SYN
from kafkasniff.tls.items import Closed, Gap, Started
from tests.oracle.tcp.delivery import MAX_AHEAD, MAX_HELD_BYTES, StreamPair
from tests.oracle.tcp.stream import MASK, Packet, Stream

RESET_BEHIND: Final = MAX_HELD_BYTES
"""A RST that answers a late segment has the sequence number that this segment acknowledged (RFC 9293, 3.10.7.1): the
bytes after the end of its stream are at most those that may have been in flight."""

_AFTER_RST = "data that was sent after the other side had reset the connection: nobody reads it, and it is not decoded"
_SYN_IGNORED = "a SYN on an open connection was not followed by a new one"


class TcpConnection(StreamPair):
    """One lifetime of a 4-tuple."""

    def __init__(self, endpoints: tuple[tuple[int, int, int], tuple[int, int, int]], first: Packet) -> None:
        super().__init__()
        self.endpoints = endpoints
        """(address high half, low half, port) of the sender of direction 0 and of direction 1."""
        self.first_order = first.order
        """Order of the packet at which it was recognized as a separate connection."""
        self.first_packet = first.packet
        self.first_time = first.time_ns
        self.seen = 0
        """Packets of both directions up to its end."""
        self.clock = first.clock
        """The packet clock at the last packet of this connection."""
        self.closed = False
        self.ended: tuple[int | None, int] = (None, NO_TIME)
        """Direction and time of the first accepted FIN or RST."""
        self.reset_by: int | None = None
        """Direction of the RST that closed the connection."""
        self.pending_syn: Packet | None = None
        """A SYN on an open connection: a new connection if the next packets fit it, else a forgery."""
        self.last_packet = first.packet
        self.last_time = first.time_ns
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
