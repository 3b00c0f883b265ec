"""Records of pcap files, packet blocks of pcapng files, and headers of packets, by the kernel.

See `kernel/pcap.zig` and `kernel/headers.zig`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.library import Kernel
from kafkasniff.packets import COLUMNS

FROM_HEADERS: Final = tuple(name for name in COLUMNS if name not in {"order", "capture", "number", "time_ns"})
"""The columns from headers; the others come from the capture's record of each packet."""

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


class _Records(ctypes.Structure):
    """`Records` of `kernel/pcap.zig`."""

    _fields_ = (
        ("data", ctypes.c_char_p),
        *((name, ctypes.c_uint64) for name in ("end", "position", "header", "longest", "big")),
        ("starts", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("room", "found", "corrupt")),
    )


class _Blocks(ctypes.Structure):
    """`Blocks` of `kernel/pcap.zig`."""

    _fields_ = (
        ("data", ctypes.c_char_p),
        *((name, ctypes.c_uint64) for name in ("end", "position", "longest", "big")),
        ("starts", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("room", "found")),
    )


def find_records(  # noqa: PLR0917 - what a pcap file is
    kernel: Kernel, data: bytes, position: int, end: int, header: int, longest: int, *, big: bool
) -> tuple[NDArray[np.int64], int, bool]:
    """The starts of the records of a pcap file in `data[position:end]`, as `PcapParser._starts` returns them.

    `header`: size of a record's header; `longest`: maximum captured length of a packet; `big`: big-endian numbers.
    """
    starts = np.empty((end - position) // header + 1, np.int64)
    call = _Records(data, end, position, header, longest, big, starts.ctypes.data, len(starts))
    kernel.pcap_records(ctypes.addressof(call))
    return starts[: call.found], call.position, bool(call.corrupt)


def find_blocks(
    kernel: Kernel, data: bytes, position: int, end: int, longest: int, *, big: bool
) -> tuple[NDArray[np.int64], int]:
    """The starts of the whole packet blocks at `position` of a pcapng file, and of what follows them.

    All of them are in `data[:end]`. `longest`: maximum size of a block; `big`: big-endian numbers.
    """
    # The smallest one is a simple packet block.
    starts = np.empty(max(end - position, 0) // 16 + 1, np.int64)
    call = _Blocks(data, end, position, longest, big, starts.ctypes.data, len(starts))
    kernel.pcapng_blocks(ctypes.addressof(call))
    return starts[: call.found], call.position


def read_headers(
    kernel: Kernel, buffer: bytes, packets: Sequence[NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Columns of the TCP packets that the kernel can parse, with their `rows`; and the rows of all other packets.

    `packets`: the columns `start`, `captured`, `wire` and `link` of `RawPackets`.
    """
    count = len(packets[0])
    columns: dict[str, NDArray[Any]] = {"rows": np.empty(count, np.int64)}
    columns |= {name: np.empty(count, COLUMNS[name]) for name in FROM_HEADERS}
    left = np.empty(count, np.int64)
    # Contiguous arrays are used without a copy; they have to live until the call returns.
    given = [np.ascontiguousarray(column, kind) for column, kind in zip(packets, _GIVEN.values(), strict=True)]
    call = _Packets(buffer, len(buffer), *(column.ctypes.data for column in given), count)
    for name, column in (*columns.items(), ("left", left)):
        setattr(call, name, column.ctypes.data)
    kernel.headers(ctypes.addressof(call))
    found, left_found = call.found, call.left_found
    if found < count:
        columns = {name: column[:found] for name, column in columns.items()}
    return columns, left[:left_found]
