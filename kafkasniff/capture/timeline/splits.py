"""Splits: parts of one capture that can be read independently; together they are the capture.

`planning.py` decides how a capture is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats import pcap, pcapng
from kafkasniff.capture.formats.bytestream import EMPTY, ByteStream, Compressed, Failure
from kafkasniff.capture.formats.converters import converter_for
from kafkasniff.capture.formats.pcap import PcapParser, PcapState
from kafkasniff.capture.formats.pcapng import PcapngParser, PcapngState
from kafkasniff.capture.formats.raw import Interface, Parsed, RawPackets
from kafkasniff.capture.formats.reader import CaptureReader, end_problem
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.link.walk import LinkWalk
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME
from kafkasniff.packets import Note, PacketBatch

__all__ = [
    "HEAD_SIZE",
    "WALK_SIZE",
    "Parser",
    "PartDecoder",
    "ReadAt",
    "Region",
    "Split",
    "SplitReader",
    "State",
    "open_split",
    "open_whole",
    "parser_at",
    "parser_from",
]

HEAD_SIZE: Final = 64 << 10
"""Bytes from the start of a file whose blocks provide the guessed initial state of other parts."""

BLOCK: Final = 4096
"""Bytes of a file that are readable only as a whole, or not at all."""

WALK_SIZE: Final = 8 << 20
"""Bytes walked at a time."""

Parser = PcapParser | PcapngParser
State = PcapState | PcapngState


class ReadAt(Protocol):
    """Random access to the bytes of a capture."""

    def __call__(self, offset: int, size: int, /) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end. Raises OSError."""


class Split(msgspec.Struct, frozen=True):
    """A part of a capture, ready to be read."""

    path: str
    capture: int
    begin: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte."""
    size: int
    """Bytes of the whole file: the end of the split may depend on later data."""
    packets_before: int
    packets: int
    notes: int
    clock: int
    """Highest time of the packets before it; NO_TIME if there are none."""
    clock_after: int
    """The same after it."""
    state: State | None
    """Parser state before it; None for a compressed capture, which is read from its start."""
    first_time: int = NO_TIME
    """Time of its first packet."""
    has_notes: bool = False
    """There are notes in it."""
    fragments: int = 0
    """Packets with IP fragments."""
    cut: int = 0
    malformed: int = 0


class PartDecoder(PacketDecoder):
    """Reads the headers of packets of a part: IP fragments are not reassembled but reported."""

    def __init__(self, captures: tuple[str, ...], interface: Callable[[int, int], Interface]) -> None:
        super().__init__(captures, interface)
        self.fragments: NDArray[np.int64] = np.empty(0, np.int64)
        """Rows of the packets with fragments of the last `decode`, ascending."""

    def decode(
        self, raw: RawPackets, first_order: int, notes: list[Note], clock: NDArray[np.int64] | None = None
    ) -> PacketBatch:
        """See `PacketDecoder`."""
        self.fragments = np.empty(0, np.int64)
        return super().decode(raw, first_order, notes, clock)

    def _reassemble(self, walk: LinkWalk, raw: RawPackets, first_order: int, level: int) -> list[Note]:
        del raw, first_order, level
        self.fragments = np.unique(np.concatenate([group.span.rows for group in walk.fragments]))
        walk.fragments = []
        return []

    def counts(self, capture: int) -> tuple[int, int]:
        """The number of packets so far of a capture that were (cut, malformed)."""
        return self._cut.get(capture, 0), self._malformed.get(capture, 0)


class Region:
    """A `ByteStream` over the bytes [begin, end) of a file."""

    def __init__(self, read_at: ReadAt, begin: int, end: int) -> None:
        self.failure: Failure | None = None
        self.reopens = False
        self._read_at = read_at
        self._begin = begin
        self._position = begin
        self._end = end

    @property
    def exhausted(self) -> bool:
        """There are no more bytes."""
        return self._position >= self._end or self.failure is not None

    @property
    def bytes_read(self) -> int:
        """See `ByteStream`."""
        return self._position - self._begin

    def extend(self, tail: bytes, need: int, size: int) -> bytes:
        """See `ByteStream`."""
        wanted = min(max(size, need - len(tail)), self._end - self._position)
        if wanted <= 0 or self.failure is not None:
            return tail
        try:
            data = self._read_at(self._position, wanted)
            if len(data) < wanted:
                self.failure = Failure("capture-cut", "it was truncated while it was read")
        except OSError as error:
            data = self._readable(self._position + wanted)
            if not data:
                self.failure = Failure("capture-broken", f"reading it failed: {error.strerror or error}")
        self._position += len(data)
        return tail + data

    def _readable(self, end: int) -> bytes:
        """The readable bytes before the first unreadable block: the same for all read sizes."""
        found = []
        position = self._position
        try:
            while position < end:
                found.append(self._read_at(position, min(end, position - position % BLOCK + BLOCK) - position))
                position += len(found[-1])
                if not found[-1]:
                    break
        except OSError:
            pass  # reported when it is reached
        return b"".join(found)

    def close(self) -> None:
        """The file belongs to the caller."""


def parser_at(head: bytes, path: str, capture: int) -> tuple[Parser, int] | None:
    """The parser for a file that begins with `head`, and the offset of its first record; None: neither format."""
    if pcap.is_pcap(head) and len(head) >= pcap.HEADER_SIZE:
        return PcapParser(head[: pcap.HEADER_SIZE], path, capture), pcap.HEADER_SIZE
    if pcapng.is_pcapng(head) and len(head) >= pcap.HEADER_SIZE and pcapng.byte_order(head) is not None:
        return PcapngParser(head, path, capture), 0
    return None


def parser_from(state: State, path: str, capture: int) -> Parser:
    """A parser that continues from `state`."""
    if isinstance(state, PcapState):
        return PcapParser.resumed(state, path, capture)
    return PcapngParser.resumed(state, path, capture)


def open_whole(read_at: ReadAt, path: str, capture: int, size: int) -> CaptureReader:
    """A reader of a whole capture, compressed or not. Raises CaptureError if it is not one."""
    head = read_at(0, min(HEAD_SIZE, size))
    if not head:
        raise CaptureError(f"{path}: {EMPTY}")
    converter = converter_for(head, path)
    stream: ByteStream = Region(read_at, 0, size)
    if converter is not None:
        stream = Compressed(stream, b"", converter)
    return CaptureReader(stream, path, capture)


class SplitReader:
    """Packets of one split; the same as those that a `CaptureReader` of the whole capture reads there."""

    def __init__(self, split: Split, state: State, read_at: ReadAt) -> None:
        self._split = split
        self._parser = parser_from(state, split.path, split.capture)
        self._parser.packets = split.packets_before
        self._stream = Region(read_at, split.begin, split.size)

    def interface(self, index: int) -> Interface:
        """The interface that packets of the capture refer to by this index."""
        return self._parser.interfaces[index]

    def read(self, size: int = WALK_SIZE) -> Iterator[Parsed]:
        """Packets and notes, from about `size` bytes at a time.

        Raises CaptureError if there are fewer packets than planned.
        """
        split, parser, stream = self._split, self._parser, self._stream
        position = split.begin
        data, need = b"", 1
        packets, notes = split.packets, split.notes
        ended = False
        while not ended and (position < split.end or split.end == split.size):
            ended = stream.exhausted
            data = stream.extend(data, need, max(min(size, split.end - position - len(data)), 1))
            parsed = parser.parse(data, position, ended=ended)
            position += parsed.consumed
            data, need = data[parsed.consumed :], parsed.need
            found = parsed.packets
            if found is not None:
                # How far the parser looks ahead depends on the pieces it is given; packets found there belong to the
                # next split.
                ours = min(len(found.start), packets)
                packets -= ours
                parsed.packets = found.slice(0, ours) if ours else None
            parsed.notes = parsed.notes[:notes]
            notes -= len(parsed.notes)
            ended = ended or parsed.given_up
            if ended and (split.end == split.size or stream.failure is not None):
                left = 0 if parsed.given_up else len(data)
                problem = end_problem(split.path, stream.failure, packets=parser.packets, position=position, left=left)
                if problem is not None:
                    parsed.notes.append((parser.packets + 1, problem))
            if parsed.packets is not None or parsed.notes:
                yield parsed
        _check_complete(split, packets, stream)


class _WholeReader:
    """The same of a compressed capture."""

    def __init__(self, split: Split, read_at: ReadAt) -> None:
        self._split = split
        self._reader = open_whole(read_at, split.path, split.capture, split.size)

    def interface(self, index: int) -> Interface:
        return self._reader.interface(index)

    def read(self, size: int = WALK_SIZE) -> Iterator[Parsed]:
        left = self._split.packets
        while (parsed := self._reader.read(size)) is not None:
            if parsed.packets is not None:
                left -= len(parsed.packets.start)
            yield parsed
        _check_complete(self._split, left, self._reader.stream)


def _check_complete(split: Split, left: int, stream: ByteStream) -> None:
    if left:
        why = stream.failure.reason if stream.failure is not None else "it was changed meanwhile"
        raise CaptureError(f"{split.path}: {abs(left)} packets differ from the planned ones: {why}")


def open_split(split: Split, read_at: ReadAt) -> SplitReader | _WholeReader:
    """A reader of a split. Raises CaptureError if its file is no longer a capture."""
    return _WholeReader(split, read_at) if split.state is None else SplitReader(split, split.state, read_at)
