"""PacketDecoder: captured packets in, `PacketBatch` out; holds state across batches: fragments and counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import IGNORED_LINK, UNDESCRIBED_LINK, Interface, RawPackets
from kafkasniff.capture.link.internet import ip
from kafkasniff.capture.link.layers import (
    LINKS,
    Columns,
    Fragments,
    Layer,
    LayerSpan,
    LinkWalk,
    ethernet,
    gre,
    mpls,
    ppp,
    pppoe,
    udp,
    vlan,
)
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.native.headers import FROM_HEADERS, read_headers
from kafkasniff.native.library import kernel
from kafkasniff.packets import COLUMNS, Note, PacketBatch

# Reassembly of IP fragments, across batches, within bounds. A datagram replaces the packet that completed it. Where
# fragments overlap, the first one wins. Fragments are rare, so this is plain Python, one fragment at a time.

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
        return _datagram_header(first, total) + payload[:captured]


def _datagram_header(first: Fragment, total: int) -> bytes:
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


LAYERS: Final[dict[Layer, Callable[[LinkWalk, LayerSpan], None]]] = {
    Layer.ETHERNET: ethernet,
    Layer.VLAN: vlan,
    Layer.MPLS: mpls,
    Layer.PPPOE: pppoe,
    Layer.PPP: ppp,
    Layer.IP: ip,
    Layer.GRE: gre,
    Layer.UDP: udp,
}

LARGEST_PACKET: Final = 1 << 30
"""Maximum accepted length of a packet on the wire: columns are 32 bits wide."""

MAX_DROPS_REPORTED: Final = 100
"""Number of dropped datagrams that get a problem each; the others are reported as a count at the end."""

LINK_NAMES: Final = {
    6: "Token Ring",
    10: "FDDI",
    105: "IEEE 802.11",
    119: "IEEE 802.11 with Prism header",
    127: "IEEE 802.11 with radiotap header",
    163: "IEEE 802.11 with AVS header",
    187: "Bluetooth HCI",
    189: "USB",
    192: "per-packet information",
    195: "IEEE 802.15.4",
    220: "USB",
    239: "Linux netfilter log",
    249: "USB",
    253: "Linux netlink",
}


class PacketDecoder:
    """Reads the headers of consecutive packets; one instance per run."""

    def __init__(self, captures: tuple[str, ...], interface: Callable[[int, int], Interface]) -> None:
        """`interface(capture, index)` describes the interface of a packet."""
        self._captures = captures
        self._kernel = kernel()
        self._interface = interface
        self._tables: list[FragmentTable] = []
        """By level: fragments of datagrams that were themselves reassembled from fragments come later."""
        self._reported: set[tuple[int, int]] = set()
        self._cut: dict[int, int] = {}
        self._malformed: dict[int, int] = {}
        self._dropped = 0
        self.fragment_rows: list[NDArray[np.int64]] = []
        """The last decoded packets that were IP fragments: they contribute to rows of others, or to none."""

    def decode(
        self, raw: RawPackets, first_order: int, notes: list[Note], clock: NDArray[np.int64] | None = None
    ) -> PacketBatch:
        """A batch of these packets, the first of which gets `first_order`; `notes` are included in order.

        `clock`: the packet clock at each packet, if it differs from their times.
        """
        count = len(raw.start)
        walk = LinkWalk(raw.buffer)
        own: list[Note] = []
        rows = np.arange(count, dtype=np.int64)
        if count:
            columns, rows = read_headers(self._kernel, raw.buffer, (raw.start, raw.captured, raw.wire, raw.link))
            if len(columns["rows"]):
                walk.segments.append(columns)
        if len(rows):
            own.extend(self._links(walk, raw, rows, first_order))
        self._run(walk)
        level = 0
        self.fragment_rows = []
        while walk.fragments:
            self.fragment_rows.extend(group.span.rows for group in walk.fragments)
            own.extend(self._reassemble(walk, raw, first_order, level))
            self._run(walk)
            level += 1
        self._count(self._cut, walk.cut, raw)
        self._count(self._malformed, walk.malformed, raw)
        columns = _joined(walk.segments)
        rows = columns.pop("rows")
        whole = len(rows) == count
        columns["order"] = rows + first_order
        for name, column in (("capture", raw.capture), ("number", raw.number), ("time_ns", raw.time_ns)):
            columns[name] = column if whole else column[rows]
        if own:
            notes = sorted([*notes, *own], key=lambda note: note.order)
        return PacketBatch(
            columns,
            walk.buffer,
            captures=self._captures,
            clock=clock if clock is None or whole else clock[rows],
            end_clock=int(clock[-1]) if clock is not None and len(clock) else NO_TIME,
            end_order=first_order + count,
            packets=count,
            notes=notes,
        )

    def finish(self, capture: int) -> list[Problem]:
        """Reports at the end of a capture."""
        name = self._captures[capture]
        problems = []
        cut = self._cut.pop(capture, 0)
        if cut:
            text = f"{name}: {cut} packets were captured too short to hold their headers; capture with a larger snaplen"
            problems.append(Problem("packet-cut-headers", text, capture=name))
        malformed = self._malformed.pop(capture, 0)
        if malformed:
            text = f"{name}: {malformed} packets have headers that contradict themselves"
            problems.append(Problem("packet-malformed", text, capture=name))
        return problems

    def close(self) -> list[Problem]:
        """Reports at the end of the run."""
        dropped = [drop for table in self._tables for drop in table.close()]
        problems = self._dropped_problems(dropped)
        if self._dropped > MAX_DROPS_REPORTED:
            more = self._dropped - MAX_DROPS_REPORTED
            problems.append(Problem("ip-fragment-dropped", f"{more} more fragmented IP datagrams were not reassembled"))
        return problems

    def _links(self, walk: LinkWalk, raw: RawPackets, rows: NDArray[np.int64], first_order: int) -> list[Note]:
        """Start the walk: each of these packets at its link layer."""
        start, captured, wire, links = raw.start, raw.captured, raw.wire, raw.link
        if len(rows) < len(start):
            start, captured, wire, links = start[rows], captured[rows], wire[rows], links[rows]
        span = LayerSpan(rows, start, start + captured, start + np.minimum(wire, LARGEST_PACKET))
        first = int(links[0])
        same = links == first
        if same.all():
            return self._link(walk, raw, span, first, first_order)
        notes: list[Note] = []
        for link in np.unique(links).tolist():
            notes.extend(self._link(walk, raw, span.pick(links == link), link, first_order))
        return notes

    def _link(self, walk: LinkWalk, raw: RawPackets, span: LayerSpan, link: int, first_order: int) -> list[Note]:
        read = LINKS.get(link)
        if read is not None:
            read(walk, span)
            return []
        if link == IGNORED_LINK:
            return []
        if link != UNDESCRIBED_LINK:
            from kafkasniff.capture.link.scapy_layers import find_ip

            found = find_ip(walk, span, link)
            if found is not None:
                walk.push(Layer.IP, found)
                return []
        notes = []
        pairs, firsts = np.unique(
            np.stack((raw.capture[span.rows], raw.interface[span.rows])), axis=1, return_index=True
        )
        for (capture, index), place in zip(pairs.T.tolist(), firsts.tolist(), strict=True):
            if (capture, index) not in self._reported:
                self._reported.add((capture, index))
                row = int(span.rows[place])
                notes.append(Note(first_order + row, self._unknown(capture, index, int(raw.number[row]))))
        return notes

    def _unknown(self, capture: int, index: int, packet: int) -> Problem:
        name = self._captures[capture]
        interface = self._interface(capture, index)
        which = f"interface {interface.number}" + (f" ({interface.name})" if interface.name else "")
        if interface.link == UNDESCRIBED_LINK:
            text = f"{name}: no block describes {which}; its packets are only counted"
        else:
            known = LINK_NAMES.get(interface.link)
            link = f"link type {interface.link}" + (f" ({known})" if known else "")
            text = f"{name}: {which} has {link}, which is unsupported; its packets are only counted"
        return Problem("link-type-unknown", text, capture=name, packet=packet)

    def _run(self, walk: LinkWalk) -> None:
        while walk.pending:
            layer, span = walk.pending.pop()
            LAYERS[layer](walk, span)

    def _reassemble(self, walk: LinkWalk, raw: RawPackets, first_order: int, level: int) -> list[Note]:
        """Take the walk's fragments out; datagrams that they complete are appended to the buffer."""
        if level == len(self._tables):
            self._tables.append(FragmentTable())
        table = self._tables[level]
        groups, walk.fragments = walk.fragments, []
        pieces = sorted(
            (row, index, group)
            for group, fragments in enumerate(groups)
            for index, row in enumerate(fragments.span.rows.tolist())
        )
        notes: list[Note] = []
        whole: list[tuple[int, int, bytes]] = []
        for row, place, group in pieces:
            fragment = _fragment(walk.buffer, groups[group], place)
            datagram, dropped = table.add(
                fragment,
                capture=int(raw.capture[row]),
                packet=int(raw.number[row]),
                time_ns=int(raw.time_ns[row]),
            )
            notes.extend(Note(first_order + row, problem) for problem in self._dropped_problems(dropped))
            if datagram is not None:
                whole.append((row, groups[group].span.depth, datagram))
        if whole:
            self._resume(walk, whole)
        return notes

    @staticmethod
    def _resume(walk: LinkWalk, whole: list[tuple[int, int, bytes]]) -> None:
        """Datagrams, as (row, depth, bytes), continue at IP."""
        position = walk.append(b"".join(datagram for _, _, datagram in whole))
        sizes = np.array([len(datagram) for _, _, datagram in whole], np.int64)
        ends = position + np.cumsum(sizes)
        rows = np.array([row for row, _, _ in whole], np.int64)
        depths = np.array([depth for _, depth, _ in whole], np.int64)
        for depth in np.unique(depths).tolist():
            mask = depths == depth
            walk.push(Layer.IP, LayerSpan(rows[mask], (ends - sizes)[mask], ends[mask], ends[mask], depth))

    def _dropped_problems(self, dropped: Iterable[Dropped]) -> list[Problem]:
        problems = []
        for drop in dropped:
            self._dropped += 1
            if self._dropped > MAX_DROPS_REPORTED:
                continue
            name = self._captures[drop.capture]
            problems.append(
                Problem(
                    "ip-fragment-dropped",
                    f"{name}: the fragmented IP datagram that begins with packet {drop.packet} was not reassembled: "
                    f"{drop.reason}",
                    time_ns=None if drop.time_ns == NO_TIME else drop.time_ns,
                    capture=name,
                    packet=drop.packet,
                    bytes=drop.held,
                )
            )
        return problems

    @staticmethod
    def _count(counts: dict[int, int], rows: list[NDArray[np.int64]], raw: RawPackets) -> None:
        # A packet is counted once, however many of its layers are invalid.
        found = np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int64)
        if len(found):
            for capture, number in enumerate(np.bincount(raw.capture[found]).tolist()):
                if number:
                    counts[capture] = counts.get(capture, 0) + number


def _fragment(buffer: bytes, group: Fragments, place: int) -> Fragment:
    header = int(group.header[place])
    at = int(group.span.at[place])
    size = max(0, int(group.span.wire_end[place]) - at)
    return Fragment(
        group.version,
        buffer[header : int(group.unfragmented[place])],
        int(group.next_at[place]) - header,
        int(group.protocol[place]),
        int(group.ident[place]),
        int(group.offset[place]),
        bool(group.more[place]),
        buffer[at : max(at, int(group.span.end[place]))],
        size,
    )


def _joined(parts: list[Columns]) -> Columns:
    """The rows of all parts in order of packets."""
    if len(parts) == 1:
        columns: Columns = parts[0]
    elif parts:
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    else:
        columns = {name: np.empty(0, COLUMNS[name]) for name in FROM_HEADERS}
        columns["rows"] = np.empty(0, np.int64)
    rows: NDArray[Any] = columns["rows"]
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return columns
