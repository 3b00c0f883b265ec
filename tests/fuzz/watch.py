"""Time and memory of one input, compared with bounds in proportion to its length."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 4.0
"""CPU seconds that any input may take: first uses compile decoders, and instrumented code is several times slower."""
SECONDS_PER_BYTE: Final = 200e-6
BYTES_PER_BYTE: Final = 4096
"""Memory in proportion to the input: a byte of it may become a dict or two."""

_UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Unit of `ru_maxrss`, in bytes."""


class ExcessError(AssertionError):
    """An input took time or memory out of proportion to its length."""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def watched(take: Callable[[bytes], None], megabytes: int) -> Callable[[bytes], None]:
    """`take` that raises ExcessError if an input costs too much.

    The measurements are cheap enough for every input: CPU time, to which other processes do not add, and the peak
    memory of the process, which an input below an earlier peak does not raise.
    """

    def watching(data: bytes) -> None:
        peak = _peak()
        allowed = SECONDS + SECONDS_PER_BYTE * len(data)
        taken = _seconds(take, data)
        grown = _peak() - peak
        if grown > (megabytes << 20) + BYTES_PER_BYTE * len(data):
            raise ExcessError(f"{grown >> 20} MB more for an input of {len(data)} bytes")
        # Work that is done once, on first use, counts for no input.
        if taken > allowed and (again := _seconds(take, data)) > allowed:
            raise ExcessError(f"{again:.1f} s of CPU time for an input of {len(data)} bytes")

    return watching


def _seconds(take: Callable[[bytes], None], data: bytes) -> float:
    begin = time.process_time()
    take(data)
    return time.process_time() - begin
