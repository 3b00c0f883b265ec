"""Ethernet types and the layers that they lead to; shared by Ethernet, Linux cooked captures, GRE and others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.link.walk import Layer, LayerSpan, LinkWalk

__all__ = ["FOLLOWED", "VLAN_TYPES", "follow"]

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
