"""Frames: packets as received by an interface, with headers restored that the kernel keeps separately.

The kernel removes the first VLAN tag from a packet, and delivers packets of all interfaces together without link
headers. The engine needs neither, but a file with the original packets does.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import RawPackets
from kafkasniff.capture.live.ring import HEADER

__all__ = ["COOKED_SIZE", "FRONT_SIZE", "Frames"]

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
