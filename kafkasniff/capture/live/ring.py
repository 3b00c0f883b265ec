"""Ring: packets from a Linux packet socket through memory shared with the kernel (TPACKET_V3).

Source: Linux's Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h. The kernel fills blocks of
packets and releases each when it is full or old enough; a block is copied and returned immediately.
"""

from __future__ import annotations

import errno
import mmap
import socket
import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.library import kernel

__all__ = ["HEADER", "RETIRE_MS", "Block", "Ring", "blocks_of"]

RETIRE_MS: Final = 50
"""Milliseconds after which the kernel releases a block that is not full."""

BLOCK_COUNT: Final = 64
"""Number of blocks: a block with a single packet is released, too, so this many times `RETIRE_MS` may pass without
reading the ring before packets are lost, however few they are; on a busy machine that happens easily.
"""

BLOCK_SIZES: Final = (1 << 20, 256 << 10)
"""Size of a block in bytes; smaller if the machine lacks the memory. A packet must fit into one."""

MIN_BLOCK: Final = 128 << 10
"""Loopback's packets are of 64 KiB."""

FRAME_SIZE: Final = 2048
"""Has no effect on blocks of packets of any size, but must divide a block."""

LITTLE_PACKETS: Final = 1_000
LITTLE_BYTES: Final = 1 << 20
"""A smaller backlog in a ring is processed within some 50 ms."""

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
        "names": [
            "seconds",
            "nanoseconds",
            "captured",
            "wire",
            "status",
            "link_at",
            "vlan_control",
            "vlan_type",
            "protocol",
            "interface",
            "hardware",
            "kind",
            "address_size",
            "address",
        ],
        "formats": ["=u4"] * 5 + ["=u2", "=u4", "=u2", ">u2", "=i4", "=u2", "u1", "u1", "V8"],
        "offsets": [4, 8, 12, 16, 20, 24, 32, 36, 50, 52, 56, 58, 59, 60],
        "itemsize": 68,
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
    heads: NDArray[Any]
    """The kernel's data on each packet, as HEADER."""


def blocks_of(size: int) -> tuple[int, int]:
    """(bytes of a block, number of blocks) of a ring of `size` bytes, which is a multiple of a MiB."""
    block = MIN_BLOCK
    while block < BLOCK_SIZES[0] and block * BLOCK_COUNT < size:
        block *= 2
    return block, size // block


class Ring:
    """The blocks shared with the kernel; `size`: bytes of all of them, None: the usual size.

    Raises OSError if the kernel refuses.
    """

    def __init__(self, owner: socket.socket, size: int | None = None) -> None:
        self._socket = owner
        owner.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        # A requested size is used or refused; the default one may be reduced if the machine lacks the memory.
        forms = [(block, BLOCK_COUNT) for block in BLOCK_SIZES] if size is None else [blocks_of(size)]
        for block, count in forms:
            try:
                request = struct.pack("=7I", block, count, FRAME_SIZE, block // FRAME_SIZE * count, RETIRE_MS, 0, 0)
                owner.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
                break
            except OSError as error:
                if error.errno != errno.ENOMEM or (block, count) == forms[-1]:
                    raise
        self._size, self._count = block, count
        self._memory = mmap.mmap(owner.fileno(), block * count, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._next = 0

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self._count

    def take(self) -> Block | None:
        """The next block that the kernel has released; None if there is none yet."""
        base = self._next * self._size
        status, count, first, used = struct.unpack_from("=4I", self._memory, base + STATUS_AT)
        if not status & STATUS_USER:
            return None
        data = self._memory[base : base + used]
        struct.pack_into("=I", self._memory, base + STATUS_AT, 0)
        self._next = (self._next + 1) % self._count
        places = _places(data, first, count)
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
            heads,
        )

    def backlog(self) -> float:
        """Fraction of the blocks, 0 to 1, that were released but not taken yet; 0 if they contain little.

        After a delay in reading there may be many nearly empty blocks.
        """
        blocks = packets = size = 0
        while blocks < self._count:
            at = (self._next + blocks) % self._count * self._size + STATUS_AT
            status, count, _, used = struct.unpack_from("=4I", self._memory, at)
            if not status & STATUS_USER:
                break
            blocks += 1
            packets += count
            size += used
        little = min(LITTLE_BYTES, self._size * self._count // 4)
        return blocks / self._count if packets >= LITTLE_PACKETS or size >= little else 0.0

    def statistics(self) -> tuple[int, int]:
        """(packets, drops) since the last call; packets include the dropped ones."""
        packets, drops, _ = struct.unpack("=3I", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        return packets, drops

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()


def _places(data: bytes, first: int, count: int) -> NDArray[np.int64]:
    """The beginnings of a block's packets."""
    places = np.empty(count, np.int64)
    found: int = kernel().ring(data, len(data), first, HEADER.itemsize, places.ctypes.data, count)
    if found < count:
        raise ValueError(f"a block of {len(data)} bytes holds {found} of its {count} packets")
    return places
