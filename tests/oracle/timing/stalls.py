"""Times in which data of a sender did not arrive (`kernel/link_flow.zig`): as evidence only packets that were sent.

Two kinds of evidence, since a capture is made before or after the place where packets get lost:

- *unacknowledged*: the sender retransmits, and nothing more is acknowledged. Receivers acknowledge within 0.5 s even if
  their programs hang (RFC 9293, 3.8.6.3); those with a closed window are excluded. If the receiver sends new data all
  the time, it gets acknowledgements, without which TCP stops at the first timeout: packets pass both ways.
- *hole*: later data (or the FIN) arrived, earlier data is missing, and the receiver does not acknowledge it either. If
  it does, only the capture lacks it. Behind an outage, a sender that had to wait begins with the one segment that it
  retransmits, and what it had sent after that is missing: then data was stuck since its last segment before.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

MAX_STALLS: Final = 32
"""Maximum number of stalls of a half that are remembered, the first."""
MIN_STALL_NS: Final = 500_000_000
"""Shorter ones are ordinary losses."""
MIN_RETRIES: Final = 2
"""Fewer retransmissions do not prove that nothing arrives."""

MIN_PAUSE_NS: Final = 1_000_000_000
UNUSUAL: Final = 16
"""A sender that paused for this long, and for this many times its usual pause, may have been cut off."""
MIN_LOST: Final = 2
"""Fewer segments of the size before the pause may be lost by chance."""
REORDERED_NS: Final = 3_000_000
"""Segments that are not numbered (IPv6) and overtaken by others were lost if they are missing for this long."""
MAX_HOLES: Final = 64
"""Maximum number of open holes that a half remembers, to distinguish late segments from retransmissions."""

_MASK: Final = (1 << 32) - 1
_HALF: Final = 1 << 31

StallKind = Literal["unacknowledged", "hole"]


class Stall(NamedTuple):
    """One of them. Times are ns since the epoch."""

    since: int
    """When the missing data was first sent, was last acknowledged in part, or when later data arrived."""
    until: int
    """When it arrived; otherwise the last retransmission, or the last packet of a connection with a hole."""
    kind: StallKind
    retries: int
    """Retransmissions in this time, …"""
    retried: int | None
    """… and when the last one was sent."""
    size: int
    """Bytes of the smallest retransmitted segment, or of the hole."""
    passed: int
    """Bytes of the largest segment of this sender that had arrived."""
    heard: int
    """Packets of the receiver in this time."""
    quiet: int
    """The longest time in it without new data of the receiver."""
    over: bool
    """The data arrived in the end."""


class MissingData(NamedTuple):
    """Missing data: its sequence numbers, and time and number (IPv4) of the segment that followed it."""

    begin: int
    until: int
    since: int
    number: int
    receiver_packets: int
    """How many packets the receiver had sent by then."""
    stuck: int | None = None
    """When the sender paused, if the hole follows the first segment after that."""


class StallWatch:
    """The part of a connection's half that notices its stalls; the half's packets drive it."""

    def __init__(self) -> None:
        self.peer: StallWatch = self
        self.packets = 0
        self._holes: tuple[MissingData, ...] = ()
        self.lost = 0
        """Late segments that were sent again, rather than reordered: lost before the capture point."""
        self.lost_longest_ns = 0
        """How long one of them was missing at most."""
        self.spoke: int | None = None
        """When it last sent payload."""
        self._usual = 0
        """Time between two segments: a moving average."""
        self._pause: tuple[int, int, int, int] | None = None
        """The last segment before a pause, the first after it, where this ends, and the largest segment before."""
        self.largest = 0
        """Bytes of the largest segment that was captured in order …"""
        self.passed = 0
        """… and of the largest that was acknowledged."""
        self.stalls: tuple[Stall, ...] = ()
        """Times in which its data did not arrive, and which are over."""
        self._acked: int | None = None
        """Everything before this number was acknowledged."""
        self._owed_since: int | None = None
        """When the oldest unacknowledged data was sent, or when the receiver last acknowledged some."""
        self._retries = 0
        """Retransmissions since then, …"""
        self._retried_at = 0
        """… the time of the last …"""
        self._retry_size = 0
        """… and bytes of the smallest."""
        self._heard = 0
        """Packets of the receiver since then that acknowledged nothing more."""
        self._flowed_at: int | None = None
        """Since then: the last new data of the receiver, …"""
        self._quiet = 0
        """… and the longest time without any before that."""

    def _speaks(self, time: int, end: int) -> None:
        """It sends data up to a number."""
        if self.spoke is not None:
            quiet = max(time - self.spoke, 0)
            if quiet >= MIN_PAUSE_NS and quiet // UNUSUAL > self._usual:
                self._pause = self.spoke, time, end, self.largest
            self._usual += (quiet - self._usual) // 8
        self.spoke = time

    def _misses(self, begin: int, until: int, time: int, ident: int) -> None:
        """Data is missing before a segment."""
        stuck = None
        if self._pause is not None:
            since, over, end, largest = self._pause
            if begin == end and time - over < MIN_STALL_NS and (until - begin) & _MASK > MIN_LOST * largest:
                stuck = since
        hole = MissingData(begin, until, time, ident >> 16, self.peer.packets, stuck)
        self._holes = (*self._holes[1 - MAX_HOLES :], hole)

    def _came_late(self, time: int, hole: MissingData, ident: int) -> MissingData:
        """A segment filled a hole, or a part of it; what remains of the hole as evidence."""
        missing = time - hole.since
        # A segment that was only reordered has a lower number than the one that overtook it, if they are numbered.
        ahead = (ident >> 16) - hole.number & 0xFFFF
        if 0 < ahead < 1 << 15 or (not ahead and missing >= REORDERED_NS):
            self.lost += 1
            self.lost_longest_ns = max(self.lost_longest_ns, missing)
            if hole.stuck is not None and self._is_missing(hole):
                self._stalled(self._hole_stall(hole, hole.since, over=True)._replace(since=hole.stuck))
                hole = hole._replace(stuck=None)
        if missing >= MIN_STALL_NS and self._is_missing(hole):
            self._stalled(self._hole_stall(hole, time, over=True))
        return hole

    def _is_missing(self, hole: MissingData) -> bool:
        """Whether the receiver lacks the data, too, according to what it sent afterwards."""
        acked = self._acked
        return (
            acked is not None
            and self.peer.packets > hole.receiver_packets
            and not 0 < (acked - hole.begin) & _MASK < _HALF
        )

    def _hole_stall(self, hole: MissingData, time: int, *, over: bool) -> Stall:
        size, heard = (hole.until - hole.begin) & _MASK, self.peer.packets - hole.receiver_packets
        quiet = max(time - hole.since, 0)
        return Stall(hole.since, time, "hole", 0, None, size, self.largest, heard, quiet, over)

    def _retried(self, time: int, end: int, wire: int) -> None:
        """It retransmitted a segment, which may be acknowledged by now."""
        if self._owed_since is not None and self._acked is not None and 0 < (end - self._acked) & _MASK < _HALF:
            self._retry_size = min(wire, self._retry_size) if self._retries else wire
            self._retries += 1
            self._retried_at = time

    def _resumed(self, time: int) -> None:
        """The receiver acknowledged data after retransmissions."""
        since = self._owed_since
        if since is not None and self._retries >= MIN_RETRIES and time - since >= MIN_STALL_NS:
            self._stalled(self._unacknowledged(since, time, over=True))
        self._retries = 0

    def flows(self, time: int) -> None:
        """The receiver sends new data."""
        if self._owed_since is not None:
            self._quiet = self._quiet_until(self._owed_since, time)
            self._flowed_at = time

    def _quiet_until(self, since: int, time: int) -> int:
        last = since if self._flowed_at is None else max(self._flowed_at, since)
        return max(self._quiet, time - last)

    def _unacknowledged(self, since: int, time: int, *, over: bool) -> Stall:
        return Stall(
            *(since, time, "unacknowledged", self._retries, self._retried_at, self._retry_size, self.passed),
            *(self._heard, self._quiet_until(since, time), over),
        )

    def _stalled(self, stall: Stall) -> None:
        if len(self.stalls) < MAX_STALLS:
            self.stalls = (*self.stalls, stall)

    def stalls_until(self, last: int) -> list[Stall]:
        """The times in which its data did not arrive; `last`: time of the connection's last packet."""
        since = self._owed_since
        found = list(self.stalls)
        if since is not None and self._retries >= MIN_RETRIES and self._retried_at - since >= MIN_STALL_NS:
            found.append(self._unacknowledged(since, self._retried_at, over=False))
        hole = next((one for one in self._holes if self._is_missing(one)), None)
        if hole is not None:
            found.append(self._hole_stall(hole, last, over=False))
        return found
