"""TCP headers within their packets, and what their checksums cover besides, by columns (RFC 9293, 3.1; RFC 1071)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.packets import PacketBatch

__all__ = ["header_starts", "pseudo_sums"]

_TCP: Final = 6
_SIZES: Final = range(20, 64, 4)
"""Maximum size of a TCP header in bytes."""


def header_starts(batch: PacketBatch, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets in the buffer of the TCP headers of these rows, all of which have captured payload; -1: not found.

    A header contains its length, which counts back from the payload; its other fields must match the row.
    """
    found = np.full(len(rows), -1, np.int64)
    buffer = np.frombuffer(batch.buffer, np.uint8)
    offset = batch.offset[rows]
    wanted = np.zeros(len(rows), [("src", ">u2"), ("dst", ">u2"), ("seq", ">u4"), ("ack", ">u4")])
    wanted["src"], wanted["dst"] = batch.src_port[rows], batch.dst_port[rows]
    wanted["seq"], wanted["ack"] = batch.seq[rows], batch.ack[rows]
    heads = wanted.view(np.uint8).reshape(len(rows), wanted.itemsize)
    for size in _SIZES:
        at = offset - size
        likely = np.flatnonzero((at >= 0) & (found < 0))
        likely = likely[buffer[at[likely] + 12] >> 4 == size // 4]
        if len(likely):
            there = buffer[at[likely][:, None] + np.arange(wanted.itemsize)]
            likely = likely[(there == heads[likely]).all(axis=1)]
            found[likely] = at[likely]
    return found


def pseudo_sums(batch: PacketBatch, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of what the checksums of these rows cover besides header and payload; `sizes`: bytes of both on the wire.

    An IPv4 address follows 0xffff here, which makes no difference to a sum modulo 65,535.
    """
    total = sizes % 65_536 + (sizes >> 16) + _TCP
    for column in (batch.src_hi, batch.src_lo, batch.dst_hi, batch.dst_lo):
        value = column[rows]
        for shift in (0, 16, 32, 48):
            total = total + ((value >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    return total
