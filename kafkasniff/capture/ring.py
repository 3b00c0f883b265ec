"""Ring: packets from a Linux packet socket through memory shared with the kernel (TPACKET_V3).

Source: Linux's Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h. The kernel fills blocks of
packets and hands each over when it is full or old enough; a block is copied out and given back at once.
"""

from __future__ import annotations

import errno
import mmap
import socket
import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RETIRE_MS", "Block", "Ring"]

RETIRE_MS: Final = 50
"""Milliseconds after which the kernel hands over a block that is not full."""

BLOCK_COUNT: Final = 64
"""A block with a single packet is handed over too: so many times `RETIRE_MS` may pass without a look at the ring, which
on a busy machine takes longer than it seems, before packets are lost, however few they are."""

BLOCK_SIZES: Final = (1 << 20, 256 << 10)
"""Bytes of a block; smaller ones where the machine lacks the memory. A packet must fit into one."""

FRAME_SIZE: Final = 2048
"""Has no effect on blocks of packets of any size, but must divide a block."""

SOL_PACKET: Final = 263
PACKET_RX_RING: Final = 5
PACKET_STATISTICS: Final = 6
PACKET_VERSION: Final = 10
TPACKET_V3: Final = 2

STATUS_AT: Final = 8
"""Offset in a block of: status, number of packets, offset of the first packet, bytes used."""
STATUS_USER: Final = 1

HEADER: Final = np.dtype(
    {
        # struct tpacket3_hdr, then struct sockaddr_ll
        "names": ["seconds", "nanoseconds", "captured", "wire", "link_at", "protocol", "interface", "hardware", "kind"],
        "formats": ["=u4", "=u4", "=u4", "=u4", "=u2", ">u2", "=i4", "=u2", "u1"],
        "offsets": [4, 8, 12, 16, 24, 50, 52, 56, 58],
        "itemsize": 60,
    }
)


class Block(NamedTuple):
    """The packets of a block, one row each."""

    buffer: bytes
    start: NDArray[np.int64]
    captured: NDArray[np.int64]
    wire: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    protocol: NDArray[np.uint16]
    """Ethernet type."""
    hardware: NDArray[np.uint16]
    """Type of the interface (ARPHRD_)."""
    kind: NDArray[np.uint8]
    """PACKET_HOST, PACKET_OUTGOING …"""


class Ring:
    """The blocks shared with the kernel. Raises OSError where the kernel gives none."""

    def __init__(self, owner: socket.socket) -> None:
        self._socket = owner
        owner.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        for size in BLOCK_SIZES:
            try:
                request = struct.pack(
                    "=7I", size, BLOCK_COUNT, FRAME_SIZE, size // FRAME_SIZE * BLOCK_COUNT, RETIRE_MS, 0, 0
                )
                owner.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
                break
            except OSError as error:
                if error.errno != errno.ENOMEM or size == BLOCK_SIZES[-1]:
                    raise
        self._size = size
        self._memory = mmap.mmap(owner.fileno(), size * BLOCK_COUNT, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._next = 0

    def take(self) -> Block | None:
        """The next block that the kernel has handed over; None where there is none yet."""
        base = self._next * self._size
        status, count, first, used = struct.unpack_from("=4I", self._memory, base + STATUS_AT)
        if not status & STATUS_USER:
            return None
        data = self._memory[base : base + used]
        struct.pack_into("=I", self._memory, base + STATUS_AT, 0)
        self._next = (self._next + 1) % BLOCK_COUNT
        offsets: list[int] = []
        place = first
        step = struct.Struct("=I").unpack_from
        for _ in range(count):
            offsets.append(place)
            place += step(data, place)[0]
        places = np.array(offsets, np.int64)
        if not count:
            heads = np.empty(0, HEADER)
        else:
            heads = np.ndarray((len(data) - HEADER.itemsize + 1,), f"V{HEADER.itemsize}", data, strides=(1,))[places]
            heads = heads.view(HEADER)
        return Block(
            data,
            places + heads["link_at"],
            heads["captured"].astype(np.int64),
            heads["wire"].astype(np.int64),
            heads["seconds"].astype(np.int64) * 1_000_000_000 + heads["nanoseconds"],
            heads["protocol"].astype(np.uint16),
            heads["hardware"].copy(),
            heads["kind"].copy(),
        )

    def statistics(self) -> tuple[int, int]:
        """(packets, drops) since the last call; packets include the dropped ones."""
        packets, drops, _ = struct.unpack("=3I", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        return packets, drops

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
