"""Writes packets of captures into another capture: pcapng, or pcap if the name asks for it.

Times are in nanoseconds in both. Other contents of a pcapng (comments, names, counters) are not copied; link type, name
and snapshot length of its interfaces are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import Interface, RawPackets
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.write.pcapng_writer import (
    PACKET_AT,
    UNTIMED_PACKET_AT,
    interface_block,
    packet_blocks,
    secrets_block,
    section,
    untimed_block,
)
from kafkasniff.errors import OutputError
from kafkasniff.model import NO_TIME

__all__ = ["CaptureWriter", "form_of"]

_PCAP_NAMES: Final = (".pcap", ".cap", ".dmp")
_NANOSECOND_MAGIC: Final = 0xA1B23C4D
_PCAP_SNAPLEN: Final = 262_144
"""The largest packet that capture programs write and readers accept (libpcap's MAXIMUM_SNAPLEN)."""
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
        snaplen = max(interface.snaplen, _PCAP_SNAPLEN)
        self._file.append(struct.pack("<IHHiIII", _NANOSECOND_MAGIC, 2, 4, 0, 0, snaplen, interface.link))
