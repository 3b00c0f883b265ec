"""Headers of packets to columns, by the kernel (`kernel/headers.zig`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.library import Kernel
from kafkasniff.packets import COLUMNS

__all__ = ["FROM_HEADERS", "read_headers"]

FROM_HEADERS: Final = tuple(name for name in COLUMNS if name not in {"order", "capture", "number", "time_ns"})
"""The columns that headers yield; the others come from what a capture says of each packet."""

_GIVEN: Final = {"start": np.int64, "captured": np.int64, "wire": np.int64, "link": np.int32}


class _Packets(ctypes.Structure):
    """`Packets` of `kernel/headers.zig`."""

    _fields_ = (
        ("buffer", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in _GIVEN),
        ("count", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("rows", *FROM_HEADERS, "left")),
        ("found", ctypes.c_uint64),
        ("left_found", ctypes.c_uint64),
    )


def read_headers(
    kernel: Kernel, buffer: bytes, packets: Sequence[NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Columns of the TCP packets that the kernel reads, with their `rows`; and the rows of all other packets.

    `packets`: the columns `start`, `captured`, `wire` and `link` of `RawPackets`.
    """
    count = len(packets[0])
    columns: dict[str, NDArray[Any]] = {"rows": np.empty(count, np.int64)}
    columns |= {name: np.empty(count, COLUMNS[name]) for name in FROM_HEADERS}
    left = np.empty(count, np.int64)
    # Contiguous ones are used as they are; they have to live until the call is over.
    given = [np.ascontiguousarray(column, kind) for column, kind in zip(packets, _GIVEN.values(), strict=True)]
    call = _Packets(buffer, len(buffer), *(column.ctypes.data for column in given), count)
    for name, column in (*columns.items(), ("left", left)):
        setattr(call, name, column.ctypes.data)
    kernel.headers(ctypes.addressof(call))
    found, left_found = call.found, call.left_found
    if found < count:
        columns = {name: column[:found] for name, column in columns.items()}
    return columns, left[:left_found]
