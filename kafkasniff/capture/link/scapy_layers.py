"""Uses of scapy, if it is installed: rare link types, and its binding of libpcap.

scapy is GPL-2.0-only and optional; this is the only file that imports it. It reads some ten thousand packets/s, so it
is only used for link types that nothing else here supports; libpcap's packets do not pass through it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kafkasniff.capture.link.layers import LayerSpan, LinkWalk


@functools.cache
def _scapy() -> Any:
    """(link types, IP layers) of scapy, None if it is not installed."""
    try:
        import scapy.all as scapy
    except ImportError:
        return None
    return scapy.conf.l2types, tuple(getattr(scapy, layer) for layer in ("IP", "IPv6"))


def find_ip(walk: LinkWalk, span: LayerSpan, link: int) -> LayerSpan | None:
    """The packets of this link type that carry IP, advanced to it; None if scapy is missing or lacks the type."""
    known = _scapy()
    if known is None:
        return None
    types, layers = known
    read = types.num2layer.get(link)
    if read is None:
        return None
    sizes = np.full(len(span.rows), -1, np.int64)
    for row, (at, end) in enumerate(zip(span.at.tolist(), span.end.tolist(), strict=True)):
        data = walk.buffer[at:end]
        try:
            packet = read(data)
        except Exception:
            continue  # scapy's dissectors raise anything on odd input; such a packet is not readable IP
        for layer in layers:
            inner = packet.getlayer(layer)
            if inner is not None:
                # A layer's `original` is the data from its first byte to the packet's end.
                sizes[row] = len(data) - len(inner.original)
                break
    found = sizes >= 0
    return span.skip(sizes).pick(found)


def libpcap() -> Any:
    """The module of scapy that declares libpcap's functions and structures to ctypes, as each system has them.

    Raises ImportError without scapy, OSError without libpcap.
    """
    from scapy.libs import winpcapy  # named after the first system that it was for

    return winpcapy
