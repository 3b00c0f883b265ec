"""Link layers: from a captured packet's first byte to IP.

Numbers of link types: the LINKTYPE_ registry of the pcap formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from kafkasniff.capture.link.ethertypes import FOLLOWED, VLAN_TYPES, follow
from kafkasniff.capture.link.walk import Layer, LayerSpan, LinkWalk

__all__ = ["LINKS", "ethernet", "mpls", "ppp", "pppoe", "vlan"]

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
