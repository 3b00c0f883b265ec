"""Parser of the pcapng format: several sections and interfaces, all packet blocks, names, secrets and drop counters.

Source: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import IMPLAUSIBLE, UNDESCRIBED_LINK, UNFINISHED, FileParser, Interface, RawPackets
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.native.headers import find_blocks
from kafkasniff.native.library import kernel

# Time stamps: if_tsresol in powers of 10 and 2, if_tsoffset.

GIGA: Final = 1_000_000_000

FRACTION_BITS: Final = 30
"""Significant bits of a binary fraction: 2**-30 s is about a nanosecond, and 30 bits times 10**9 fit into 64."""


def nanoseconds(ticks: NDArray[np.uint64], interface: Interface) -> NDArray[np.int64]:
    """Time stamps in the interface's unit as nanoseconds since the epoch, rounded down.

    Time stamps that 64 bits of nanoseconds cannot hold (after the year 2262) wrap around: they are garbage anyway.
    """
    exponent = interface.ticks_exponent
    if interface.ticks_base == 2:
        bits = np.uint64(min(exponent, 63))
        whole = ticks >> bits
        fraction = ticks & ((np.uint64(1) << bits) - np.uint64(1))
        if exponent > FRACTION_BITS:
            fraction >>= bits - np.uint64(FRACTION_BITS)
            bits = np.uint64(FRACTION_BITS)
        value = whole * np.uint64(GIGA) + ((fraction * np.uint64(GIGA)) >> bits)
    elif exponent <= 9:
        value = ticks * np.uint64(10 ** (9 - exponent))
    elif exponent < 29:
        value = ticks // np.uint64(10 ** (exponent - 9))
    else:
        value = np.zeros_like(ticks)  # units so small that 64 bits of them are less than a nanosecond
    offset = (interface.offset_seconds * GIGA + 2**63) % 2**64 - 2**63
    return value.astype(np.int64) + np.int64(offset)


# Options and name records of pcapng blocks (draft-ietf-opsawg-pcapng, sections 3.5 and 4.5).


def options(data: bytes, position: int, end: int, order: str) -> Iterator[tuple[int, bytes]]:
    """(code, value) of the options in data[position:end], up to their end mark or to the first invalid one."""
    while position + 4 <= end:
        code, length = struct.unpack_from(order + "HH", data, position)
        position += 4
        if code == 0 or position + length > end:
            return
        yield code, data[position : position + length]
        position += (length + 3) & ~3


def name_records(data: bytes, position: int, end: int, order: str) -> Iterator[tuple[str, str]]:
    """(address, name) of the records of a name resolution block's body; the first of several names."""
    for kind, value in options(data, position, end, order):  # records are built like options
        size = {1: 4, 2: 16}.get(kind)
        if size is None or len(value) <= size:
            continue
        name = value[size:].split(b"\0", 1)[0].decode("utf-8", "replace")
        if name:
            yield str(ipaddress.ip_address(value[:size])), name


# Packet blocks of pcapng (enhanced, obsolete, simple) as columns.

OBSOLETE: Final = 2
SIMPLE: Final = 3
ENHANCED: Final = 6

FIXED: Final = {ENHANCED: 28, OBSOLETE: 28, SIMPLE: 12}
"""Bytes before the packet, per type of block; padding, options and the length again follow it."""

FLAGS: Final = 2
DROP_COUNT: Final = 4
UNKNOWN_DROPS: Final = 0xFFFF
"""In an obsolete packet block: the number of drops is unknown."""


class PacketBlocks(msgspec.Struct, frozen=True):
    """One row per block."""

    start: NDArray[np.int64]
    """Offset of the packet in the data."""
    timed: NDArray[np.bool_]
    """The block has a time stamp (simple ones have none)."""
    interface: NDArray[np.int64]
    """Number of the interface in the section."""
    ticks: NDArray[np.uint64]
    captured: NDArray[np.int64]
    wire: NDArray[np.int64]
    fcs: NDArray[np.int64]
    """Bytes of frame check sequence according to the block's flags, 0: unknown."""
    drops: NDArray[np.int64]
    """Packets lost between the previous packet and this one, according to the block."""


def _gather(data: bytes, places: NDArray[np.int64], size: int, dtype: str) -> NDArray[Any]:
    """`size` bytes at each place (all within the data) as rows of items of `dtype`."""
    rows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))[places]
    return rows.view(dtype).reshape(len(places), -1)


def read_blocks(data: bytes, places: NDArray[np.int64], order: str, snaplen: int) -> tuple[PacketBlocks, int | None]:
    """Columns of the whole packet blocks at `places` up to the first corrupt one, and the index of that one, if any.

    `order` is the section's byte order, `snaplen` that of its first interface (0: no limit), which cuts simple packets.
    """
    heads = _gather(data, places, 12, order + "u4")
    kind = heads[:, 0]
    length = heads[:, 1].astype(np.int64)
    trailer = _gather(data, places + length - 4, 4, order + "u4")[:, 0]
    count = len(places)
    simple = kind == SIMPLE
    fixed = np.where(simple, 12, 28)
    interface = heads[:, 2].astype(np.int64)
    ticks = np.zeros(count, np.uint64)
    drops = np.zeros(count, np.int64)
    wire = heads[:, 2].astype(np.int64)
    captured = np.minimum(wire, length - 16)
    if snaplen:
        captured = np.minimum(captured, snaplen)
    if simple.all():
        interface = np.zeros(count, np.int64)
    else:
        full = slice(None) if not simple.any() else np.flatnonzero(~simple)
        fields = _gather(data, places[full] + 12, 16, order + "u4")
        ticks[full] = (fields[:, 0].astype(np.uint64) << np.uint64(32)) | fields[:, 1]
        captured[full] = fields[:, 2]
        wire[full] = fields[:, 3]
        interface[simple] = 0
        obsolete = np.flatnonzero(kind == OBSOLETE)
        if len(obsolete):
            halves = _gather(data, places[obsolete] + 8, 4, order + "u2").astype(np.int64)
            interface[obsolete] = halves[:, 0]
            drops[obsolete] = np.where(halves[:, 1] == UNKNOWN_DROPS, 0, halves[:, 1])
    bad = (trailer != length) | (captured > length - fixed - 4)
    first_bad = None
    if bad.any():
        first_bad = int(np.argmax(bad))
        kept = slice(0, first_bad)
        places, length, fixed, simple = places[kept], length[kept], fixed[kept], simple[kept]
        interface, ticks, drops = interface[kept], ticks[kept], drops[kept]
        captured, wire = captured[kept], wire[kept]
    start = places + fixed
    fcs = np.zeros(len(places), np.int64)
    begin = start + ((captured + 3) & ~3)
    end = places + length - 4
    known = np.flatnonzero((end - begin >= 4) & ~simple)
    if len(known):
        fcs[known], more = _options(data, order, begin[known], end[known])
        drops[known] += more
    blocks = PacketBlocks(start, ~simple, interface, ticks, captured, np.maximum(wire, captured), fcs, drops)
    return blocks, first_bad


def _options(
    data: bytes, order: str, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(frame check sequence's size, drops) in the options at data[begin:end], four bytes or more; 0: unknown."""
    fcs = np.zeros(len(begin), np.int64)
    drops = np.zeros(len(begin), np.int64)
    first = _gather(data, begin, 4, order + "u2")
    # The common case, read by columns: only the flags.
    only_flags = (first[:, 0] == FLAGS) & (first[:, 1] == 4) & ((end - begin == 8) | (end - begin == 12))
    if only_flags.any():
        fcs[only_flags] = (_gather(data, begin[only_flags] + 4, 4, order + "u4")[:, 0] >> 5) & 0xF
    for row in np.flatnonzero(~only_flags & (first[:, 0] != 0)).tolist():
        for code, value in options(data, int(begin[row]), int(end[row]), order):
            if code == FLAGS and len(value) == 4:
                fcs[row] = (struct.unpack(order + "I", value)[0] >> 5) & 0xF
            elif code == DROP_COUNT and len(value) == 8:
                drops[row] = min(struct.unpack(order + "Q", value)[0], 2**62)
    return fcs, drops


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
