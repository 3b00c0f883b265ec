"""Writes pcapng blocks: sections, packets (a batch of them at once) and the kernel's counts.

Source: draft-ietf-opsawg-pcapng. Little-endian, time stamps in nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kafkasniff
from kafkasniff.capture.formats.raw import Interface
from kafkasniff.capture.live.frames import FRONT_SIZE, Frames

__all__ = [
    "PACKET_AT",
    "UNTIMED_PACKET_AT",
    "WrittenBlocks",
    "interface_block",
    "packet_blocks",
    "secrets_block",
    "section",
    "statistics_block",
    "untimed_block",
]

SECTION: Final = 0x0A0D0D0A
MAGIC: Final = 0x1A2B3C4D
INTERFACE: Final = 1
SIMPLE: Final = 3
STATISTICS: Final = 5
ENHANCED: Final = 6
SECRETS: Final = 10
TLS_KEY_LOG: Final = 0x544C534B

END: Final = 0
APPLICATION_OPTION: Final = 4
NAME_OPTION: Final = 2
RESOLUTION_OPTION: Final = 9
FILTER_OPTION: Final = 11
START_OPTION: Final = 2
END_OPTION: Final = 3
RECEIVED_OPTION: Final = 4
DROPPED_OPTION: Final = 5

NANOSECONDS: Final = 9
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
    options = [(RESOLUTION_OPTION, bytes([NANOSECONDS]))]
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
