"""Parser of the pcap format, and what it shares with pcapng: columns of packets, pieces, recovery from corrupt places.

`RawPackets` are captured packets as columns, before their headers are read: formats yield them, the merge sorts them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.model import BrokerTimes, Problem
from kafkasniff.native.headers import find_records
from kafkasniff.native.library import kernel

NoteValue = Problem | tuple[str, str] | bytes | BrokerTimes
"""Contents of a `Note`."""

UNDESCRIBED_LINK: Final = -1
"""Link type of a pcapng packet whose interface no block describes."""

IGNORED_LINK: Final = -2
"""Link type of a packet that is known not to be IP (live capture): only counted."""


class Interface(msgspec.Struct, frozen=True):
    """A capture's description of an interface."""

    link: int
    """Link type (LINKTYPE_ number of the pcap registry)."""
    number: int
    """Its number in its section (pcapng), 0 in pcap."""
    name: str | None = None
    snaplen: int = 0
    """Snapshot length in bytes, 0: no limit."""
    fcs: int = 0
    """Bytes of frame check sequence at the end of each packet."""
    ticks_base: int = 10
    """Time stamps count units of `ticks_base ** -ticks_exponent` seconds (10 or 2)."""
    ticks_exponent: int = 6
    offset_seconds: int = 0
    """Seconds to be added to each time stamp."""


class RawPackets(NamedTuple):
    """Packets of one or (merged) several captures over one buffer, one row each."""

    buffer: bytes
    start: NDArray[np.int64]
    """Offset in `buffer` of the first byte of the link layer."""
    captured: NDArray[np.int64]
    """Bytes captured, without the frame check sequence."""
    wire: NDArray[np.int64]
    """Bytes on the wire, without the frame check sequence."""
    time_ns: NDArray[np.int64]
    link: NDArray[np.int32]
    """Link type, or UNDESCRIBED_LINK or IGNORED_LINK."""
    interface: NDArray[np.int32]
    """Index into the capture's list of interfaces."""
    capture: NDArray[np.int32]
    number: NDArray[np.int64]
    """1-based number of the packet in its capture."""

    @classmethod
    def build(
        cls,
        buffer: bytes,
        start: NDArray[np.int64],
        captured: NDArray[np.int64],
        wire: NDArray[np.int64],
        time_ns: NDArray[np.int64],
        *,
        link: NDArray[np.int32] | int,
        interface: NDArray[np.int32] | int = 0,
        fcs: NDArray[np.int64] | int = 0,
        capture: int,
        first_number: int,
    ) -> Self:
        """Rows of one capture: constant columns broadcast, the frame check sequence removed."""
        count = len(start)
        if isinstance(fcs, np.ndarray) or fcs:
            wire = np.maximum(wire - fcs, 0)
            captured = np.minimum(captured, wire)
        return cls(
            buffer,
            start,
            captured,
            wire,
            time_ns,
            link if isinstance(link, np.ndarray) else np.full(count, link, np.int32),
            interface if isinstance(interface, np.ndarray) else np.full(count, interface, np.int32),
            np.full(count, capture, np.int32),
            np.arange(first_number, first_number + count, dtype=np.int64),
        )

    @classmethod
    def empty(cls) -> Self:
        """No packets."""
        none = np.empty(0, np.int64)
        return cls.build(b"", none, none, none, none, link=0, capture=0, first_number=1)

    def slice(self, first: int, last: int) -> Self:
        """Rows [first, last) over the same buffer."""
        columns: list[Any] = [column[first:last] for column in self[1:]]
        return type(self)(self.buffer, *columns)

    @classmethod
    def joined(cls, parts: list[Self]) -> Self | None:
        """Consecutive parts over the same buffer as one; None if there is no part."""
        if len(parts) < 2:
            return parts[0] if parts else None
        columns = (np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True))
        return cls(parts[0].buffer, *columns)

    @classmethod
    def merge(cls, parts: list[Self], order: NDArray[np.int64] | None = None) -> Self:
        """Rows of all parts over one new buffer; `order`: the permutation to apply to the rows, None: unchanged."""
        pieces: list[bytes] = []
        starts: list[NDArray[np.int64]] = []
        base = 0
        for part in parts:
            # Packets of a part are in ascending order in its buffer: one slice takes the whole run.
            low, high = int(part.start[0]), int(part.start[-1] + part.captured[-1])
            pieces.append(part.buffer[low:high])
            starts.append(part.start + (base - low))
            base += high - low
        others = (np.concatenate(column) for column in zip(*(part[2:] for part in parts), strict=True))
        columns = (np.concatenate(starts), *others)
        return cls(b"".join(pieces), *(columns if order is None else (column[order] for column in columns)))


class Parsed(msgspec.Struct):
    """Results of a format's parser for some bytes."""

    packets: RawPackets | None
    """None: no whole packet."""
    notes: list[tuple[int, NoteValue]]
    """Each with the number of the packet that follows it."""
    consumed: int
    """Number of finished bytes; the rest must be given again, with more data after it."""
    need: int = 1
    """Bytes needed, from `consumed` on, before parsing can succeed."""
    given_up: bool = False
    """The rest of the capture cannot be read."""


# Recovery after a corrupt place: finds the first chain of plausible records.

CHAIN: Final = 3
"""Number of consecutive plausible records that prove the position."""

RESYNC_LIMIT: Final = 64 << 20
"""Bytes searched after one corrupt place before the rest of the capture is given up."""

FIRST_REACH: Final = 4 << 10
"""Bytes that are read at once after a corrupt place; twice as many after each success. Data that is read but not used,
because another corrupt place precedes it, is read again: so the work stays linear in any case.
"""

LARGEST_REACH: Final = 32 << 20
"""Maximum number of bytes that are read at once, unless a record is longer: compressed zeros may be far more, and all
of them look like records until they are read by columns.
"""

WINDOW: Final = 128 << 10
"""Maximum number of bytes whose candidates are computed at a time; FIRST_REACH at first, since most corrupt places are
short.
"""

IMPLAUSIBLE: Final = -1
"""Result of a step: no record can begin here."""

UNFINISHED: Final = -2
"""Result of a step: too few bytes to decide."""

Candidates = Callable[[bytes, int, int], NDArray[np.int64]]
"""(data, first, last) → ascending positions in [first, last) where a record's header looks plausible."""

Step = Callable[[bytes, int, int], int]
"""(data, position, first) → position after the record that begins at `position`, IMPLAUSIBLE or UNFINISHED (its header
is incomplete); the chain begins at `first`.
"""


class Search(msgspec.Struct, frozen=True):
    """The progress of a search."""

    position: int
    """The beginning of the chain if `found`, otherwise where to continue: everything before is ruled out."""
    found: bool
    need: int = 1
    """Bytes needed from `position` on to continue."""


def find_chain(data: bytes, position: int, *, ended: bool, header: int, candidates: Candidates, step: Step) -> Search:
    """The first position from `position` on where `CHAIN` plausible records follow each other.

    At the end of the data (`ended`) fewer suffice if they end exactly there. `header` is the number of bytes that
    `candidates` and `step` examine. The result does not depend on how the data is divided: the lowest candidate is
    decided first.
    """
    last = len(data) - header + 1
    window = FIRST_REACH
    while position < last:
        border = min(position + window, last)
        window = min(2 * window, WINDOW)
        for candidate in candidates(data, position, border).tolist():
            need = chain_at(data, candidate, ended=ended, header=header, step=step)
            if need != 0:
                return Search(candidate, need < 0, max(need, 1))
        position = border
    return Search(len(data) if ended else position, False, header)


def chain_at(data: bytes, first: int, *, ended: bool, header: int, step: Step, cut_end: bool = False) -> int:
    """Whether a chain begins right at `first`: -1 if so, 0 if not, else how many bytes after it would decide it.

    With `cut_end` it may end in a record that is truncated by the end of the data.
    """
    place = first
    for _ in range(CHAIN):
        if ended and place == len(data) and place > first:
            return -1
        after = step(data, place, first)
        if after == IMPLAUSIBLE:
            return 0
        if after == UNFINISHED or after > len(data):
            if ended:
                return -1 if cut_end and place > first else 0
            wanted = place + header if after == UNFINISHED else after
            return wanted - first
        place = after
    return -1


# Common parts of the parsers of both capture formats: pieces of a file, and recovery from corrupt places.


class FileParser(ABC):
    """Packets and notes of one file, from pieces of it. A file is a sequence of records."""

    noun: ClassVar[str]
    """The format's name for a record."""
    before_first: ClassVar[int | None]
    """Packet number for problems that occur before the first packet."""

    def __init__(self, name: str, capture: int, header_size: int) -> None:
        """`header_size`: bytes needed to recognize a record."""
        self.packets = 0
        """Packets found so far."""
        self.interfaces: list[Interface] = []
        """All interfaces so far."""
        self._name = name
        self._capture = capture
        self._header_size = header_size
        self._lost_at: int | None = None
        """File offset of the corrupt place; the search for the next record begins there."""
        self.found_at = 0
        """File offset at which the last search found the next record."""
        self._parts: list[RawPackets] = []
        self._notes: list[tuple[int, NoteValue]] = []

    @property
    def lost(self) -> bool:
        """Whether the next record after a corrupt place is being searched."""
        return self._lost_at is not None

    def lose(self, position: int) -> None:
        """Start a search at this file offset, because the start of the next record is unknown."""
        self._lost_at = position

    def parse(self, data: bytes, base: int, *, ended: bool) -> Parsed:
        """Records in `data`, which starts at offset `base` of the file and at the start of a record."""
        self._parts, self._notes = [], []
        position = 0
        reach = LARGEST_REACH
        while True:
            if self._lost_at is not None:
                search = self._search(data, position, ended=ended)
                skipped = base + search.position - self._lost_at
                given_up = not search.found and (ended or skipped > RESYNC_LIMIT)
                if not search.found and not given_up:
                    return self._parsed(search.position, search.need)
                rest = "the rest of the file cannot be read" if given_up else "reading continues after them"
                where = f"no {self.noun} at byte {self._lost_at} (after packet {self.packets})"
                self._problem("capture-broken", f"{where}; {skipped} bytes skipped, {rest}", skipped)
                self._lost_at = None
                self.found_at = base + search.position
                if given_up:
                    return self._parsed(len(data), given_up=True)
                position = search.position
                reach = FIRST_REACH
            border = min(position + reach, len(data))
            begin = position
            position, need = self._scan(data, position, border, ended=ended)
            if need and border < len(data):
                if reach < LARGEST_REACH or position == begin:
                    reach *= 2
                continue
            # A record that seems cut by the end of the file may have a corrupt length, with intact ones after it.
            if need and not (ended and position < len(data) and self._search(data, position + 1, ended=True).found):
                return self._parsed(position, need)
            self._lost_at = base + position
            position += 1

    def _parsed(self, consumed: int, need: int = 1, *, given_up: bool = False) -> Parsed:
        packets, notes = RawPackets.joined(self._parts), self._notes
        self._parts, self._notes = [], []
        return Parsed(packets, notes, consumed, need, given_up)

    def _problem(self, kind: str, text: str, size: int | None = None) -> None:
        last = self.packets or self.before_first
        problem = Problem(kind, f"{self._name}: {text}", capture=self._name, packet=last, bytes=size)
        self._notes.append((self.packets + 1, problem))

    def _search(self, data: bytes, position: int, *, ended: bool) -> Search:
        header = self._header_size
        return find_chain(data, position, ended=ended, header=header, candidates=self._candidates, step=self._step)

    @abstractmethod
    def _scan(self, data: bytes, position: int, end: int, *, ended: bool) -> tuple[int, int]:
        """Read the records in `data[position:end]`: where they end, bytes needed to continue (0: one is corrupt)."""

    @abstractmethod
    def _candidates(self, data: bytes, first: int, last: int) -> NDArray[np.int64]:
        """Positions in [first, last) whose bytes look like a record's header."""

    @abstractmethod
    def _step(self, data: bytes, position: int, first: int) -> int:
        """A record as capture programs usually write it, in the form of `resync.Step`."""


# Parser of the pcap format: micro- and nanosecond times, both byte orders, the "modified" variant.
#
# Source: draft-ietf-opsawg-pcap; the modified variant (Alexey Kuznetzov's patch) has 24-byte record headers.

HEADER_SIZE: Final = 24
"""Bytes of the file header."""

MICROSECONDS: Final = 0xA1B2C3D4
NANOSECONDS: Final = 0xA1B23C4D
MODIFIED: Final = 0xA1B2CD34
_BYTE_ORDERS: Final = {
    struct.pack(order + "I", magic): order for order in "<>" for magic in (MICROSECONDS, NANOSECONDS, MODIFIED)
}
"""By the first bytes of a file, in the notation of `struct`."""

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
    return head[:4] in _BYTE_ORDERS


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
        self._order = _BYTE_ORDERS[header[:4]]
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
