"""Time stamps of pcapng as nanoseconds: if_tsresol in powers of 10 and 2, if_tsoffset."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import Interface

__all__ = ["nanoseconds"]

GIGA: Final = 1_000_000_000

FRACTION_BITS: Final = 30
"""Significant bits of a binary fraction: 2**-30 s is about a nanosecond, and 30 bits times 10**9 fit into 64."""


def nanoseconds(ticks: NDArray[np.uint64], interface: Interface) -> NDArray[np.int64]:
    """Time stamps in the interface's unit as nanoseconds since the epoch, rounded down.

    Time stamps that 64 bits of nanoseconds cannot hold (after the year 2262) wrap around: they are garbage anyway.
    """
    exponent = interface.ticks_exponent
    if interface.ticks_base == 2:
        bits = np.uint64(min(exponent, 63))
        whole = ticks >> bits
        fraction = ticks & ((np.uint64(1) << bits) - np.uint64(1))
        if exponent > FRACTION_BITS:
            fraction >>= bits - np.uint64(FRACTION_BITS)
            bits = np.uint64(FRACTION_BITS)
        value = whole * np.uint64(GIGA) + ((fraction * np.uint64(GIGA)) >> bits)
    elif exponent <= 9:
        value = ticks * np.uint64(10 ** (9 - exponent))
    elif exponent < 29:
        value = ticks // np.uint64(10 ** (exponent - 9))
    else:
        value = np.zeros_like(ticks)  # units so small that 64 bits of them are less than a nanosecond
    offset = (interface.offset_seconds * GIGA + 2**63) % 2**64 - 2**63
    return value.astype(np.int64) + np.int64(offset)
