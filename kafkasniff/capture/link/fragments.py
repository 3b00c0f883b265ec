"""Reassembly of IP fragments, across batches, within bounds.

A datagram replaces the packet that completed it. Where fragments overlap, the first one wins. Fragments are rare, so
this is plain Python, one fragment at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from kafkasniff.model import NO_TIME

__all__ = ["Dropped", "Fragment", "FragmentTable"]

TIMEOUT_NS: Final = 30_000_000_000
"""Nanoseconds of packet time that an unfinished datagram is kept (Linux keeps IPv4's 30 s); identifications repeat."""

MAX_DATAGRAM: Final = 65_535
"""Maximum payload of a datagram that can be fragmented, in bytes."""

MAX_FRAGMENTS: Final = 2_048
"""Maximum number of fragments of one datagram: more than the smallest MTU (68, IPv4) makes of the largest."""

MAX_FLOW_DATAGRAMS: Final = 64
"""Maximum number of unfinished datagrams per pair of addresses: reordering keeps a handful open."""

MAX_DATAGRAMS: Final = 4_096
"""Maximum number of unfinished datagrams in total."""

MAX_HELD_BYTES: Final = 32 << 20
"""Maximum number of bytes in total."""

REMEMBERED: Final = 4_096
"""Number of finished datagrams remembered: remains of fragments captured twice are not a loss."""

REPORTED_PROTOCOLS: Final = frozenset((4, 6, 41, 47, 51, 60))
"""Protocols whose loss is reported: TCP and those that may carry it. Hardly any UDP is a tunnel."""


class Fragment(msgspec.Struct, frozen=True):
    """One fragment."""

    version: int
    """4 or 6."""
    header: bytes
    """The IP header, and for IPv6 the extension headers before the fragment header."""
    next_at: int
    """IPv6: offset in `header` of the byte that names the fragment header."""
    protocol: int
    ident: int
    offset: int
    more: bool
    data: bytes
    """As captured; may be shorter than `size`."""
    size: int
    """Payload bytes on the wire."""


class Dropped(msgspec.Struct, frozen=True):
    """A datagram that was not reassembled."""

    capture: int
    packet: int
    """Number of its first fragment's packet."""
    time_ns: int
    reason: str
    held: int
    """Number of its captured bytes."""


class _Datagram:
    """Fragments of one datagram so far."""

    __slots__ = ("capture", "ends", "held", "packet", "pieces", "protocol", "starts", "time_ns", "total")

    def __init__(self, capture: int, packet: int, time_ns: int, protocol: int) -> None:
        self.capture = capture
        self.packet = packet
        self.time_ns = time_ns
        self.protocol = protocol
        self.pieces: dict[tuple[int, int], Fragment] = {}
        """By offset and size, in order of arrival."""
        self.held = 0
        self.total: int | None = None
        self.starts: list[int] = []
        """Ranges without a hole, ascending: their beginnings and ends."""
        self.ends: list[int] = []

    def add(self, fragment: Fragment) -> bytes | None:
        """Add a fragment; returns the IP datagram if it is complete now."""
        if not fragment.more and self.total is None:
            self.total = fragment.offset + fragment.size
        place = (fragment.offset, fragment.size)
        if place not in self.pieces:
            self.pieces[place] = fragment
            self.held += fragment.size
            self._cover(fragment.offset, fragment.offset + fragment.size)
        if self.total is None or self.starts[0] > 0 or self.ends[0] < self.total:
            return None
        return self._assemble(self.total)

    def _cover(self, start: int, end: int) -> None:
        """Merge a range with those that it overlaps or touches, so that completeness is cheap to check."""
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self.starts[first:last] = [start]
        self.ends[first:last] = [end]

    def _assemble(self, total: int) -> bytes | None:
        position = 0
        captured: int | None = None
        first: Fragment | None = None
        for (offset, size), piece in sorted(self.pieces.items()):
            if offset > position:
                return None
            first = first or piece
            if len(piece.data) < size and captured is None:
                captured = offset + len(piece.data)
            position = max(position, offset + size)
        if position < total or first is None:
            return None
        payload = bytearray(total)
        for piece in reversed(self.pieces.values()):  # in order of arrival, so that the first is written last
            data = piece.data[: max(0, total - piece.offset)]
            payload[piece.offset : piece.offset + len(data)] = data
        # Bytes beyond a snap length cannot be recovered: the datagram ends there, and its header has its true length.
        return _header(first, total) + payload[:captured]


def _header(first: Fragment, total: int) -> bytes:
    """The IP header of the whole datagram with `total` bytes of payload after that of its first fragment."""
    header = bytearray(first.header)
    if first.version == 4:
        length = len(header) + total
        header[2:4] = (length if length <= MAX_DATAGRAM else 0).to_bytes(2, "big")
        header[6:8] = b"\0\0"
    else:
        length = len(header) - 40 + total
        header[4:6] = (length if length <= MAX_DATAGRAM else 0).to_bytes(2, "big")
        header[first.next_at] = first.protocol
    return bytes(header)


class FragmentTable:
    """Unfinished datagrams of a run, at one level of tunnels; fragments come in capture order."""

    def __init__(self) -> None:
        self._datagrams: dict[tuple[bytes, int, int], _Datagram] = {}
        self._flows: dict[bytes, dict[tuple[bytes, int, int], None]] = {}
        self._finished: dict[tuple[bytes, int, int], None] = {}
        self._held = 0

    def add(self, fragment: Fragment, *, capture: int, packet: int, time_ns: int) -> tuple[bytes | None, list[Dropped]]:
        """Take a fragment: (the whole IP datagram that it completes, dropped datagrams)."""
        dropped: list[Dropped] = []
        self._expire(time_ns, dropped)
        flow = fragment.header[12:20] if fragment.version == 4 else fragment.header[8:40]
        # IPv6 identifies datagrams by addresses and number only; the protocol of later fragments may differ (RFC 8200).
        key = (flow, fragment.ident, fragment.protocol if fragment.version == 4 else -1)
        datagram = self._datagrams.get(key)
        if datagram is None:
            datagram = self._datagrams[key] = _Datagram(capture, packet, time_ns, fragment.protocol)
            of_flow = self._flows.setdefault(flow, {})
            of_flow[key] = None
            if len(of_flow) > MAX_FLOW_DATAGRAMS:
                self._drop(next(iter(of_flow)), "too many unfinished datagrams between its addresses", dropped)
            elif len(self._datagrams) > MAX_DATAGRAMS:
                self._drop(next(iter(self._datagrams)), "too many unfinished datagrams", dropped)
        if len(datagram.pieces) >= MAX_FRAGMENTS:
            self._drop(key, "too many fragments", dropped)
            return None, dropped
        if fragment.offset + fragment.size > MAX_DATAGRAM:
            self._drop(key, "longer than the maximum size of a datagram", dropped)
            return None, dropped
        before = datagram.held
        whole = datagram.add(fragment)
        self._held += datagram.held - before
        if whole is not None:
            self._remove(key)
            self._finished[key] = None
            if len(self._finished) > REMEMBERED:
                del self._finished[next(iter(self._finished))]
            return whole, dropped
        while self._held > MAX_HELD_BYTES:
            self._drop(next(iter(self._datagrams)), "too many bytes of unfinished datagrams", dropped)
        return None, dropped

    def close(self) -> list[Dropped]:
        """Drop all unfinished datagrams."""
        dropped: list[Dropped] = []
        for key in list(self._datagrams):
            self._drop(key, "fragments are missing", dropped)
        return dropped

    def _expire(self, now: int, dropped: list[Dropped]) -> None:
        while self._datagrams:
            key, oldest = next(iter(self._datagrams.items()))
            if NO_TIME in {now, oldest.time_ns} or now - oldest.time_ns <= TIMEOUT_NS:
                return
            self._drop(key, "fragments are missing", dropped)

    def _drop(self, key: tuple[bytes, int, int], reason: str, dropped: list[Dropped]) -> None:
        datagram = self._remove(key)
        if key not in self._finished and datagram.protocol in REPORTED_PROTOCOLS:
            dropped.append(Dropped(datagram.capture, datagram.packet, datagram.time_ns, reason, datagram.held))

    def _remove(self, key: tuple[bytes, int, int]) -> _Datagram:
        datagram = self._datagrams.pop(key)
        self._held -= datagram.held
        of_flow = self._flows[key[0]]
        del of_flow[key]
        if not of_flow:
            del self._flows[key[0]]
        return datagram
