"""TCP headers by columns: the rows of a `PacketBatch`."""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.link.walk import LayerSpan, LinkWalk

__all__ = ["Addresses", "tcp"]

TCP: Final = np.dtype(
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
    enough = span.end - span.at >= TCP.itemsize
    if not enough.all():
        walk.need(span, TCP.itemsize)  # counts the others
        span, addresses = span.pick(enough), addresses.pick(enough)
    heads = walk.records(span.at, TCP)
    size = (heads["size"] >> 4).astype(np.int64) * 4
    payload = span.at + size
    wire = span.wire_end - payload
    bad = (size < TCP.itemsize) | (wire < 0)
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
