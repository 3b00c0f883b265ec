"""Whole rows of structured arrays.

numpy copies, concatenates and indexes such arrays field by field, which takes up to a hundred times as long as copying
their bytes. Only `take` and `compress` do not; this module has the rest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray


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
