"""The network of one TCP connection, judged by its packets: what `kernel/link.zig` follows. No payload is read.

Theory of operation. Each `LinkHalf` is one sender. One segment of its data at a time is timed until the receiver has
acknowledged it, as Jacobson's timer does, unless it was retransmitted meanwhile (Karn's algorithm; RFC 6298, section
3). This measures the path from the capture point to the receiver and back, so the client's half shows the distance to
the broker. Receivers delay acknowledgements (RFC 9293, 3.8.6.3), so only low values are meaningful: each half keeps the
decreasing record of them. The kernel answers a handshake immediately, which makes it the best measure.

All queries are by time: data after the given span has no influence.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal

from kafkasniff.packets import ACK, FIN, RST, SYN
from kafkasniff.timing import Trouble
from tests.oracle.timing.stalls import MAX_HOLES, StallWatch
from tests.oracle.timing.trouble_log import TroubleLog

MAX_RECORDS: Final = 256
"""Maximum number of decreasing round trip times that a half remembers; a real one has some ten."""
MAX_FLYING: Final = 64
"""Maximum number of unacknowledged segments per half whose first transmission time is known, the latest."""
SLOW_TRIP_NS: Final = 250_000_000
"""Kernels delay acknowledgements for 0.2 s at most: round trips that take longer had to wait on the way."""
RECENT: Final = 8
"""Number of segments per half that are remembered to distinguish a packet captured twice from a retransmission."""

_MASK: Final = (1 << 32) - 1
_HALF: Final = 1 << 31


class LinkHalf(StallWatch):
    """One sender of a connection."""

    peer: LinkHalf

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self.data = 0
        """Payload bytes, including retransmissions."""
        self.records: tuple[tuple[int, int], ...] = ()
        """(time, round trip to the receiver) of each new minimum; ns."""
        self.trips = 0
        """Measured round trips …"""
        self.slow_trips = 0
        """… those that were slow …"""
        self.slowest_trip_ns = 0
        """… and the slowest."""
        self.trouble = TroubleLog()
        """What was wrong with its packets."""
        self._next: int | None = None
        self._timed_end: int | None = None
        self._timed_since = 0
        self._closed_since: int | None = None
        self._recent: list[tuple[int, int, int]] = []
        self._flying: list[tuple[int, int, int]] = []
        """End, time and size of unacknowledged segments."""

    def packet(  # noqa: PLR0917 (one row of a batch, in the hot path)
        self, time: int, seq: int, ack: int, flags: int, window: int, wire: int, ident: int
    ) -> None:
        """Take a packet that it sent; `time` is known."""
        self.packets += 1
        peer = self.peer
        if flags & ACK:
            end = peer._timed_end
            if end is not None and (ack - end) & _MASK < _HALF:
                peer._timed_end = None
                peer._sample(time, time - peer._timed_since)
            flying = peer._flying
            while flying and (ack - flying[0][0]) & _MASK < _HALF:
                peer.passed = max(peer.passed, flying[0][2])
                del flying[0]
            if peer._acked is None:
                peer._acked = ack
            elif 0 < (ack - peer._acked) & _MASK < _HALF:
                if peer._retries:
                    peer._resumed(time)
                peer._acked = ack
                peer._owed_since = time if flying else None
                peer._heard, peer._flowed_at, peer._quiet = 0, None, 0
            elif peer._owed_since is not None:
                peer._heard += 1
        if flags & (SYN | FIN | RST):
            self._flagged(time, seq, flags, wire, ident)
            if flags & SYN:
                seq = (seq + 1) & _MASK
        else:
            if window:
                if self._closed_since is not None:
                    self.trouble.window_opened(time, self._closed_since)
                    self._closed_since = None
            elif self._closed_since is None:
                self._closed_since = time
                self.trouble.window_closed(time)
                # The sender has to wait, and its probes (RFC 9293, 3.8.6.1) do not count as retransmissions.
                peer._retries, peer._owed_since, peer._flowed_at, peer._quiet = 0, None, None, 0
            link = self.link
            if link.acknowledged is None and link.answered is not None and self is not link.answered_by:
                link.acknowledged = time
        if wire:
            self._data(time, seq, wire, ident)

    def _data(self, time: int, seq: int, wire: int, ident: int) -> None:
        end = (seq + wire) & _MASK
        expected = self._next
        self.data += wire
        self._speaks(time, end)
        if expected is None:
            self._next = end
        else:
            ahead = (end - expected) & _MASK
            if not 0 < ahead < _HALF:
                self._repeated(time, seq, end, wire, ident)
                return
            missing = (seq - expected) & _MASK
            if 0 < missing < _HALF:
                self._misses(expected, seq, time, ident)
            self._next = end
        self.peer.flows(time)
        if self._timed_end is None:
            self._timed_end, self._timed_since = end, time
        self.largest = max(self.largest, wire)
        if self._owed_since is None and self._acked is not None:
            self._owed_since = time
        self._is_known(seq, wire, ident)
        self._flying.append((end, time, wire))
        if len(self._flying) > MAX_FLYING:
            del self._flying[0]

    def _repeated(self, time: int, seq: int, end: int, wire: int, ident: int) -> None:
        """A segment that does not follow all others."""
        if self._is_known(seq, wire, ident):
            return  # one packet, captured twice
        for place, (begin, until, since, *_) in enumerate(self._holes):
            if (end - begin) & _MASK in range(1, _HALF) and (until - seq) & _MASK in range(1, _HALF):
                self.trouble.came_late(time, since)
                left = self._came_late(time, self._holes[place], ident)
                rest = [left._replace(until=seq), left._replace(begin=end)]
                rest = [one for one in rest if (one[1] - one[0]) & _MASK in range(1, _HALF)]
                self._holes = (*self._holes[:place], *rest, *self._holes[place + 1 :])[-MAX_HOLES:]
                return
        if wire == 1 and self._next is not None and end == self._next:
            return  # a keep-alive (RFC 9293, 3.8.4)
        self._timed_end = None
        self._retried(time, end, wire)
        sent = next((since for flown, since, _ in self._flying if (flown - end) & _MASK < _HALF), None)
        self.trouble.retransmitted(time, sent)

    def _flagged(self, time: int, seq: int, flags: int, wire: int, ident: int) -> None:
        link = self.link
        if flags & SYN:
            copied = self._is_known(seq, 1 << 32, ident)
            if self._next is None:
                self._next = (seq + 1) & _MASK
            if flags & ACK:
                if link.answered is None:
                    link.answered, link.answered_by = time, self
            elif not copied:
                link.syns += 1
                link.asked_last = time if link.answered is None else link.asked_last
            return
        if flags & RST:
            link.end_by(self, time, reset=True)
            if link.asked is not None and link.answered is None and self is not link.halves[0]:
                link.refused = time
        elif flags & FIN:
            if not wire and self._next is not None and 0 < (seq - self._next) & _MASK < _HALF:
                self._misses(self._next, seq, time, ident)
            link.end_by(self, time, reset=False)

    def _sample(self, time: int, taken: int) -> None:
        """A round trip to the receiver was measured."""
        if taken < 0:
            return  # clocks of several captures disagree
        self.trips += 1
        self.slow_trips += taken >= SLOW_TRIP_NS
        self.slowest_trip_ns = max(self.slowest_trip_ns, taken)
        records = self.records
        if (not records or taken < records[-1][1]) and len(records) < MAX_RECORDS:
            self.records = (*records, (time, taken))

    def _is_known(self, seq: int, wire: int, ident: int) -> bool:
        """Note a packet; True if the same one is among the last."""
        key = wire, seq, ident
        if key in self._recent:
            return True
        self._recent = [*self._recent, key][-RECENT:]
        return False

    def total(self, last: int) -> Trouble:
        """All of its problems until the connection's last packet; `late_ns` is not counted."""
        again, late, closed, closed_ns = self.trouble.counts
        if self._closed_since is not None:
            closed_ns += max(last - self._closed_since, 0)
        return Trouble(again, late, 0, closed, closed_ns)

    def round_trip(self, until: int) -> int | None:
        """The lowest round trip to the receiver according to acknowledgements so far, in ns; None: there were none."""
        place = bisect_right(self.records, (until, 1 << 63))
        return self.records[place - 1][1] if place else None


class Link:
    """One lifetime of a connection. Times are ns since the epoch."""

    def __init__(self, ends: tuple[tuple[int, int, int], tuple[int, int, int]], time: int, *, asks: bool) -> None:
        self.ends = ends
        """(address high half, low half, port) of the sender of the first packet, and of the other end."""
        self.halves = (LinkHalf(self), LinkHalf(self))
        """In the same order."""
        self.halves[0].peer, self.halves[1].peer = self.halves[1], self.halves[0]
        self.first_time = self.last_time = time
        self.asked = time if asks else None
        """The first SYN."""
        self.asked_last = self.asked
        """The SYN that was answered: the last one before the SYN-ACK."""
        self.answered: int | None = None
        """The SYN-ACK."""
        self.answered_by: LinkHalf | None = None
        """Who sent it."""
        self.acknowledged: int | None = None
        """The first packet of the other end after that."""
        self.refused: int | None = None
        self.syns = 0
        self.ended: int | None = None
        """The first FIN, or RST of an answered connection."""
        self.ended_by: LinkHalf | None = None
        """Who sent it."""
        self.reset = False
        """It was a RST."""

    def end_by(self, half: LinkHalf, time: int, *, reset: bool) -> None:
        """One end closes or resets; the first one counts, since the other end only follows."""
        if self.ended is None and (self.asked is None or self.answered is not None):
            self.ended, self.ended_by, self.reset = time, half, reset

    def client(self, known: tuple[int, int, int] | None) -> LinkHalf:
        """The client's half; `known`: the client's end according to its messages."""
        if known is not None:
            return self.halves[self.ends.index(known)]
        if self.asked is not None:
            return self.halves[0]
        if self.answered_by is not None:
            return self.answered_by.peer
        # The end with the higher port: clients use the upper range (RFC 6335, section 6).
        return self.halves[0 if self.ends[0][2] > self.ends[1][2] else 1]

    def end(self, half: LinkHalf) -> tuple[int, int, int]:
        """Its address and port."""
        return self.ends[0 if half is self.halves[0] else 1]

    @property
    def opening(self) -> Literal["answered", "refused", "unanswered"] | None:
        """The outcome of its handshake; None: its beginning was not captured."""
        if self.asked is None:
            return None
        if self.answered is not None:
            return "answered"
        return "refused" if self.refused is not None else "unanswered"

    def handshake(self) -> tuple[int | None, int | None]:
        """From the capture point to the broker and back, and to the client and back, by the handshake; ns."""
        broker = client = None
        if self.answered is not None:
            if self.asked_last is not None and self.answered >= self.asked_last:
                broker = self.answered - self.asked_last
            if self.acknowledged is not None and self.acknowledged >= self.answered:
                client = self.acknowledged - self.answered
        return broker, client

    def round_trips(self, client: LinkHalf, until: int) -> tuple[int | None, int | None]:
        """The lowest round trips from the capture point to the broker and to the client so far; ns."""
        broker, own = self.handshake()
        return _least(broker, client.round_trip(until)), _least(own, client.peer.round_trip(until))


def _least(*values: int | None) -> int | None:
    return min((one for one in values if one is not None), default=None)
