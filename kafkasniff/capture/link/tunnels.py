"""Tunnels: GRE, ERSPAN, VXLAN, Geneve. Their payload is one level deeper.

Sources: RFC 2784 and 2890 (GRE), RFC 7348 (VXLAN), RFC 8926 (Geneve), draft-foschiano-erspan (ERSPAN I, II, III).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.link.ethertypes import follow
from kafkasniff.capture.link.walk import Layer, LayerSpan, LinkWalk

__all__ = ["gre", "udp"]

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
