"""Parser of the pcap format: micro- and nanosecond times, both byte orders, the "modified" variant.

Source: draft-ietf-opsawg-pcap; the modified variant (Alexey Kuznetzov's patch) has 24-byte record headers.
"""

from __future__ import annotations

import struct
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.file_parser import FileParser
from kafkasniff.capture.formats.raw import Interface, RawPackets
from kafkasniff.capture.formats.resync import IMPLAUSIBLE, UNFINISHED, chain_at
from kafkasniff.native.headers import find_records
from kafkasniff.native.library import kernel

__all__ = ["HEADER_SIZE", "PcapParser", "PcapState", "is_pcap"]

HEADER_SIZE: Final = 24
"""Bytes of the file header."""

MICROSECONDS: Final = 0xA1B2C3D4
NANOSECONDS: Final = 0xA1B23C4D
MODIFIED: Final = 0xA1B2CD34

LARGEST_SNAPLEN: Final = 256 << 10
"""Largest packet in bytes that capture programs keep (libpcap's MAXIMUM_SNAPLEN); longer records count as corrupt."""

LARGEST_RECORD: Final = 16 << 20
"""Maximum accepted snapshot length of a file header that names a larger one."""

LARGEST_PACKET: Final = 64 << 20
"""Maximum size in bytes on the wire of a record found by a search."""

SMALLEST_PACKET: Final = 14
"""Minimum captured bytes of a record found by a search: runs of zeros and small numbers are not records."""

TIME_REACH: Final = 7 * 86_400
"""Maximum distance of neighbouring records in seconds without further proof."""


def is_pcap(head: bytes) -> bool:
    """Whether a file that begins with these bytes (4 suffice) is pcap."""
    return head[:4] in {
        struct.pack(order + "I", magic) for order in "<>" for magic in (MICROSECONDS, NANOSECONDS, MODIFIED)
    }


class PcapState(msgspec.Struct, frozen=True, omit_defaults=True, tag="pcap"):
    """The state of a parser, so that another one can continue."""

    header: bytes
    """The file's header."""
    packets: int = 0
    lost_at: int | None = None
    last_seconds: int | None = None
    found_at: int = 0


class PcapParser(FileParser):
    """Records of one pcap file, from pieces of it. Its file header is the first HEADER_SIZE bytes."""

    noun = "packet record"
    before_first = 0

    def __init__(self, header: bytes, name: str, capture: int) -> None:
        self._file_header = header
        self._order = (
            "<" if header[:4] in {struct.pack("<I", m) for m in (MICROSECONDS, NANOSECONDS, MODIFIED)} else ">"
        )
        magic, _major, _minor, _zone, _figures, snaplen, network = struct.unpack(self._order + "IHHiIII", header)
        # Bit 26: the upper four bits hold the length of the frame check sequence, in units of 16 bits.
        fcs = (network >> 28) * 2 if network & 0x0400_0000 else 0
        super().__init__(name, capture, 24 if magic == MODIFIED else 16)
        self.interfaces = [Interface(network & 0xFFFF, 0, None, snaplen, fcs)]
        self._unit = 1 if magic == NANOSECONDS else 1000
        self._longest = max(LARGEST_SNAPLEN, min(snaplen, LARGEST_RECORD))
        u4 = self._order + "u4"
        self._header = np.dtype([("seconds", u4), ("fraction", u4), ("captured", u4), ("wire", u4)])
        self._kernel = kernel()
        self._last_seconds: int | None = None

    @property
    def state(self) -> PcapState:
        """Its position between two calls of `parse`."""
        return PcapState(self._file_header, self.packets, self._lost_at, self._last_seconds, self.found_at)

    @classmethod
    def resumed(cls, state: PcapState, name: str, capture: int) -> Self:
        """A parser that continues from another one's state."""
        parser = cls(state.header, name, capture)
        parser.packets, parser.found_at = state.packets, state.found_at
        parser._lost_at, parser._last_seconds = state.lost_at, state.last_seconds
        return parser

    def lose(self, position: int) -> None:
        """Begin with a search, at this offset of the file: it is not known where a record begins."""
        super().lose(position)
        self._last_seconds = None

    def _starts(self, data: bytes, position: int, end: int) -> tuple[NDArray[np.int64], int, bool]:
        """The beginnings of the records in `data[position:end]` whose lengths are there, complete or not.

        Also returns the beginning of the following record, and whether its length cannot be that of a record.
        """
        big = self._order == ">"
        return find_records(self._kernel, data, position, end, self._header_size, self._longest, big=big)

    def _scan(self, data: bytes, position: int, end: int, *, ended: bool) -> tuple[int, int]:
        first = position
        places, position, corrupt = self._starts(data, position, end)
        need = 0 if corrupt else self._header_size
        if len(places) and position > end:
            # The last record is incomplete.
            start = int(places[-1])
            places, position, need = places[:-1], start, position - start
        if not len(places):
            return first, need
        heads = np.ndarray((end - 15,), "V16", data, strides=(1,))[places].view(self._header)
        captured_column = heads["captured"].astype(np.int64)
        wire = heads["wire"].astype(np.int64)
        # No capture program writes an empty packet, or a second or more as the fraction of one.
        odd = ((wire == 0) & (captured_column == 0)) | (heads["fraction"] >= 1_000_000_000)
        # Some claim fewer bytes on the wire than they captured. libpcap and tshark read such packets, and so does this.
        short = wire < captured_column
        seconds = heads["seconds"].astype(np.int64)
        before = seconds[0] if self._last_seconds is None else self._last_seconds
        leaps = np.abs(np.diff(seconds, prepend=before)) > TIME_REACH
        count = len(places)
        if odd.any():
            count, need = int(np.argmax(odd)), 0
        for doubtful in np.flatnonzero((leaps | short)[:count]).tolist():
            # A clock may be set and a length may be odd, but a shifted header looks the same, so good records must
            # follow.
            first, step = int(places[doubtful]), self._loose_step
            proof = chain_at(data, first, ended=ended, header=self._header_size, step=step, cut_end=True)
            if proof >= 0:
                count, need = doubtful, proof
                break
        if count < len(places):
            position = int(places[count])
            if not count:
                return position, need
            places, heads, captured_column = places[:count], heads[:count], captured_column[:count]
            wire, seconds = wire[:count], seconds[:count]
        self._last_seconds = int(seconds[-1])
        interface = self.interfaces[0]
        packets = RawPackets.build(
            data,
            places + self._header_size,
            captured_column,
            np.maximum(wire, captured_column),
            seconds * 1_000_000_000 + heads["fraction"].astype(np.int64) * self._unit,
            link=interface.link,
            fcs=interface.fcs,
            capture=self._capture,
            first_number=self.packets + 1,
        )
        self.packets += len(packets.start)
        self._parts.append(packets)
        return position, need

    def _candidates(self, data: bytes, first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        u4 = self._order + "u4"
        count = last - first
        captured = np.ndarray((count,), u4, data, offset=first + 8, strides=(1,))
        likely = np.flatnonzero((captured <= self._longest) & (captured >= SMALLEST_PACKET))
        wire = np.ndarray((count,), u4, data, offset=first + 12, strides=(1,))[likely]
        likely = likely[(wire >= captured[likely]) & (wire <= LARGEST_PACKET)]
        places: np.ndarray[tuple[int], np.dtype[np.int64]] = likely.astype(np.int64) + first
        return places

    def _loose_step(self, data: bytes, position: int, first: int) -> int:
        """A record that a capture program may have written, as `resync.Step`."""
        del first
        if position + self._header_size > len(data):
            return UNFINISHED
        _, fraction, captured, wire = struct.unpack_from(self._order + "IIII", data, position)
        if captured > self._longest or wire > LARGEST_PACKET or not (captured or wire) or fraction >= 1_000_000_000:
            return IMPLAUSIBLE
        return int(position + self._header_size + captured)

    def _step(self, data: bytes, position: int, first: int) -> int:
        after = self._loose_step(data, position, first)
        if after < 0:
            return after
        seconds, fraction, captured, wire = struct.unpack_from(self._order + "IIII", data, position)
        (first_seconds,) = struct.unpack_from(self._order + "I", data, first)
        if fraction * self._unit >= 1_000_000_000 or abs(seconds - first_seconds) > TIME_REACH:
            return IMPLAUSIBLE
        return IMPLAUSIBLE if captured < SMALLEST_PACKET or wire < captured else after
