"""Writes packets of captures into another capture: pcapng, or pcap if the name asks for it.

Source: draft-ietf-opsawg-pcapng. Times are in nanoseconds in both. Other contents of a pcapng (comments, names,
counters) are not copied; link type, name and snapshot length of its interfaces are. `commented` adds comments later.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import kafkasniff
from kafkasniff.capture.formats.pcap import LARGEST_SNAPLEN, NANOSECONDS, Interface, RawPackets
from kafkasniff.capture.formats.pcapng import (
    ENHANCED,
    INTERFACE,
    NAME_OPTION,
    RESOLUTION_OPTION,
    SECRETS,
    SECTION,
    SIMPLE,
    STATISTICS,
    TLS_KEY_LOG,
)
from kafkasniff.capture.live.frames import FRONT_SIZE, Frames
from kafkasniff.errors import OutputError
from kafkasniff.model import NO_TIME

# Blocks of pcapng, little-endian: sections, packets (a batch of them at once) and the kernel's counts.

MAGIC: Final = 0x1A2B3C4D

END: Final = 0
COMMENT_OPTION: Final = 1
APPLICATION_OPTION: Final = 4
FILTER_OPTION: Final = 11
START_OPTION: Final = 2
END_OPTION: Final = 3
RECEIVED_OPTION: Final = 4
DROPPED_OPTION: Final = 5

NANOSECOND_RESOLUTION: Final = 9
"""Value of if_tsresol: units of 10 ** -9 seconds."""

BETWEEN: Final = np.dtype(
    {
        # The bytes between two packets: padding and length of the previous one, header of the next, its front.
        "names": ["padding", "ended", "kind", "length", "interface", "high", "low", "captured", "wire", "front"],
        "formats": ["V3", *["<u4"] * 8, (np.uint8, FRONT_SIZE)],
        "offsets": [0, 3, 7, 11, 15, 19, 23, 27, 31, 35],
        "itemsize": 35 + FRONT_SIZE,
    }
)
PADDING: Final = 3
HEADER_AT: Final = 7
FRONT_AT: Final = 35
AROUND: Final = 32
"""Bytes of a block around its packet and the padding."""
PACKET_AT: Final = 28
UNTIMED_PACKET_AT: Final = 12
"""Where a packet begins in its block."""


class WrittenBlocks(NamedTuple):
    """Consecutive enhanced packet blocks."""

    data: bytes
    sizes: NDArray[np.int64]
    """Size of each in bytes."""


def packet_blocks(frames: Frames) -> WrittenBlocks:
    """A block for each packet, whose `capture` is the number of its interface. Hot: all packets of a batch at once."""
    packets, count = frames.packets, frames.total
    start = packets.start + frames.replaced
    body = packets.captured - frames.replaced
    grown = frames.front_size - frames.replaced
    captured = packets.captured + grown
    padding = -captured & 3
    sizes = captured + padding + AROUND
    time = packets.time_ns.astype(np.uint64)
    between = np.zeros(count + 1, BETWEEN)
    between["ended"][1:] = sizes
    head = between[:-1]
    head["kind"], head["length"], head["interface"] = ENHANCED, sizes, packets.capture
    head["high"], head["low"] = time >> np.uint64(32), time & np.uint64(0xFFFF_FFFF)
    head["captured"], head["wire"] = captured, packets.wire + grown
    head["front"] = frames.front
    # The only work per packet is two slices, which copy nothing, and joining them.
    begin = np.arange(count + 1) * BETWEEN.itemsize
    end = begin + HEADER_AT
    end[:-1] += FRONT_AT - HEADER_AT + frames.front_size
    begin[0] += HEADER_AT
    begin[1:] += PADDING - padding
    pieces: list[memoryview] = [memoryview(b"")] * (2 * count + 1)
    pieces[0::2] = _slices(memoryview(between.tobytes()), begin, end)
    pieces[1::2] = _slices(memoryview(packets.buffer), start, start + body)
    return WrittenBlocks(b"".join(pieces), sizes)


def _slices(data: memoryview, begin: NDArray[np.int64], end: NDArray[np.int64]) -> list[memoryview]:
    return [data[low:high] for low, high in zip(begin.tolist(), end.tolist(), strict=True)]


def section(interfaces: Sequence[Interface], *, bpf: str | None = None) -> bytes:
    """The beginning of a file: a section header and a description of each interface; `bpf`: the capture filter."""
    application = f"kafkasniff {kafkasniff.__version__}".encode()
    head = struct.pack("<IHHq", MAGIC, 1, 0, -1)
    blocks = [_block(SECTION, head + _options([(APPLICATION_OPTION, application)]))]
    return b"".join([*blocks, *(interface_block(interface, bpf=bpf) for interface in interfaces)])


def interface_block(interface: Interface, *, bpf: str | None = None) -> bytes:
    """The description of an interface, which packets refer to by its number in the section."""
    options = [(RESOLUTION_OPTION, bytes([NANOSECOND_RESOLUTION]))]
    if interface.name is not None:
        options.insert(0, (NAME_OPTION, interface.name.encode("utf-8", "surrogateescape")))
    if bpf:
        options.append((FILTER_OPTION, b"\0" + bpf.encode("utf-8", "replace")))  # 0: an expression of libpcap
    return _block(INTERFACE, struct.pack("<HHI", interface.link, 0, interface.snaplen) + _options(options))


def untimed_block(packet: bytes, wire: int) -> bytes:
    """A packet without a time, of the section's first interface, whose snapshot length cuts it (a simple block)."""
    return _block(SIMPLE, struct.pack("<I", wire) + packet + bytes(-len(packet) & 3))


def statistics_block(interface: int, begun_ns: int, ended_ns: int, received: int, dropped: int) -> bytes:
    """Counts of an interface between two times: packets, and lost ones among them."""
    options = [
        (START_OPTION, _time(begun_ns)),
        (END_OPTION, _time(ended_ns)),
        (RECEIVED_OPTION, struct.pack("<Q", received)),
        (DROPPED_OPTION, struct.pack("<Q", dropped)),
    ]
    return _block(STATISTICS, struct.pack("<I", interface) + _time(ended_ns) + _options(options))


def secrets_block(lines: bytes) -> bytes:
    """Lines of an NSS key log, which decrypt TLS of the packets after them."""
    return _block(SECRETS, struct.pack("<II", TLS_KEY_LOG, len(lines)) + lines + bytes(-len(lines) & 3))


def _time(time_ns: int) -> bytes:
    return struct.pack("<II", time_ns >> 32, time_ns & 0xFFFF_FFFF)


def _options(options: Iterable[tuple[int, bytes]]) -> bytes:
    pieces = [struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3) for code, value in options]
    return b"".join([*pieces, struct.pack("<HH", END, 0)])


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


MAX_COMMENT: Final = 1000
"""Maximum size in bytes of a comment. Longer ones are cut."""
_READ_BYTES: Final = 4 << 20
_HEAD: Final = struct.Struct("<II")
_TIMED: Final = struct.Struct("<12x3I")
"""In the head of an enhanced packet block: both halves of the time, bytes of the packet."""
_OPTION: Final = struct.Struct("<HH")


def commented(file: BinaryIO, comment: Callable[[int, int, bytes], bytes | None]) -> Iterator[bytes]:
    """A pcapng of this module with a comment on each packet for which there is one, in pieces.

    `comment`: returns it, in UTF-8, for the number of a packet, its time in ns and the options that its block has,
    before which it is inserted. Simple blocks have no options, so their packets have no comments.
    """
    rest, number = b"", 0
    while read := file.read(_READ_BYTES):
        data, at, done = rest + read, 0, 0
        pieces: list[bytes] = []
        while at + _HEAD.size <= len(data):
            kind, size = _HEAD.unpack_from(data, at)
            end = at + size
            if end > len(data):
                break
            if kind == ENHANCED:
                number += 1
                high, low, captured = _TIMED.unpack_from(data, at)
                begin = at + PACKET_AT + captured + (-captured & 3)
                options = data[begin : end - 4]
                text = comment(number, high << 32 | low, options)
                if text:
                    if len(text) > MAX_COMMENT:
                        text = text[: MAX_COMMENT - 3].decode("utf-8", "ignore").encode() + "…".encode()
                    padding = -len(text) & 3
                    length = (size + 4 + len(text) + padding + (0 if options else 4)).to_bytes(4, "little")
                    head = _OPTION.pack(COMMENT_OPTION, len(text))
                    value = text + bytes(padding) + (options or bytes(4))
                    pieces += (data[done : at + 4], length, data[at + 8 : begin], head, value, length)
                    done = end
            elif kind == SIMPLE:
                number += 1
            at = end
        pieces.append(data[done:at])
        rest = data[at:]
        yield b"".join(pieces)


_PCAP_NAMES: Final = (".pcap", ".cap", ".dmp")
_RECORD: Final = np.dtype([("seconds", "<u4"), ("fraction", "<u4"), ("captured", "<u4"), ("wire", "<u4")])
_SECOND: Final = 1_000_000_000


class Appendable(Protocol):
    """Receives the bytes of a capture."""

    path: str
    """For messages."""

    def append(self, data: bytes) -> int:
        """Append; returns the offset of the first byte."""


def form_of(name: str) -> Literal["pcap", "pcapng"]:
    """The format of a file with this name."""
    return "pcap" if name.lower().endswith(_PCAP_NAMES) else "pcapng"


class CaptureWriter:
    """Writes packets; `interface(capture, index)` describes the interface that they come from."""

    def __init__(
        self, file: Appendable, form: Literal["pcap", "pcapng"], interface: Callable[[int, int], Interface]
    ) -> None:
        self._file = file
        self._form = form
        self._interface = interface
        self._numbers: dict[tuple[int, int], int] = {}
        """Interfaces of the section, by capture and index there."""
        self._link: int | None = None
        """Link type of a pcap."""
        if form == "pcapng":
            file.append(section(()))

    def write(self, packets: RawPackets) -> NDArray[np.int64]:
        """Write packets, whose `start` and `captured` locate them in the buffer; returns each one's offset in the file.

        Raises OutputError if pcap cannot hold them.
        """
        count = len(packets.start)
        if self._form == "pcap":
            return self._pcap(packets)
        places = np.empty(count, np.int64)
        timed = packets.time_ns != NO_TIME
        borders = [0, *(np.flatnonzero(timed[1:] != timed[:-1]) + 1).tolist(), count]
        for first, last in pairwise(borders):
            if first < last:
                part = packets.slice(first, last)
                places[first:last] = self._timed(part) if timed[first] else self._untimed(part)
        return places

    def write_secrets(self, lines: bytes) -> None:
        """Write lines of a key log, which pcap cannot hold."""
        if self._form == "pcapng":
            self._file.append(secrets_block(lines))

    def close(self) -> None:
        """There are no more packets: even an empty pcap needs a header."""
        if self._form == "pcap" and self._link is None:
            self._pcap_header(Interface(1, 0))

    def _number(self, capture: int, index: int) -> int:
        number = self._numbers.get((capture, index))
        if number is None:
            number = self._numbers[capture, index] = len(self._numbers)
            self._file.append(interface_block(self._interface(capture, index)))
        return number

    def _timed(self, packets: RawPackets) -> NDArray[np.int64]:
        pairs, which = np.unique(np.stack((packets.capture, packets.interface)), axis=1, return_inverse=True)
        numbers = np.array([self._number(capture, index) for capture, index in pairs.T.tolist()], np.int32)
        blocks = packet_blocks(Frames.plain(packets._replace(capture=numbers[which.reshape(-1)])))
        at = self._file.append(blocks.data)
        places: NDArray[np.int64] = at + np.cumsum(blocks.sizes) - blocks.sizes + PACKET_AT
        return places

    def _untimed(self, packets: RawPackets) -> NDArray[np.int64]:
        """Simple blocks belong to their section's first interface: another one begins a section."""
        places = []
        columns = (packets.start, packets.captured, packets.wire, packets.capture, packets.interface)
        for start, captured, wire, capture, index in zip(*(column.tolist() for column in columns), strict=True):
            if self._numbers.get((capture, index)) != 0:
                if self._numbers:
                    self._file.append(section(()))
                    self._numbers.clear()
                self._number(capture, index)
            block = untimed_block(packets.buffer[start : start + captured], wire)
            places.append(self._file.append(block) + UNTIMED_PACKET_AT)
        return np.array(places, np.int64)

    def _pcap(self, packets: RawPackets) -> NDArray[np.int64]:
        count = len(packets.start)
        if not count:
            return np.empty(0, np.int64)
        for capture, index in np.unique(np.stack((packets.capture, packets.interface)), axis=1).T.tolist():
            interface = self._interface(capture, index)
            if self._link is None:
                self._pcap_header(interface)
            if interface.link != self._link:
                raise OutputError(
                    f"cannot write {self._file.path}: pcap has one link type, and the packets are of link types "
                    f"{self._link} and {interface.link}; use a name that ends in .pcapng"
                )
        seconds = packets.time_ns // _SECOND
        if ((seconds < 0) | (seconds >= 1 << 32)).any():
            raise OutputError(
                f"cannot write {self._file.path}: a packet has no time that pcap can hold; use a name that ends in "
                ".pcapng"
            )
        heads = np.zeros(count, _RECORD)
        heads["seconds"], heads["fraction"] = seconds, packets.time_ns - seconds * _SECOND
        heads["captured"], heads["wire"] = packets.captured, packets.wire
        data, size = memoryview(heads.tobytes()), _RECORD.itemsize
        pieces: list[memoryview] = [memoryview(b"")] * (2 * count)
        pieces[0::2] = [data[at : at + size] for at in range(0, count * size, size)]
        pieces[1::2] = [
            memoryview(packets.buffer)[low:high]
            for low, high in zip(packets.start.tolist(), (packets.start + packets.captured).tolist(), strict=True)
        ]
        at = self._file.append(b"".join(pieces))
        places: NDArray[np.int64] = at + np.cumsum(packets.captured + size) - packets.captured
        return places

    def _pcap_header(self, interface: Interface) -> None:
        self._link = interface.link
        snaplen = max(interface.snaplen, LARGEST_SNAPLEN)
        self._file.append(struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, snaplen, interface.link))
