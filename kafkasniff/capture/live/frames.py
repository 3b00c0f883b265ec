"""Packets as the kernel delivers them: the ring shared with it, headers that it keeps apart, several interfaces."""

from __future__ import annotations

import errno
import mmap
import socket
import struct
from collections.abc import Collection
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import RawPackets
from kafkasniff.model import NO_TIME
from kafkasniff.native.library import kernel

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

    def next_block(self) -> Block | None:
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


# Frames: packets as received by an interface, with headers restored that the kernel keeps separately.
#
# The kernel removes the first VLAN tag from a packet, and delivers packets of all interfaces together without link
# headers. The engine needs neither, but a file with the original packets does.

COOKED_SIZE: Final = 20
"""Bytes of a header of Linux cooked capture, version 2."""

FRONT_SIZE: Final = COOKED_SIZE + 4
"""Maximum number of bytes before a packet: that header and a tag."""

VLAN_VALID: Final = 1 << 4
VLAN_TYPE_VALID: Final = 1 << 6
"""TP_STATUS_ of a packet: it had a tag, of this Ethernet type (else of the usual one)."""

VLAN_TYPE: Final = 0x8100
ADDRESSES: Final = 12
"""Bytes of an Ethernet header before which no tag can be."""

COOKED: Final = np.dtype(
    {
        # LINKTYPE_LINUX_SLL2, followed by the tag's control information and the packet's own type
        "names": ["protocol", "interface", "hardware", "kind", "address_size", "address", "control", "inner"],
        "formats": [">u2", ">i4", ">u2", "u1", "u1", "V8", ">u2", ">u2"],
        "offsets": [0, 4, 8, 10, 11, 12, 20, 22],
        "itemsize": FRONT_SIZE,
    }
)
TAGGED: Final = np.dtype(
    {
        "names": ["addresses", "type", "control"],
        "formats": [f"V{ADDRESSES}", ">u2", ">u2"],
        "offsets": [0, ADDRESSES, ADDRESSES + 2],
        "itemsize": FRONT_SIZE,
    }
)


class Frames(NamedTuple):
    """Packets, one row each, and the bytes that precede each in a file."""

    packets: RawPackets
    front: NDArray[np.uint8]
    """One row of FRONT_SIZE bytes each."""
    front_size: NDArray[np.int64]
    """How many of these there are."""
    replaced: NDArray[np.int64]
    """Bytes at the packet's beginning that they replace."""

    @property
    def total(self) -> int:
        """How many packets there are."""
        return len(self.front)

    @classmethod
    def plain(cls, packets: RawPackets) -> Self:
        """Packets that need no additional bytes."""
        count = len(packets.start)
        nothing = np.zeros(count, np.int64)
        return cls(packets, np.zeros((count, FRONT_SIZE), np.uint8), nothing, nothing)

    @classmethod
    def ethernet(cls, packets: RawPackets, heads: NDArray[Any]) -> Self:
        """Ethernet packets; `heads` (HEADER) shows which had a tag."""
        frames = cls.plain(packets)
        rows = np.flatnonzero((heads["status"] & VLAN_VALID != 0) & (packets.captured >= ADDRESSES))
        if not len(rows):
            return frames
        front = np.zeros(len(rows), TAGGED)
        at = packets.start[rows]
        front["addresses"] = np.ndarray((len(packets.buffer) - ADDRESSES + 1,), "V12", packets.buffer, strides=(1,))[at]
        front["type"], front["control"] = _tag(heads[rows])
        frames.front[rows] = front.view(np.uint8).reshape(-1, FRONT_SIZE)
        size, replaced = frames.front_size, np.zeros(frames.total, np.int64)
        size[rows], replaced[rows] = ADDRESSES + 4, ADDRESSES
        return frames._replace(replaced=replaced)

    @classmethod
    def cooked(cls, packets: RawPackets, heads: NDArray[Any]) -> Self:
        """Packets that came without link headers; `heads` (HEADER) has their types."""
        front = np.zeros(len(heads), COOKED)
        for name in ("protocol", "interface", "hardware", "kind", "address_size", "address"):
            front[name] = heads[name]
        tagged = heads["status"] & VLAN_VALID != 0
        front["inner"] = heads["protocol"]
        kind, control = _tag(heads)
        front["control"] = control
        front["protocol"] = np.where(tagged, kind, heads["protocol"])
        size = np.where(tagged, FRONT_SIZE, COOKED_SIZE)
        return cls(packets, front.view(np.uint8).reshape(-1, FRONT_SIZE), size, np.zeros(len(heads), np.int64))

    def pick(self, rows: NDArray[Any]) -> Self:
        """Some of the packets, by row or by mask, over the same buffer."""
        columns: list[Any] = [column[rows] for column in self.packets[1:]]
        packets = RawPackets(self.packets.buffer, *columns)
        return type(self)(packets, self.front[rows], self.front_size[rows], self.replaced[rows])

    @classmethod
    def merge(cls, parts: list[Self], order: NDArray[np.int64] | None = None) -> Self:
        """Packets of all parts (none is empty) over one new buffer; `order`: as for `RawPackets.merge`."""
        if len(parts) == 1:
            return parts[0] if order is None else parts[0].pick(order)
        packets = RawPackets.merge([part.packets for part in parts], order)
        columns = (np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True))
        return cls(packets, *(columns if order is None else (column[order] for column in columns)))


def _tag(heads: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """(Ethernet type, control information) of the tags."""
    typed = heads["status"] & VLAN_TYPE_VALID != 0
    return np.where(typed, heads["vlan_type"], VLAN_TYPE), heads["vlan_control"]


assert HEADER["address"].itemsize == COOKED["address"].itemsize


# Several interfaces as one timeline.
#
# The kernel releases packets in blocks, each up to some time after its first packet; until then it is unknown which
# packets of another interface come first. So packets wait that time and are then ordered by their times. Within one
# interface the order stays that of capture, whatever its clock does.

MAX_PENDING: Final = 64 << 20
"""Maximum size in bytes of waiting packets; beyond it, the oldest are emitted although some interfaces were silent."""


class _Part(NamedTuple):
    frames: Frames
    keys: NDArray[np.int64]
    """The packet clock of its interface at each packet."""
    taken: float


class TimeMerge:
    """Frames of several captures in, in the kernel's order; out in order of time.

    `wait`: seconds after which all packets before a given one have arrived.
    """

    def __init__(self, captures: int, wait: float) -> None:
        self._wait = wait
        self._parts: list[_Part] = []
        self._clock = [NO_TIME] * captures
        self._pending = 0

    def add(self, frames: Frames, now: float) -> None:
        """Packets of one capture (at least one), taken at `now` (seconds, monotonic)."""
        capture = int(frames.packets.capture[0])
        keys = np.maximum.accumulate(np.maximum(frames.packets.time_ns, self._clock[capture]))
        self._clock[capture] = int(keys[-1])
        self._parts.append(_Part(frames, keys, now))
        self._pending += len(frames.packets.buffer)

    def due_in(self, now: float) -> float | None:
        """Seconds until something is due; None if nothing waits."""
        return None if not self._parts else max(0.0, self._parts[0].taken + self._wait - now)

    def due(self, now: float, unread: Collection[int] = ()) -> Frames | None:
        """The packets that can be emitted; `unread` are captures with more available data, to be read first."""
        waited = [part for part in self._parts if now - part.taken >= self._wait]
        if self._pending > MAX_PENDING and not waited:
            waited = self._parts[:1]
        if not waited:
            return None
        horizon = max(int(part.keys[-1]) for part in waited)
        if self._pending <= MAX_PENDING:
            horizon = min([horizon, *(self._clock[capture] for capture in unread)])
        return self._up_to(horizon)

    def rest(self) -> Frames | None:
        """All waiting packets."""
        return self._up_to(None)

    def _up_to(self, horizon: int | None) -> Frames | None:
        ready: list[_Part] = []
        left: list[_Part] = []
        for part in self._parts:
            count = len(part.keys) if horizon is None else int(np.searchsorted(part.keys, horizon, "right"))
            if count == len(part.keys):
                ready.append(part)
                continue
            if count:
                ready.append(part._replace(frames=part.frames.pick(np.arange(count)), keys=part.keys[:count]))
            rest = part.frames.pick(np.arange(count, len(part.keys))) if count else part.frames
            left.append(part._replace(frames=rest, keys=part.keys[count:]))
        self._parts = left
        self._pending = sum(len(part.frames.packets.buffer) for part in left)
        if not ready:
            return None
        keys = np.concatenate([part.keys for part in ready])
        return Frames.merge([part.frames for part in ready], np.argsort(keys, kind="stable"))
