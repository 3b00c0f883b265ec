"""Link layers and tunnels by columns: from a captured packet's first byte to IP.

A `LayerSpan` is a set of packets at the same layer. A layer's function reads that layer's header for the whole span by
columns and passes the packets on to the next layer; most batches are one span at each layer, so nothing is copied for
them. Tunnels are ordinary layers: their payload is a new span, one level deeper.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

MAX_DEPTH: Final = 8
"""Maximum tunnel depth; deeper packets count as malformed."""

Columns = dict[str, NDArray[Any]]
"""Columns of TCP rows: those of `PacketBatch` that come from headers, and `rows`."""


class Layer(enum.Enum):
    """The layer at a span's position."""

    ETHERNET = enum.auto()
    VLAN = enum.auto()
    """The tag after its Ethernet type."""
    MPLS = enum.auto()
    PPPOE = enum.auto()
    PPP = enum.auto()
    IP = enum.auto()
    """IPv4 or IPv6, depending on the version."""
    GRE = enum.auto()
    UDP = enum.auto()


class LayerSpan(NamedTuple):
    """Packets that are at the same layer, one row each."""

    rows: NDArray[np.int64]
    """Index of the packet in the batch."""
    at: NDArray[np.int64]
    """Offset in the buffer of the layer's first byte."""
    end: NDArray[np.int64]
    """Offset after the last captured byte."""
    wire_end: NDArray[np.int64]
    """Offset after the last byte on the wire, as if it had been captured."""
    depth: int = 0
    """Number of enclosing tunnels."""

    def pick(self, mask: NDArray[np.bool_]) -> Self:
        """The packets where `mask` holds."""
        if mask.all():
            return self
        return self._replace(rows=self.rows[mask], at=self.at[mask], end=self.end[mask], wire_end=self.wire_end[mask])

    def skip(self, size: NDArray[np.int64] | int) -> Self:
        """The same packets, `size` bytes further."""
        return self._replace(at=self.at + size)

    def deeper(self) -> Self:
        """The same packets, inside one more tunnel."""
        return self._replace(depth=self.depth + 1)


class Fragments(msgspec.Struct, frozen=True):
    """IP fragments, one row each; they leave the walk and return as datagrams."""

    span: LayerSpan
    """At the fragment's payload."""
    header: NDArray[np.int64]
    """Offset of the IP header."""
    unfragmented: NDArray[np.int64]
    """Offset after the headers that the datagram keeps (IPv6: where the fragment header begins)."""
    next_at: NDArray[np.int64]
    """IPv6: offset of the byte that means "fragment header follows"."""
    protocol: NDArray[np.int64]
    offset: NDArray[np.int64]
    """Offset of the payload within the datagram's, in bytes."""
    more: NDArray[np.bool_]
    """More fragments follow."""
    ident: NDArray[np.int64]
    version: int


class LinkWalk:
    """The state of one batch: its buffer, the spans still to be read, and the results."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.pending: list[tuple[Layer, LayerSpan]] = []
        self.segments: list[Columns] = []
        self.fragments: list[Fragments] = []
        self.cut: list[NDArray[np.int64]] = []
        """Rows of packets whose captured bytes end before a header that they had on the wire."""
        self.malformed: list[NDArray[np.int64]] = []
        """Rows of packets with headers that contradict themselves."""
        self._bytes = np.frombuffer(buffer, np.uint8)

    def append(self, data: bytes) -> int:
        """Append reassembled datagrams to the buffer; returns their offsets."""
        start = len(self.buffer)
        self.buffer += data
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        return start

    def push(self, layer: Layer, span: LayerSpan) -> None:
        """These packets continue at this layer."""
        if not len(span.rows):
            return
        if span.depth > MAX_DEPTH:
            self.malformed.append(span.rows)
            return
        self.pending.append((layer, span))

    def need(self, span: LayerSpan, size: int) -> LayerSpan:
        """The packets that have `size` more captured bytes; the others are counted as cut or as malformed."""
        enough = span.end - span.at >= size
        if enough.all():
            return span
        short = span.pick(~enough)
        on_wire = short.wire_end - short.at >= size
        self.cut.append(short.rows[on_wire])
        self.malformed.append(short.rows[~on_wire])
        return span.pick(enough)

    def reject(self, span: LayerSpan, bad: NDArray[np.bool_]) -> LayerSpan:
        """The packets that are not `bad`; those are counted as malformed."""
        if not bad.any():
            return span
        self.malformed.append(span.rows[bad])
        return span.pick(~bad)

    # Reading by columns: all places must be within the buffer (see `need`).

    def byte(self, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The byte at each place."""
        # mode="clip" is NumPy's fast path: no buffered output.
        return self._bytes.take(places, mode="clip")

    def short(self, places: NDArray[np.int64]) -> NDArray[np.uint16]:
        """The big-endian 16 bits at each place."""
        return self.byte(places).astype(np.uint16) << np.uint16(8) | self.byte(places + 1)

    def word(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The big-endian 32 bits at each place."""
        return self.short(places).astype(np.uint32) << np.uint32(16) | self.short(places + 2)

    def records(self, places: NDArray[np.int64], layout: np.dtype[Any]) -> NDArray[Any]:
        """The header of this layout at each place."""
        if not len(places):
            return np.empty(0, layout)
        # A gather of opaque items is a plain copy of bytes each, several times faster than one of structured items.
        size = layout.itemsize
        return np.ndarray((len(self.buffer) - size + 1,), f"V{size}", self.buffer, strides=(1,))[places].view(layout)


# Ethernet types and the layers that they lead to; shared by Ethernet, Linux cooked captures, GRE and others.

IP4: Final = 0x0800
IP6: Final = 0x86DD
VLAN_TYPES: Final = (0x8100, 0x88A8, 0x9100, 0x9200)
"""802.1Q, 802.1ad, and the two that were used for stacked tags before it."""
MPLS_TYPES: Final = (0x8847, 0x8848)
PPPOE_SESSION: Final = 0x8864

_OTHERS: Final = (
    (VLAN_TYPES, Layer.VLAN),
    (MPLS_TYPES, Layer.MPLS),
    ((PPPOE_SESSION,), Layer.PPPOE),
)

FOLLOWED: Final = (IP4, IP6, *(kind for kinds, _ in _OTHERS for kind in kinds))
"""The supported types."""


def follow(walk: LinkWalk, span: LayerSpan, kind: NDArray[Any]) -> None:
    """Pass on packets whose Ethernet type is `kind` and whose position is after it; other types are ignored."""
    ip = (kind == IP4) | (kind == IP6)
    if ip.all():
        walk.push(Layer.IP, span)
        return
    walk.push(Layer.IP, span.pick(ip))
    for kinds, layer in _OTHERS:
        mask = np.isin(kind, kinds)
        if mask.any():
            walk.push(layer, span.pick(mask))


# Link layers: from a captured packet's first byte to IP.
#
# Numbers of link types: the LINKTYPE_ registry of the pcap formats.

MAX_TAGS: Final = 8
"""Maximum number of VLAN tags of one packet."""

MAX_LABELS: Final = 16
"""Maximum number of MPLS labels of one packet."""

IP_FAMILIES: Final = (2, 10, 24, 28, 30)
"""Address families of IPv4 and IPv6 on Linux, BSD, FreeBSD and macOS."""

PPP_IP: Final = (0x0021, 0x0057)
PPP_MPLS: Final = 0x0281


def ethernet(walk: LinkWalk, span: LayerSpan) -> None:
    """Ethernet II (and 802.3 with LLC and SNAP)."""
    span = walk.need(span, 14)
    kind = walk.short(span.at + 12)
    snap = kind <= 1500
    if snap.any():
        _snap(walk, span.pick(snap))
    follow(walk, span.skip(14), kind)


def _snap(walk: LinkWalk, span: LayerSpan) -> None:
    span = span.pick(span.end - span.at >= 22)
    marked = (walk.word(span.at + 14) == 0xAAAA_0300) & (walk.short(span.at + 18) == 0)
    span = span.pick(marked)
    follow(walk, span.skip(22), walk.short(span.at + 20))


def vlan(walk: LinkWalk, span: LayerSpan) -> None:
    """802.1Q and 802.1ad tags, also stacked; the position is at the tag's control information."""
    for _ in range(MAX_TAGS):
        span = walk.need(span, 4)
        kind = walk.short(span.at + 2)
        span = span.skip(4)
        tagged = np.isin(kind, VLAN_TYPES)
        if not tagged.any():
            follow(walk, span, kind)
            return
        follow(walk, span.pick(~tagged), kind[~tagged])
        span = span.pick(tagged)
    walk.malformed.append(span.rows)


def mpls(walk: LinkWalk, span: LayerSpan) -> None:
    """A label stack (RFC 3032); its payload is identified by its first four bits (RFC 4928)."""
    for _ in range(MAX_LABELS):
        if not len(span.rows):
            return
        span = walk.need(span, 4)
        bottom = (walk.byte(span.at + 2) & 1) == 1
        span = span.skip(4)
        _below(walk, span.pick(bottom))
        span = span.pick(~bottom)
    walk.malformed.append(span.rows)


def _below(walk: LinkWalk, span: LayerSpan) -> None:
    span = walk.need(span, 1)
    nibble = walk.byte(span.at) >> 4
    ip = (nibble == 4) | (nibble == 6)
    walk.push(Layer.IP, span.pick(ip))
    wire = span.pick(~ip)
    wire = wire.pick(wire.end - wire.at >= 18)
    if not len(wire.rows):
        return
    # A pseudo-wire carries Ethernet, with or without a control word of four bytes whose first bits are zero (RFC 4448).
    # Addresses may begin with zero bits as well, so the Ethernet type decides.
    bare = np.isin(walk.short(wire.at + 12), FOLLOWED)
    control = (walk.word(wire.at) >> 28 == 0) & np.isin(walk.short(wire.at + 16), FOLLOWED) & ~bare
    walk.push(Layer.ETHERNET, wire.pick(bare).deeper())
    walk.push(Layer.ETHERNET, wire.pick(control).skip(4).deeper())


def pppoe(walk: LinkWalk, span: LayerSpan) -> None:
    """A PPPoE session's header (RFC 2516)."""
    walk.push(Layer.PPP, walk.need(span, 6).skip(6))


def ppp(walk: LinkWalk, span: LayerSpan) -> None:
    """PPP, with or without address and control, with a long or a short protocol field (RFC 1661, 1662); Cisco HDLC."""
    span = walk.need(span, 4)
    first = walk.short(span.at)
    cisco = (first == 0x0F00) | (first == 0x8F00)
    if cisco.any():
        hdlc = span.pick(cisco)
        follow(walk, hdlc.skip(4), walk.short(hdlc.at + 2))
        span, first = span.pick(~cisco), first[~cisco]
    span = span.skip(np.where(first == 0xFF03, 2, 0))
    compressed = (walk.byte(span.at) & 1) == 1
    protocol = np.where(compressed, walk.byte(span.at), walk.short(span.at))
    span = span.skip(np.where(compressed, 1, 2))
    walk.push(Layer.IP, span.pick(np.isin(protocol, PPP_IP)))
    walk.push(Layer.MPLS, span.pick(protocol == PPP_MPLS))


def _cooked(walk: LinkWalk, span: LayerSpan) -> None:
    """Linux cooked capture, version 1."""
    span = walk.need(span, 16)
    follow(walk, span.skip(16), walk.short(span.at + 14))


def _cooked2(walk: LinkWalk, span: LayerSpan) -> None:
    """Linux cooked capture, version 2."""
    span = walk.need(span, 20)
    follow(walk, span.skip(20), walk.short(span.at))


def _raw(walk: LinkWalk, span: LayerSpan) -> None:
    walk.push(Layer.IP, span)


def _null(walk: LinkWalk, span: LayerSpan) -> None:
    """An address family in the byte order of the machine that captured (null) or in network byte order (loop)."""
    span = walk.need(span, 4)
    family = walk.word(span.at)
    walk.push(Layer.IP, span.skip(4).pick(np.isin(family, IP_FAMILIES) | np.isin(family.byteswap(), IP_FAMILIES)))


def _encapsulated(walk: LinkWalk, span: LayerSpan) -> None:
    """OpenBSD's enc(4): an address family in either order, 8 more bytes, then IP."""
    span = walk.need(span, 12)
    family = walk.word(span.at)
    walk.push(Layer.IP, span.skip(12).pick(np.isin(family, IP_FAMILIES) | np.isin(family.byteswap(), IP_FAMILIES)))


def _pflog(walk: LinkWalk, span: LayerSpan) -> None:
    """Packet filter logs: the header contains its own length, padded to four bytes."""
    span = walk.need(span, 4)
    family = walk.byte(span.at + 1)
    size = (walk.byte(span.at).astype(np.int64) + 3) & ~3
    walk.push(Layer.IP, span.skip(size).pick(np.isin(family, IP_FAMILIES)))


def _hdlc(walk: LinkWalk, span: LayerSpan) -> None:
    """Cisco HDLC: address, control, Ethernet type."""
    span = walk.need(span, 4)
    follow(walk, span.skip(4), walk.short(span.at + 2))


def _ppp_with_direction(walk: LinkWalk, span: LayerSpan) -> None:
    """A byte for the direction before PPP (PPP_WITH_DIR) or instead of PPP's address byte (PPP_PPPD)."""
    span = walk.need(span, 2).skip(1)
    walk.push(Layer.PPP, span.skip((walk.byte(span.at) == 0x03).astype(np.int64)))


def _mpls(walk: LinkWalk, span: LayerSpan) -> None:
    walk.push(Layer.MPLS, span)


def _pktap(walk: LinkWalk, span: LayerSpan) -> None:
    """The pktap header of macOS, with its own length and the link type of its payload (both little-endian)."""
    span = walk.need(span, 12)
    size = walk.word(span.at).byteswap().astype(np.int64)
    link = walk.word(span.at + 8).byteswap()
    span = span.skip(np.minimum(size, 1 << 16)).deeper()
    for number in np.unique(link).tolist():
        inner = LINKS.get(number)
        if inner is not None and number != PKTAP:
            inner(walk, span.pick(link == number))


PKTAP: Final = 258

LINKS: Final[dict[int, Callable[[LinkWalk, LayerSpan], None]]] = {
    0: _null,
    1: ethernet,
    9: ppp,
    12: _raw,
    14: _raw,
    50: ppp,
    51: pppoe,
    101: _raw,
    104: _hdlc,
    108: _null,
    109: _encapsulated,
    113: _cooked,
    117: _pflog,
    PKTAP: _pktap,
    166: _ppp_with_direction,
    204: _ppp_with_direction,
    219: _mpls,
    228: _raw,
    229: _raw,
    276: _cooked2,
}
"""The function that reads each link type."""


# Tunnels: GRE, ERSPAN, VXLAN, Geneve. Their payload is one level deeper.
#
# Sources: RFC 2784 and 2890 (GRE), RFC 7348 (VXLAN), RFC 8926 (Geneve), draft-foschiano-erspan (ERSPAN I, II, III).

CHECKSUM: Final = 0x8000
ROUTING: Final = 0x4000
KEY: Final = 0x2000
SEQUENCE: Final = 0x1000

TRANSPARENT_BRIDGING: Final = 0x6558

ERSPAN_2: Final = 0x88BE
"""Also of type I, which has no header of its own and no sequence number."""
ERSPAN_3: Final = 0x22EB

VXLAN_PORTS: Final = (4789, 8472)
"""IANA's, and Linux's earlier one."""
GENEVE_PORT: Final = 6081


def gre(walk: LinkWalk, span: LayerSpan) -> None:
    """GRE version 0, with checksum, key and sequence number according to its flags."""
    span = walk.need(span, 4)
    flags = walk.short(span.at).astype(np.int64)
    kind = walk.short(span.at + 2)
    ours = (flags & 7) == 0  # version 1 is PPTP's
    span, flags, kind = span.pick(ours).deeper(), flags[ours], kind[ours]
    size = 4 + 4 * (
        ((flags & (CHECKSUM | ROUTING)) != 0).astype(np.int64)
        + ((flags & KEY) != 0).astype(np.int64)
        + ((flags & SEQUENCE) != 0).astype(np.int64)
    )
    span = span.skip(size)
    mirrored = (kind == ERSPAN_2) | (kind == ERSPAN_3)
    if mirrored.any():
        first = (kind == ERSPAN_2) & ((flags & SEQUENCE) == 0)
        walk.push(Layer.ETHERNET, span.pick(first))
        walk.push(Layer.ETHERNET, span.pick((kind == ERSPAN_2) & ~first).skip(8))
        _erspan3(walk, span.pick(kind == ERSPAN_3))
        span, kind = span.pick(~mirrored), kind[~mirrored]
    _inside(walk, span, kind)


def _inside(walk: LinkWalk, span: LayerSpan, kind: NDArray[np.uint16]) -> None:
    """A tunnel's payload by its Ethernet type; Ethernet itself has one too."""
    bridged = kind == TRANSPARENT_BRIDGING
    walk.push(Layer.ETHERNET, span.pick(bridged))
    follow(walk, span.pick(~bridged), kind[~bridged])


def _erspan3(walk: LinkWalk, span: LayerSpan) -> None:
    if not len(span.rows):
        return
    span = walk.need(span, 12)
    last = walk.short(span.at + 10)
    # Frame type 2 is IP without Ethernet; the lowest bit means that 8 more bytes of header follow.
    packet = ((last >> 10) & 0x1F) == 2
    span = span.skip(12 + 8 * (last & 1).astype(np.int64))
    walk.push(Layer.IP, span.pick(packet))
    walk.push(Layer.ETHERNET, span.pick(~packet))


def udp(walk: LinkWalk, span: LayerSpan) -> None:
    """UDP: the ports of VXLAN and Geneve; everything else is ignored."""
    span = span.pick(span.end - span.at >= 16)
    if not len(span.rows):
        return
    port = walk.short(span.at + 2)
    vxlan = np.isin(port, VXLAN_PORTS)
    geneve = port == GENEVE_PORT
    span = span.skip(8)
    if vxlan.any():
        inner = span.pick(vxlan)
        inner = inner.pick((walk.byte(inner.at) & 0x08) != 0)
        walk.push(Layer.ETHERNET, inner.skip(8).deeper())
    if geneve.any():
        inner = span.pick(geneve)
        first = walk.byte(inner.at)
        inner = inner.pick((first >> 6) == 0)
        size = 8 + (walk.byte(inner.at) & 0x3F).astype(np.int64) * 4
        _inside(walk, inner.skip(size).deeper(), walk.short(inner.at + 2))
