"""Regular messages as rows of structured arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

# -- whole rows --------------------------------------------------------------------------------------------------------
#
# numpy copies, concatenates and indexes structured arrays field by field, which takes up to a hundred times as long as
# copying their bytes. Only `take` and `compress` do not; the rest is here.


def copied(rows: NDArray[np.void]) -> NDArray[np.void]:
    """A copy of contiguous rows."""
    return _opaque(rows).copy().view(rows.dtype)


def grown(rows: NDArray[np.void], index: int, least: int) -> NDArray[np.void]:
    """The rows themselves if `index` is one of them, otherwise a copy with zeros after it: at least `least` rows."""
    if index < len(rows):
        return rows
    more = np.zeros(max(2 * index, least), rows.dtype)
    more[: len(rows)] = rows
    return more


def joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """The rows of one or more contiguous arrays of one type."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([_opaque(part) for part in parts]).view(parts[0].dtype)


def _opaque(rows: NDArray[np.void]) -> NDArray[np.void]:
    return rows.view(f"V{rows.dtype.itemsize}")


_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytes.restype = ctypes.py_object


def unfilled(size: int) -> bytes:
    """Uninitialized bytes for the kernel to fill (like C's `PyBytes_FromStringAndSize`)."""
    made: bytes = _new_bytes(None, size)
    return made


# -- messages (`kernel/feed_found.zig` has the same structure) ---------------------------------------------------------


KEYS: Final = 128
VERSIONS: Final = 32
"""Limits of API keys and versions that are looked up."""
NONE: Final = 0xFFFF_FFFF
"""No index."""
REQUEST: Final = 1
ARENA: Final = 2
TAGS: Final = 4
SILENT: Final = 8
ENDED: Final = 16
"""Flags of a message."""

MAX_FRAME: Final = 4 << 20
"""Maximum size of a regular message (`streams.MAX_REGULAR`)."""
MESSAGE: Final = np.dtype(
    [
        ("order", np.int64),
        ("start", np.uint64),
        *(
            (name, np.int64)
            for name in (
                "first_packet",
                "last_packet",
                "packet",
                "first_time",
                "time",
                "latency",
                "duration",
                "ordinal",
            )
        ),
        ("connection", np.uint32),
        ("size", np.uint32),
        ("pair", np.uint32),
        ("correlation", np.int32),
        ("body", np.uint32),
        ("code", np.uint16),
        ("client_id", np.int16),
        ("step", np.uint32),
        ("flags", np.uint8),
        ("mark", np.uint8),
        ("retransmits", np.uint16),
        ("position", np.int64),
        ("number", np.int64),
        ("behind", np.int64),
        ("muted", np.int64),
    ],
    align=True,
)
"""A message (`feed.Message`). `number`: of its exchange, 0 if it has none yet. The kernel leaves it and `mark` at 0."""
