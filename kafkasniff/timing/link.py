"""The network of one TCP connection, judged by its packets: handshake, round trips, trouble. No payload is read.

Theory of operation. Each `LinkHalf` is one sender. One segment of its data at a time is timed until the receiver has
acknowledged it, as Jacobson's timer does, unless it was retransmitted meanwhile (Karn's algorithm; RFC 6298, section
3). This measures the path from the capture point to the receiver and back, so the client's half shows the distance to
the broker. Receivers delay acknowledgements (RFC 9293, 3.8.6.3), so only low values are meaningful: each half keeps the
decreasing record of them. The kernel answers a handshake immediately, which makes it the best measure.

All queries are by time, and data after the given span has no influence. So the answer about an exchange does not depend
on how far the packets were read when it was asked.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal

from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.timing.stalls import MissingData, StallWatch
from kafkasniff.timing.trouble import Budget, Trouble
from kafkasniff.timing.trouble_log import TroubleLog

__all__ = [
    "MAX_RECORDS",
    "Link",
    "LinkHalf",
    "Opening",
    "Vantage",
]

MAX_RECORDS: Final = 256
"""Maximum number of decreasing round trip times that a half remembers; a real one has some ten."""
MAX_FLYING: Final = 64
"""Maximum number of unacknowledged segments per half whose first transmission time is known, the latest."""
RECENT: Final = 8
"""Number of segments per half that are remembered to distinguish a packet captured twice from a retransmission."""

_MASK: Final = (1 << 32) - 1
_HALF: Final = 1 << 31
FAR: Final = 4
"""One path counts as the longer one from this ratio on."""
NOWHERE_NS: Final = 100_000
"""Shorter round trips do not show where the capture was made: one machine, or one switch."""

Vantage = Literal["client", "broker", "between", "anywhere"]
"""Where packets were captured: near the client, near the broker, in between; anywhere: both are so near that it makes
no difference.
"""
Opening = Literal["answered", "refused", "unanswered"]
"""The outcome of a handshake."""


_NONE_RECENT: Final[list[int]] = []
_NONE_FLYING: Final[list[tuple[int, int, int]]] = []


class LinkHalf(StallWatch):
    """One sender of a connection."""

    __slots__ = (
        "_closed_since",
        "_flying",
        "_next",
        "_recent",
        "_timed_end",
        "_timed_since",
        "_trouble",
        "data",
        "fin",
        "isn",
        "link",
        "records",
        "samples",
        "spoke",
        "total_ns",
    )

    peer: LinkHalf

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self.isn: int | None = None
        """Initial sequence number, if its SYN was captured."""
        self.fin = False
        self.data = 0
        """Payload bytes, including retransmissions."""
        self.spoke: int | None = None
        """When it last sent payload."""
        self.records: tuple[tuple[int, int], ...] = ()
        """(time, round trip to the receiver) of each new minimum; ns."""
        self.samples = 0
        self.total_ns = 0
        """Number of round trips, and their sum."""
        self._trouble: TroubleLog | None = None
        self._next: int | None = None
        self._timed_end: int | None = None
        self._timed_since = 0
        self._closed_since: int | None = None
        # Both begin with a list of their own, since most senders of a scan have no data.
        self._recent = _NONE_RECENT
        self._flying = _NONE_FLYING
        """End, time and size of unacknowledged segments."""

    @property
    def trouble(self) -> TroubleLog:
        """What was wrong with its packets. Most connections of a scan have none."""
        if self._trouble is None:
            self._trouble = TroubleLog(self.link.budget)
        return self._trouble

    @property
    def remembered(self) -> int:
        """Number of problems that it keeps."""
        return 0 if self._trouble is None else self._trouble.remembered

    def packet(  # noqa: PLR0917 (one row of a batch, in the hot path)
        self, time: int, seq: int, ack: int, flags: int, window: int, wire: int, ident: int
    ) -> None:
        """Take a packet that it sent; `time` is known. Hot: once per packet."""
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
                peer._heard = 0
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
                peer._retries, peer._owed_since = 0, None
            link = self.link
            if link.acknowledged is None and link.answered is not None and self is link.client:
                link.acknowledged = time
        if wire:
            self._data(time, seq, wire, ident)

    def _data(self, time: int, seq: int, wire: int, ident: int) -> None:
        end = (seq + wire) & _MASK
        expected = self._next
        self.data += wire
        self.spoke = time
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
        if self._timed_end is None:
            self._timed_end, self._timed_since = end, time
        self.largest = max(self.largest, wire)
        if self._owed_since is None and self._acked is not None:
            self._owed_since = time
        self._is_known(seq, wire, ident)
        flying = self._flying
        if not flying:
            self._flying = [(end, time, wire)]
            return
        flying.append((end, time, wire))
        if len(flying) > MAX_FLYING:
            del flying[0]

    def _repeated(self, time: int, seq: int, end: int, wire: int, ident: int) -> None:
        """A segment that does not follow all others."""
        if self._is_known(seq, wire, ident):
            return  # one packet, captured twice
        for place, (begin, until, since, *more) in enumerate(self._holes):
            if (end - begin) & _MASK in range(1, _HALF) and (until - seq) & _MASK in range(1, _HALF):
                self.trouble.came_late(time, since)
                self._came_late(time, self._holes[place], ident)
                rest = [MissingData(begin, seq, since, *more), MissingData(end, until, since, *more)]
                rest = [one for one in rest if (one[1] - one[0]) & _MASK in range(1, _HALF)]
                self._holes = (*self._holes[:place], *rest, *self._holes[place + 1 :])
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
            self.isn = seq
            if flags & ACK:
                if link.answered is None:
                    link.answered = time
            elif not copied:
                link.syns += 1
                link.asked_last = time if link.answered is None else link.asked_last
            return
        if flags & RST:
            if not link.closed:
                link.reset_by = self
            link.end_by(self, time, reset=True)
            if link.asked is not None and link.answered is None and self is not link.client:
                link.refused = time
            link.closed = True
        elif flags & FIN:
            self.fin = True
            if not wire and self._next is not None and 0 < (seq - self._next) & _MASK < _HALF:
                self._misses(self._next, seq, time, ident)
            link.end_by(self, time, reset=False)
            link.closed = link.closed or self.peer.fin

    def _sample(self, time: int, taken: int) -> None:
        """A round trip to the receiver was measured."""
        if taken < 0:
            return  # clocks of several captures disagree
        self.samples += 1
        self.total_ns += taken
        records = self.records
        if (not records or taken < records[-1][1]) and len(records) < MAX_RECORDS:
            self.records = (*records, (time, taken))

    def _is_known(self, seq: int, wire: int, ident: int) -> bool:
        """Note a packet; True if the same one is among the last. Hot: once per packet with data."""
        # One integer costs a fraction of a tuple.
        key = wire << 64 | seq << 32 | ident
        recent = self._recent
        if key in recent:
            return True
        if not recent:
            self._recent = [key]
            return False
        recent.append(key)
        if len(recent) > RECENT:
            del recent[0]
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

    __slots__ = (
        "acknowledged",
        "answered",
        "asked",
        "asked_last",
        "before",
        "budget",
        "client",
        "closed",
        "ended",
        "ended_by",
        "ends",
        "first_time",
        "halves",
        "last_clock",
        "last_time",
        "refused",
        "reset",
        "reset_by",
        "syns",
    )

    def __init__(
        self, ends: tuple[tuple[int, int, int], tuple[int, int, int]], time: int, budget: Budget, *, asks: bool
    ) -> None:
        self.budget = budget
        self.ends = ends
        """(address high half, low half, port) of the sender of the first packet, and of the other end."""
        self.halves = (LinkHalf(self), LinkHalf(self))
        """In the same order."""
        self.halves[0].peer, self.halves[1].peer = self.halves[1], self.halves[0]
        self.first_time = self.last_time = time
        self.last_clock = time
        """The packet clock at its last packet, which never goes back."""
        self.asked = time if asks else None
        """The first SYN."""
        self.asked_last = self.asked
        """The SYN that was answered: the last one before the SYN-ACK."""
        self.answered: int | None = None
        """The SYN-ACK."""
        self.acknowledged: int | None = None
        """The client's first packet after that."""
        self.refused: int | None = None
        self.syns = 0
        self.reset_by: LinkHalf | None = None
        self.ended: int | None = None
        """The first FIN, or RST of an answered connection."""
        self.ended_by: LinkHalf | None = None
        """Who sent it."""
        self.reset = False
        """It was a RST."""
        self.closed = False
        self.before: Link | None = None
        """The previous connection between the same ends, as long as it may be queried."""
        # Without a SYN the end with the higher port: clients use the upper range (RFC 6335, section 6).
        self.client = self.halves[0 if asks or ends[0][2] > ends[1][2] else 1]

    def give_back(self) -> None:
        """It is no longer needed: others may use its share of memory."""
        self.budget.left += sum(half.remembered for half in self.halves)

    def dissolve(self) -> None:
        """Nobody uses it any more: without its circles its memory is free at once, not when Python looks for them."""
        for half in self.halves:
            del half.peer, half.link

    def end_by(self, half: LinkHalf, time: int, *, reset: bool) -> None:
        """One end closes or resets; the first one counts, since the other end only follows."""
        if self.ended is None and (self.asked is None or self.answered is not None):
            self.ended, self.ended_by, self.reset = time, half, reset

    @property
    def broker(self) -> LinkHalf:
        """The other end."""
        return self.client.peer

    def end(self, half: LinkHalf) -> tuple[int, int, int]:
        """Its address and port."""
        return self.ends[0 if half is self.halves[0] else 1]

    @property
    def opening(self) -> Opening | None:
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

    def to_broker(self, until: int) -> int | None:
        """The lowest round trip from the capture point to the broker so far; ns."""
        return _least(self.handshake()[0], self.client.round_trip(until))

    def to_client(self, until: int) -> int | None:
        """The same to the client."""
        return _least(self.handshake()[1], self.broker.round_trip(until))

    def vantage(self) -> Vantage | None:
        """Where the capture was made, by the handshake; None: it was not captured completely."""
        broker, client = self.handshake()
        if broker is None or client is None:
            return None
        if max(broker, client) < NOWHERE_NS:
            return "anywhere"
        if broker >= FAR * client:
            return "client"
        return "broker" if client >= FAR * broker else "between"


def _least(*values: int | None) -> int | None:
    return min((one for one in values if one is not None), default=None)
