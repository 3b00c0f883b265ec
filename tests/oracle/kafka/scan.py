"""Positions in bytes at which a frame could begin, found for all bytes at once.

A scan only rules out impossible positions: the rest is judged by its caller (search.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.messages.plausibility import highest_versions

REQUEST_HEAD: Final = 14
"""Bytes of a request that are checked: size, api key, api version, correlation id, length of the client id."""
RESPONSE_HEAD: Final = 8
"""Bytes of a response that callers check: size, correlation id."""
SMALLEST_RESPONSE: Final = 6
"""A correlation id and an error code: Heartbeat v0."""


def scan_requests(data: bytes, max_size: int) -> NDArray[np.intp]:
    """Ascending positions at which REQUEST_HEAD bytes or more look like a request's; `data` has at least as many."""
    raw = np.frombuffer(data, dtype=np.uint8)
    count = len(raw) - REQUEST_HEAD + 1
    key = _uint16(raw, 4, count)
    version = _uint16(raw, 6, count)
    size = _size(raw, count)
    client_id = _uint16(raw, 12, count)
    limits = highest_versions()
    good = (size >= 8) & (size <= max_size) & (key < len(limits))
    good &= version <= limits[np.minimum(key, len(limits) - 1)]
    good &= (client_id == 0xFFFF) | (client_id.astype(np.int64) + 10 <= size)
    return np.flatnonzero(good)


def scan_responses(data: bytes, max_size: int) -> NDArray[np.intp]:
    """Ascending positions at which a response's size may be, with RESPONSE_HEAD bytes; `data` has at least as many."""
    raw = np.frombuffer(data, dtype=np.uint8)
    size = _size(raw, len(raw) - RESPONSE_HEAD + 1)
    return np.flatnonzero((size >= SMALLEST_RESPONSE) & (size <= max_size))


def _size(raw: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    size: NDArray[np.int64] = (_uint16(raw, 0, count).astype(np.int64) << 16) | _uint16(raw, 2, count)
    return size


def _uint16(raw: NDArray[np.uint8], at: int, count: int) -> NDArray[np.uint16]:
    high: NDArray[np.uint16] = raw[at : at + count].astype(np.uint16)
    return (high << np.uint16(8)) | raw[at + 1 : at + 1 + count]
