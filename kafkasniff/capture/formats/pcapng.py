"""Parser of the pcapng format: several sections and interfaces, all packet blocks, names, secrets and drop counters.

Source: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.file_parser import FileParser
from kafkasniff.capture.formats.options import name_records, options
from kafkasniff.capture.formats.packet_blocks import FIXED, PacketBlocks, read_blocks
from kafkasniff.capture.formats.raw import UNDESCRIBED_LINK, Interface, RawPackets
from kafkasniff.capture.formats.resync import IMPLAUSIBLE, UNFINISHED
from kafkasniff.capture.formats.ticks import nanoseconds
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.native.headers import find_blocks
from kafkasniff.native.library import kernel

__all__ = ["HEADER_SIZE", "PcapngParser", "PcapngState", "byte_order", "is_pcapng"]

HEADER_SIZE: Final = 12
"""Bytes of a section header block that show the byte order."""

SECTION: Final = 0x0A0D0D0A
INTERFACE: Final = 1
NAMES: Final = 4
STATISTICS: Final = 5
SECRETS: Final = 10
OTHER_BLOCKS: Final = frozenset((SECTION, INTERFACE, NAMES, STATISTICS, SECRETS))
CUSTOM_BLOCKS: Final = frozenset((0x0BAD, 0x4000_0BAD))

BOUNDARIES: Final = np.array(sorted({*FIXED, *OTHER_BLOCKS, *CUSTOM_BLOCKS}), np.uint32)
"""Types of blocks that a search recognises after a corrupt place."""

TLS_KEY_LOG: Final = 0x544C534B
"""Type of secrets that are lines of an NSS key log."""

LARGEST_BLOCK: Final = 16 << 20
"""Maximum size of a block in bytes; a longer one is considered corrupt (as in Wireshark)."""

MAX_INTERFACES: Final = 1 << 16
"""Maximum number of distinct interfaces of one capture, so that hostile input cannot request unlimited memory."""

NAME_OPTION: Final = 2
RESOLUTION_OPTION: Final = 9
FCS_OPTION: Final = 13
OFFSET_OPTION: Final = 14
INTERFACE_DROPS: Final = 5
SYSTEM_DROPS: Final = 7


def is_pcapng(head: bytes) -> bool:
    """Whether a file that begins with these bytes (4 suffice) is pcapng."""
    return head[:4] == b"\x0a\x0d\x0d\x0a"


def byte_order(head: bytes, position: int = 0) -> str | None:
    """The order, "<" or ">", of the section whose header block begins at `position`; None: no such magic number."""
    return {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(head[position + 8 : position + 12])


class PcapngState(msgspec.Struct, frozen=True, omit_defaults=True, tag="pcapng"):
    """The state of a parser, so that another one can continue."""

    order: str
    packets: int = 0
    interfaces: tuple[Interface, ...] = ()
    described: tuple[int, ...] = ()
    undescribed: dict[int, int] = {}
    drops: dict[int, int] = {}
    lost_at: int | None = None
    found_at: int = 0


class PcapngParser(FileParser):
    """Packets and notes of one pcapng file, from pieces of it."""

    noun = "block"
    before_first = None

    def __init__(self, header: bytes, name: str, capture: int) -> None:
        super().__init__(name, capture, HEADER_SIZE)
        self._kernel = kernel()
        self._order = byte_order(header) or "<"
        self._described: list[int] = []
        """Index in `interfaces` of each interface that the section describes."""
        self._undescribed: dict[int, int] = {}
        """Index in `interfaces` of each interface that packets of the section name but no block describes."""
        self._drops: dict[int, int] = {}
        """Drops of the section reported so far, per interface."""

    @property
    def state(self) -> PcapngState:
        """Its position between two calls of `parse`."""
        return PcapngState(
            self._order,
            self.packets,
            tuple(self.interfaces),
            tuple(self._described),
            dict(self._undescribed),
            dict(self._drops),
            self._lost_at,
            self.found_at,
        )

    @classmethod
    def resumed(cls, state: PcapngState, name: str, capture: int) -> Self:
        """A parser that continues from another one's state."""
        parser = cls(b"", name, capture)
        parser._order = state.order
        parser.packets, parser.found_at, parser._lost_at = state.packets, state.found_at, state.lost_at
        parser.interfaces, parser._described = list(state.interfaces), list(state.described)
        parser._undescribed, parser._drops = dict(state.undescribed), dict(state.drops)
        return parser

    def _scan(self, data: bytes, position: int, end: int, *, ended: bool) -> tuple[int, int]:
        del ended
        waiting: list[NDArray[np.int64]] = []
        need = 0
        while True:
            starts, position = find_blocks(self._kernel, data, position, end, LARGEST_BLOCK, big=self._order == ">")
            waiting.append(starts)
            if position + 12 > end:
                need = 12
                break
            kind, length = struct.unpack_from(self._order + "II", data, position)
            if kind == SECTION:
                order = byte_order(data, position)
                if order is None:
                    break
                (length,) = struct.unpack_from(order + "I", data, position + 4)
            if length & 3 or not 12 <= length <= LARGEST_BLOCK:
                break
            after = position + length
            if after > end:
                need = length
                break
            # The kernel takes packets, unless they are too short.
            if kind in FIXED or data[position + 4 : position + 8] != data[after - 4 : after]:
                break
            if kind in OTHER_BLOCKS:
                # It applies to what follows, so the packets before it come first.
                bad = self._take(data, waiting)
                if bad is not None:
                    return bad, 0
                waiting = []
                if kind == SECTION:
                    self._order = byte_order(data, position) or self._order
                    self._described, self._undescribed, self._drops = [], {}, {}
                else:
                    self._other(data, kind, position + 8, after - 4)
            position = after
        bad = self._take(data, waiting)
        return (position, need) if bad is None else (bad, 0)

    def _take(self, data: bytes, waiting: list[NDArray[np.int64]]) -> int | None:
        """Packet blocks at these positions, as columns; returns the position of the first corrupt one, if any."""
        starts = np.concatenate([*waiting, np.zeros(0, np.int64)])
        if not len(starts):
            return None
        snaplen = self.interfaces[self._described[0]].snaplen if self._described else 0
        blocks, bad = read_blocks(data, starts, self._order, snaplen)
        if len(blocks.start):
            self._add(data, blocks)
        return None if bad is None else int(starts[bad])

    def _add(self, data: bytes, blocks: PacketBlocks) -> None:
        time_ns = np.full(len(blocks.start), NO_TIME, np.int64)
        link = np.empty(len(blocks.start), np.int32)
        index = np.empty(len(blocks.start), np.int32)
        fcs = blocks.fcs
        for number in np.unique(blocks.interface).tolist():
            rows = np.flatnonzero(blocks.interface == number)
            place = self._interface(number)
            interface = self.interfaces[place]
            time_ns[rows] = nanoseconds(blocks.ticks[rows], interface)
            link[rows] = interface.link
            index[rows] = place
            if interface.fcs:
                fcs[rows] = np.where(fcs[rows] == 0, interface.fcs, fcs[rows])
        time_ns[~blocks.timed] = NO_TIME
        for row in np.flatnonzero(blocks.drops).tolist():
            count = int(blocks.drops[row])
            number = self.packets + row + 1
            text = f"{self._name}: {count} packets were lost before packet {number} during the capture"
            self._notes.append((number, Problem("capture-loss", text, capture=self._name, packet=number)))
        packets = RawPackets.build(
            data,
            blocks.start,
            blocks.captured,
            blocks.wire,
            time_ns,
            link=link,
            interface=index,
            fcs=fcs if fcs.any() else 0,
            capture=self._capture,
            first_number=self.packets + 1,
        )
        self._parts.append(packets)
        self.packets += len(packets.start)

    def _interface(self, number: int) -> int:
        """Index in `interfaces` of the section's interface with this number."""
        if number < len(self._described):
            return self._described[number]
        if number not in self._undescribed and len(self.interfaces) < MAX_INTERFACES:
            self._undescribed[number] = len(self.interfaces)
            self.interfaces.append(Interface(UNDESCRIBED_LINK, number))
        return self._undescribed.get(number, len(self.interfaces) - 1)

    def _other(self, data: bytes, kind: int, position: int, end: int) -> None:
        """A block that is neither a packet nor a section header; its body is data[position:end]."""
        order = self._order
        if kind == INTERFACE and end - position >= 8 and len(self.interfaces) < MAX_INTERFACES:
            self._described.append(len(self.interfaces))
            self.interfaces.append(_interface(data, position, end, order, len(self._described) - 1))
        elif kind == NAMES:
            self._notes.extend((self.packets + 1, pair) for pair in name_records(data, position, end, order))
        elif kind == SECRETS and end - position >= 8:
            secrets, size = struct.unpack_from(order + "II", data, position)
            if secrets == TLS_KEY_LOG:
                self._notes.append((self.packets + 1, data[position + 8 : min(position + 8 + size, end)]))
        elif kind == STATISTICS and end - position >= 12:
            (number,) = struct.unpack_from(order + "I", data, position)
            drops = 0
            for code, value in options(data, position + 12, end, order):
                if code in {INTERFACE_DROPS, SYSTEM_DROPS} and len(value) == 8:
                    drops += struct.unpack(order + "Q", value)[0]
            new = drops - self._drops.get(number, 0)
            if new > 0 and (number in self._drops or len(self._drops) < MAX_INTERFACES):
                # Counters run since the start of the capture: a later block repeats the earlier drops.
                self._drops[number] = drops
                name = self._interface_name(number)
                self._problem("capture-loss", f"{new} packets of interface {name} were lost during the capture")

    def _interface_name(self, number: int) -> str:
        name = self.interfaces[self._described[number]].name if number < len(self._described) else None
        return f"{number} ({name})" if name else str(number)

    def _candidates(self, data: bytes, first: int, last: int) -> NDArray[np.int64]:
        """Positions in [first, last) whose bytes look like the start of a block."""
        count = last - first
        u4 = self._order + "u4"
        kinds = np.ndarray((count,), u4, data, offset=first, strides=(1,)).astype(np.uint32)
        likely = np.flatnonzero(kinds <= BOUNDARIES[BOUNDARIES < 0x100].max())
        likely = np.concatenate((likely, np.flatnonzero(np.isin(kinds, BOUNDARIES[BOUNDARIES >= 0x100]))))
        likely = np.sort(likely[np.isin(kinds[likely], BOUNDARIES)])
        return likely.astype(np.int64) + first

    def _step(self, data: bytes, position: int, first: int) -> int:
        """The block at a position, as `resync.Step`."""
        del first  # a chain of blocks needs no other proof than their lengths, each of which occurs twice
        if position + 12 > len(data):
            return UNFINISHED
        order: str | None = self._order
        kind, length = struct.unpack_from(self._order + "II", data, position)
        if kind == SECTION:
            order = byte_order(data, position)
            if order is None:
                return IMPLAUSIBLE
            (length,) = struct.unpack_from(order + "I", data, position + 4)
        if kind not in BOUNDARIES or length & 3 or not 12 <= length <= LARGEST_BLOCK:
            return IMPLAUSIBLE
        after = int(position + length)
        if after <= len(data) and data[position + 4 : position + 8] != data[after - 4 : after]:
            return IMPLAUSIBLE
        return after


def _interface(data: bytes, position: int, end: int, order: str, number: int) -> Interface:
    """An interface description block's body."""
    link, _, snaplen = struct.unpack_from(order + "HHI", data, position)
    name: str | None = None
    base, exponent, offset, fcs = 10, 6, 0, 0
    for code, value in options(data, position + 8, end, order):
        if code == NAME_OPTION:
            name = value.decode("utf-8", "replace").rstrip("\0") or None
        elif code == RESOLUTION_OPTION and len(value) == 1:
            base, exponent = (2 if value[0] & 0x80 else 10), value[0] & 0x7F
        elif code == OFFSET_OPTION and len(value) == 8:
            (offset,) = struct.unpack(order + "q", value)
        elif code == FCS_OPTION and len(value) == 1:
            # Bytes in practice, bits in older drafts.
            fcs = value[0] if value[0] < 16 else value[0] // 8
    return Interface(link, number, name, snaplen, fcs, base, exponent, offset)
