"""Time and memory of one input, held against bounds in proportion to its length."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["ExcessError", "watched"]

SECONDS: Final = 4.0
"""CPU seconds that any input may take: first uses compile decoders, and instrumented code is several times slower."""
SECONDS_PER_BYTE: Final = 200e-6
BYTES_PER_BYTE: Final = 4096
"""Memory in proportion to the input: a byte of it may become a dict or two."""

_UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Of `ru_maxrss`, in bytes."""


class ExcessError(AssertionError):
    """An input took time or memory out of proportion to its length."""


def _peak() -> int:
    """Bytes that the process had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def watched(one_input: Callable[[bytes], None], megabytes: int) -> Callable[[bytes], None]:
    """`one_input` that raises ExcessError where an input takes too much.

    What is looked at is cheap enough for every input: CPU time, which others on the machine do not add to, and the
    highest memory of the process, which an input that fits below what others took before does not raise.
    """

    def watching(data: bytes) -> None:
        peak = _peak()
        allowed = SECONDS + SECONDS_PER_BYTE * len(data)
        taken = _seconds(one_input, data)
        grown = _peak() - peak
        if grown > (megabytes << 20) + BYTES_PER_BYTE * len(data):
            raise ExcessError(f"{grown >> 20} MB more for an input of {len(data)} bytes")
        if taken > allowed:
            # What is made once, on first use, counts for no input.
            again = _seconds(one_input, data)
            if again > allowed:
                raise ExcessError(f"{again:.1f} s of CPU time for an input of {len(data)} bytes")

    return watching


def _seconds(one_input: Callable[[bytes], None], data: bytes) -> float:
    begin = time.process_time()
    one_input(data)
    return time.process_time() - begin
