"""PacketDecoder: captured packets in, `PacketBatch` out; holds state across batches: fragments and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import IGNORED_LINK, UNDESCRIBED_LINK, Interface, RawPackets
from kafkasniff.capture.link.fragments import Dropped, Fragment, FragmentTable
from kafkasniff.capture.link.internet import ip
from kafkasniff.capture.link.links import LINKS, ethernet, mpls, ppp, pppoe, vlan
from kafkasniff.capture.link.tunnels import gre, udp
from kafkasniff.capture.link.walk import Columns, Fragments, Layer, LayerSpan, LinkWalk
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.native.headers import FROM_HEADERS, read_headers
from kafkasniff.native.library import kernel
from kafkasniff.packets import COLUMNS, Note, PacketBatch

__all__ = ["PacketDecoder"]

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
            (row, place, group)
            for group, found in enumerate(groups)
            for place, row in enumerate(found.span.rows.tolist())
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
