"""IPv4, IPv6 and TCP headers by columns, with options and extension headers: the rows of a `PacketBatch`.

Sources: RFC 791, RFC 8200 (IPv6), RFC 4302 (AH), RFC 2675 (jumbo payload). Checksums are not verified: offloading
leaves them unset in packets captured at their sender.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.link.layers import Fragments, Layer, LayerSpan, LinkWalk

TCP_HEADER: Final = np.dtype(
    [
        ("src_port", ">u2"),
        ("dst_port", ">u2"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ("size", "u1"),
        ("flags", "u1"),
        ("window", ">u2"),
        ("checksum", ">u2"),
        ("urgent", ">u2"),
    ]
)


class Addresses(msgspec.Struct, frozen=True):
    """Values from the IP header that a segment's row needs, one row each."""

    src_hi: NDArray[np.uint64]
    src_lo: NDArray[np.uint64]
    dst_hi: NDArray[np.uint64]
    dst_lo: NDArray[np.uint64]
    ident: NDArray[np.uint32]
    """IPv4 identification, or the low 16 bits of the IPv6 flow label."""

    def pick(self, mask: NDArray[np.bool_]) -> Self:
        """The rows where `mask` holds."""
        if mask.all():
            return self
        return type(self)(self.src_hi[mask], self.src_lo[mask], self.dst_hi[mask], self.dst_lo[mask], self.ident[mask])


def tcp(walk: LinkWalk, span: LayerSpan, addresses: Addresses) -> None:
    """Segments whose TCP header is at the span's position, from these addresses."""
    enough = span.end - span.at >= TCP_HEADER.itemsize
    if not enough.all():
        walk.need(span, TCP_HEADER.itemsize)  # counts the others
        span, addresses = span.pick(enough), addresses.pick(enough)
    heads = walk.records(span.at, TCP_HEADER)
    size = (heads["size"] >> 4).astype(np.int64) * 4
    payload = span.at + size
    wire = span.wire_end - payload
    bad = (size < TCP_HEADER.itemsize) | (wire < 0)
    if bad.any():
        span, addresses = walk.reject(span, bad), addresses.pick(~bad)
        heads, payload, wire = heads[~bad], payload[~bad], wire[~bad]
    if not len(span.rows):
        return
    # Options beyond the snap length leave an empty payload: everything else of the segment is known.
    offset = np.minimum(payload, span.end)
    walk.segments.append(
        {
            "rows": span.rows,
            "src_hi": addresses.src_hi,
            "src_lo": addresses.src_lo,
            "dst_hi": addresses.dst_hi,
            "dst_lo": addresses.dst_lo,
            "src_port": heads["src_port"].astype(np.uint16),
            "dst_port": heads["dst_port"].astype(np.uint16),
            "seq": heads["seq"].astype(np.uint32),
            "ack": heads["ack"].astype(np.uint32),
            "flags": heads["flags"].copy(),
            "window": heads["window"].astype(np.uint16),
            "offset": offset,
            "length": (span.end - offset).astype(np.int32),
            "wire_length": wire.astype(np.int32),
            "ident": (addresses.ident << np.uint32(16)) | heads["checksum"],
        }
    )


IPV4: Final = np.dtype(
    [
        ("version_size", "u1"),
        ("service", "u1"),
        ("total", ">u2"),
        ("ident", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
    ]
)

IPV6: Final = np.dtype(
    [
        ("flow", ">u4"),
        ("payload", ">u2"),
        ("next", "u1"),
        ("hops", "u1"),
        ("src_hi", ">u8"),
        ("src_lo", ">u8"),
        ("dst_hi", ">u8"),
        ("dst_lo", ">u8"),
    ]
)

MAPPED: Final = np.uint64(0xFFFF_0000_0000)
"""The IPv4-mapped IPv6 prefix of an IPv4 address, between 80 zero bits and the address."""

IP_IN_IP: Final = 4
TCP: Final = 6
UDP: Final = 17
IP6_IN_IP: Final = 41
FRAGMENT: Final = 44
GRE: Final = 47
AUTHENTICATION: Final = 51
ETHER_IN_IP: Final = 97
MPLS_IN_IP: Final = 137

EXTENSIONS: Final = (0, 43, FRAGMENT, AUTHENTICATION, 60, 135, 139, 140)
"""IPv6 extension headers: hop-by-hop, routing, fragment, AH, destination options, mobility, HIP, shim6."""

MAX_EXTENSIONS: Final = 16
"""Maximum number of extension headers of one packet."""

LARGEST_JUMBO: Final = 1 << 30
"""Maximum accepted length of a jumbo payload."""


def ip(walk: LinkWalk, span: LayerSpan) -> None:
    """IPv4 or IPv6, depending on the version."""
    span = walk.need(span, 1)
    version = walk.byte(span.at) >> 4
    four = version == 4
    if four.all():
        _ip4(walk, span)
        return
    six = version == 6
    _ip4(walk, span.pick(four))
    _ip6(walk, span.pick(six))
    walk.reject(span, ~four & ~six)


def _ip4(walk: LinkWalk, span: LayerSpan) -> None:
    span = walk.need(span, IPV4.itemsize)
    heads = walk.records(span.at, IPV4)
    size = (heads["version_size"] & 15).astype(np.int64) * 4
    total = heads["total"].astype(np.int64)
    # Total length 0: segmentation offload writes it later; padding is indistinguishable then.
    wire_end = np.where(total == 0, span.wire_end, span.at + total)
    bad = (size < IPV4.itemsize) | (wire_end - span.at < size)
    if bad.any():
        span, heads, size, wire_end = walk.reject(span, bad), heads[~bad], size[~bad], wire_end[~bad]
    header = span.at
    span = span._replace(at=header + size, end=np.minimum(span.end, wire_end), wire_end=wire_end)
    fragment = heads["fragment"].astype(np.int64)
    part = (fragment & 0x3FFF) != 0
    if part.any():
        pieces = span.pick(part)
        walk.fragments.append(
            Fragments(
                pieces,
                header[part],
                pieces.at,
                pieces.at,
                heads["protocol"][part].astype(np.int64),
                (fragment[part] & 0x1FFF) * 8,
                (fragment[part] & 0x2000) != 0,
                heads["ident"][part].astype(np.int64),
                4,
            )
        )
        span, heads = span.pick(~part), heads[~part]
    protocol = heads["protocol"]
    segments = protocol == TCP
    if not segments.all():
        _others(walk, span.pick(~segments), protocol[~segments], heads[~segments])
        span, heads = span.pick(segments), heads[segments]
    if len(span.rows):
        tcp(walk, span, _addresses4(heads))


def _addresses4(heads: NDArray[Any]) -> Addresses:
    zero = np.zeros(len(heads), np.uint64)
    return Addresses(
        zero,
        heads["src"].astype(np.uint64) | MAPPED,
        zero,
        heads["dst"].astype(np.uint64) | MAPPED,
        heads["ident"].astype(np.uint32),
    )


def _addresses6(heads: NDArray[Any]) -> Addresses:
    return Addresses(
        heads["src_hi"].astype(np.uint64),
        heads["src_lo"].astype(np.uint64),
        heads["dst_hi"].astype(np.uint64),
        heads["dst_lo"].astype(np.uint64),
        heads["flow"].astype(np.uint32) & np.uint32(0xFFFF),
    )


def _addresses(heads: NDArray[Any]) -> Addresses:
    return _addresses4(heads) if heads.dtype == IPV4 else _addresses6(heads)


def _ip6(walk: LinkWalk, span: LayerSpan) -> None:
    span = walk.need(span, IPV6.itemsize)
    heads = walk.records(span.at, IPV6)
    payload = heads["payload"].astype(np.int64)
    size = IPV6.itemsize
    wire_end = span.at + size + payload
    unsized = np.flatnonzero(payload == 0)
    if len(unsized):
        # Segmentation offload, or a jumbo payload whose length is in the first hop-by-hop option.
        at = span.at[unsized]
        wire_end[unsized] = span.wire_end[unsized]
        room = (span.end[unsized] - at >= size + 8) & (heads["next"][unsized] == 0)
        unsized, at = unsized[room], at[room]
        jumbo = walk.short(at + size + 2) == 0xC204
        length = np.minimum(walk.word(at[jumbo] + size + 4).astype(np.int64), LARGEST_JUMBO)
        wire_end[unsized[jumbo]] = at[jumbo] + size + length
    inner = span._replace(at=span.at + size, end=np.minimum(span.end, wire_end), wire_end=wire_end)
    _extensions(walk, _Chain(inner, heads, span.at, heads["next"].astype(np.int64), span.at + 6))


class _Chain(NamedTuple):
    """Packets on their way through a chain of extension headers."""

    span: LayerSpan
    """After an IP header or an extension header."""
    heads: NDArray[Any]
    """The IP headers."""
    header: NDArray[np.int64]
    """Offset of the IP header."""
    protocol: NDArray[np.int64]
    """The next protocol according to the header before the position."""
    next_at: NDArray[np.int64]
    """Offset of the byte with that protocol."""


def _extensions(walk: LinkWalk, chain: _Chain) -> None:
    """Follow IPv6 extension headers (AH after IPv4, too) to their payload."""
    span, heads, header, protocol, next_at = chain
    for _ in range(MAX_EXTENSIONS):
        extended = np.isin(protocol, EXTENSIONS)
        plain = ~extended
        if plain.any():
            _transport(walk, span.pick(plain), protocol[plain], heads[plain])
        if plain.all():
            return
        enough = extended & (span.end - span.at >= 8)
        walk.need(span.pick(extended), 8)  # counts those that are too short
        if not enough.any():
            return
        span, heads, header = span.pick(enough), heads[enough], header[enough]
        protocol, next_at = protocol[enough], next_at[enough]
        length = walk.byte(span.at + 1).astype(np.int64)
        following = walk.byte(span.at).astype(np.int64)
        fragmented = protocol == FRAGMENT
        length = np.where(protocol == AUTHENTICATION, (length + 2) * 4, (length + 1) * 8)
        length[fragmented] = 8
        if fragmented.any():
            part = fragmented.copy()
            place = span.at[fragmented]
            field = walk.short(place + 2).astype(np.int64)
            # "Atomic" fragments (RFC 6946) are whole datagrams.
            part[fragmented] = (field & 0xFFF9) != 0
            field = field[(field & 0xFFF9) != 0]
            pieces = span.pick(part)
            if len(pieces.rows):
                walk.fragments.append(
                    Fragments(
                        pieces.skip(8),
                        header[part],
                        pieces.at,
                        next_at[part],
                        following[part],
                        field & 0xFFF8,
                        (field & 1) == 1,
                        walk.word(pieces.at + 4).astype(np.int64),
                        6,
                    )
                )
            rest = ~part
            span, heads, header, following = span.pick(rest), heads[rest], header[rest], following[rest]
            length = length[rest]
        if not len(span.rows):
            return
        next_at = span.at
        protocol = following
        span = span.skip(length)
    walk.malformed.append(span.rows)


def _transport(walk: LinkWalk, span: LayerSpan, protocol: NDArray[Any], heads: NDArray[Any]) -> None:
    segments = protocol == TCP
    if segments.any():
        tcp(walk, span.pick(segments), _addresses(heads[segments]))
    if not segments.all():
        rest = ~segments
        _others(walk, span.pick(rest), protocol[rest], heads[rest])


def _others(walk: LinkWalk, span: LayerSpan, protocol: NDArray[Any], heads: NDArray[Any]) -> None:
    """Protocols other than TCP: tunnels; everything else is ignored."""
    walk.push(Layer.UDP, span.pick(protocol == UDP))
    walk.push(Layer.IP, span.pick((protocol == IP_IN_IP) | (protocol == IP6_IN_IP)).deeper())
    walk.push(Layer.GRE, span.pick(protocol == GRE))
    walk.push(Layer.MPLS, span.pick(protocol == MPLS_IN_IP).deeper())
    walk.push(Layer.ETHERNET, span.pick(protocol == ETHER_IN_IP).skip(2).deeper())
    authenticated = (protocol == AUTHENTICATION) & (heads.dtype == IPV4)
    if np.any(authenticated):
        inner = span.pick(authenticated)
        kinds = protocol[authenticated].astype(np.int64)
        _extensions(walk, _Chain(inner, heads[authenticated], inner.at, kinds, inner.at))
