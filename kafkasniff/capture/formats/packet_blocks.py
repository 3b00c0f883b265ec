"""Packet blocks of pcapng (enhanced, obsolete, simple) as columns."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.options import options

__all__ = ["ENHANCED", "FIXED", "OBSOLETE", "SIMPLE", "PacketBlocks", "read_blocks"]

OBSOLETE: Final = 2
SIMPLE: Final = 3
ENHANCED: Final = 6

FIXED: Final = {ENHANCED: 28, OBSOLETE: 28, SIMPLE: 12}
"""Bytes before the packet, per type of block; padding, options and the length again follow it."""

FLAGS: Final = 2
DROP_COUNT: Final = 4
UNKNOWN_DROPS: Final = 0xFFFF
"""In an obsolete packet block: the number of drops is unknown."""


class PacketBlocks(msgspec.Struct, frozen=True):
    """One row per block."""

    start: NDArray[np.int64]
    """Offset of the packet in the data."""
    timed: NDArray[np.bool_]
    """The block has a time stamp (simple ones have none)."""
    interface: NDArray[np.int64]
    """Number of the interface in the section."""
    ticks: NDArray[np.uint64]
    captured: NDArray[np.int64]
    wire: NDArray[np.int64]
    fcs: NDArray[np.int64]
    """Bytes of frame check sequence according to the block's flags, 0: unknown."""
    drops: NDArray[np.int64]
    """Packets lost between the previous packet and this one, according to the block."""


def _gather(data: bytes, places: NDArray[np.int64], size: int, dtype: str) -> NDArray[Any]:
    """`size` bytes at each place (all within the data) as rows of items of `dtype`."""
    rows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))[places]
    return rows.view(dtype).reshape(len(places), -1)


def read_blocks(data: bytes, places: NDArray[np.int64], order: str, snaplen: int) -> tuple[PacketBlocks, int | None]:
    """Columns of the whole packet blocks at `places` up to the first corrupt one, and the index of that one, if any.

    `order` is the section's byte order, `snaplen` that of its first interface (0: no limit), which cuts simple packets.
    """
    heads = _gather(data, places, 12, order + "u4")
    kind = heads[:, 0]
    length = heads[:, 1].astype(np.int64)
    trailer = _gather(data, places + length - 4, 4, order + "u4")[:, 0]
    count = len(places)
    simple = kind == SIMPLE
    fixed = np.where(simple, 12, 28)
    interface = heads[:, 2].astype(np.int64)
    ticks = np.zeros(count, np.uint64)
    drops = np.zeros(count, np.int64)
    wire = heads[:, 2].astype(np.int64)
    captured = np.minimum(wire, length - 16)
    if snaplen:
        captured = np.minimum(captured, snaplen)
    if simple.all():
        interface = np.zeros(count, np.int64)
    else:
        full = slice(None) if not simple.any() else np.flatnonzero(~simple)
        fields = _gather(data, places[full] + 12, 16, order + "u4")
        ticks[full] = (fields[:, 0].astype(np.uint64) << np.uint64(32)) | fields[:, 1]
        captured[full] = fields[:, 2]
        wire[full] = fields[:, 3]
        interface[simple] = 0
        obsolete = np.flatnonzero(kind == OBSOLETE)
        if len(obsolete):
            halves = _gather(data, places[obsolete] + 8, 4, order + "u2").astype(np.int64)
            interface[obsolete] = halves[:, 0]
            drops[obsolete] = np.where(halves[:, 1] == UNKNOWN_DROPS, 0, halves[:, 1])
    bad = (trailer != length) | (captured > length - fixed - 4)
    first_bad = None
    if bad.any():
        first_bad = int(np.argmax(bad))
        kept = slice(0, first_bad)
        places, length, fixed, simple = places[kept], length[kept], fixed[kept], simple[kept]
        interface, ticks, drops = interface[kept], ticks[kept], drops[kept]
        captured, wire = captured[kept], wire[kept]
    start = places + fixed
    fcs = np.zeros(len(places), np.int64)
    begin = start + ((captured + 3) & ~3)
    end = places + length - 4
    known = np.flatnonzero((end - begin >= 4) & ~simple)
    if len(known):
        fcs[known], more = _options(data, order, begin[known], end[known])
        drops[known] += more
    blocks = PacketBlocks(start, ~simple, interface, ticks, captured, np.maximum(wire, captured), fcs, drops)
    return blocks, first_bad


def _options(
    data: bytes, order: str, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(frame check sequence's size, drops) in the options at data[begin:end], four bytes or more; 0: unknown."""
    fcs = np.zeros(len(begin), np.int64)
    drops = np.zeros(len(begin), np.int64)
    first = _gather(data, begin, 4, order + "u2")
    # The common case, read by columns: only the flags.
    only_flags = (first[:, 0] == FLAGS) & (first[:, 1] == 4) & ((end - begin == 8) | (end - begin == 12))
    if only_flags.any():
        fcs[only_flags] = (_gather(data, begin[only_flags] + 4, 4, order + "u4")[:, 0] >> 5) & 0xF
    for row in np.flatnonzero(~only_flags & (first[:, 0] != 0)).tolist():
        for code, value in options(data, int(begin[row]), int(end[row]), order):
            if code == FLAGS and len(value) == 4:
                fcs[row] = (struct.unpack(order + "I", value)[0] >> 5) & 0xF
            elif code == DROP_COUNT and len(value) == 8:
                drops[row] = min(struct.unpack(order + "Q", value)[0], 2**62)
    return fcs, drops
