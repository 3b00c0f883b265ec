"""Splits: parts of one capture that can be read independently; together they are the capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.converters import converter_for
from kafkasniff.capture.formats.pcap import HEADER_SIZE, TIME_REACH, Interface, Parsed, PcapState, RawPackets
from kafkasniff.capture.formats.reader import (
    EMPTY,
    ByteStream,
    CaptureReader,
    Compressed,
    Failure,
    State,
    end_problem,
    parser_at,
    parser_from,
)
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.link.layers import LinkWalk
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME
from kafkasniff.packets import Note, PacketBatch

__all__ = [
    "HEAD_SIZE",
    "SPLIT_SIZE",
    "WALK_SIZE",
    "PartDecoder",
    "PlannedPart",
    "ReadAt",
    "Region",
    "Split",
    "State",
    "Walked",
    "open_split",
    "open_whole",
    "parser_at",
    "parser_from",
    "piece_count",
    "pieces",
    "plan",
    "walk",
]

HEAD_SIZE: Final = 64 << 10
"""Bytes from the start of a file whose blocks provide the guessed initial state of other parts."""

BLOCK: Final = 4096
"""Bytes of a file that are readable only as a whole, or not at all."""

WALK_SIZE: Final = 8 << 20
"""Bytes walked at a time."""


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
            raw_packets = parsed.packets
            if raw_packets is not None:
                # How far the parser looks ahead depends on the pieces it is given; packets found there belong to the
                # next split.
                ours = min(len(raw_packets.start), packets)
                packets -= ours
                parsed.packets = raw_packets.slice(0, ours) if ours else None
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


# Planning how a capture is read in splits.
#
# A capture file has no index: the beginning of a packet is known only from the previous one, and the meaning of a
# packet block depends on earlier blocks. So a plan is made first, which defines for each part where it begins and with
# which parser state. Parts are walked in parallel, on a guess: each but the first begins at the first chain of
# plausible records after its nominal place, with the state that the parser has after the beginning of the file. Then
# they are compared in order: if a part ends at the place and with the state with which the next one was walked, the
# guess was right; otherwise the next part is walked again from the known state. So the plan is exact for any bytes, and
# parallel in usual cases.
#
# A walk also looks at the headers of all packets: IP fragments have to be reassembled across the borders of parts and
# captures, and reports about a capture as a whole are the sum of its parts (see `parts.py`).
#
# A compressed capture is one part, which is walked from its start.

SPLIT_SIZE: Final = 128 << 20
"""Bytes of a part, by default."""

NOWHERE: Final = -1
"""An offset that no record has."""


class PlannedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part as it is assigned for walking, when only its place is known."""

    path: str
    """Name of the capture, for messages."""
    capture: int
    """Index of the capture in its run."""
    first: int
    """It begins with the first record at or after this offset,"""
    stop: int
    """and ends with the first one at or after this."""
    size: int
    """Bytes of the whole file."""
    guess: State | None
    """Parser state to walk it with; exact for the first piece. None: compressed."""


class Walked(msgspec.Struct, frozen=True, array_like=True):
    """The result of walking a piece."""

    begin: int
    """Offset of its first record; NOWHERE if none was found."""
    end: int
    """Offset of the first record after it."""
    packets: int
    notes: int
    """Notes among them."""
    clock: int
    """Highest time of its packets; NO_TIME if there is none."""
    first_time: int
    """Time of its first packet; NO_TIME if there is none."""
    state: State | None
    """Parser state after it; None: compressed."""
    unreadable: bool = False
    """Nothing after it can be read."""
    ends_badly: bool = False
    """There is a report about its end."""
    unknown: int = 0
    """Interfaces of an unsupported link type."""
    fragments: int = 0
    """Packets with IP fragments."""
    cut: int = 0
    """Packets too short for their headers."""
    malformed: int = 0
    """Packets whose headers contradict themselves."""


def piece_count(size: int, split_size: int) -> int:
    """The number of pieces of a capture file of `size` bytes that is not compressed: a compressed one has only one."""
    return max(1, -(-size // split_size))


def pieces(read_at: ReadAt, path: str, capture: int, size: int, split_size: int = SPLIT_SIZE) -> list[PlannedPart]:
    """The pieces of a capture file of `size` bytes, to be walked.

    Raises OSError if its beginning cannot be read, CaptureError if it is empty or not a capture.
    """
    head = read_at(0, min(HEAD_SIZE, size))
    found = parser_at(head, path, capture)
    if found is None:
        # Compressed, or this raises.
        open_whole(read_at, path, capture, size).close()
        return [PlannedPart(path, capture, 0, size, size, None)]
    parser, begin = found
    start = guess = parser.state
    firsts = [begin, *range(split_size, size, split_size)] if split_size > begin else [begin]
    if len(firsts) > 1:
        parser.parse(head[begin:], begin, ended=False)
        # The beginning may end within damage: a guess concerns the data after it.
        guess = msgspec.structs.replace(parser.state, packets=0, lost_at=None)
    stops = [*firsts[1:], size]
    return [
        PlannedPart(path, capture, first, stop, size, guess if index else start)
        for index, (first, stop) in enumerate(zip(firsts, stops, strict=True))
    ]


class _Tally:
    """Counts of the packets of a piece."""

    def __init__(self, path: str, interface: Callable[[int], Interface]) -> None:
        self._decoder = PartDecoder((path,), lambda _, index: interface(index))
        self.packets = self.notes = self.unknown = self.fragments = 0
        self.clock = self.first_time = NO_TIME

    def add(self, parsed: Parsed) -> None:
        self.notes += len(parsed.notes)
        packets = parsed.packets
        if packets is None:
            return
        if not self.packets:
            self.first_time = int(packets.time_ns[0])
        self.packets += len(packets.start)
        self.clock = max(self.clock, int(packets.time_ns.max()))
        batch = self._decoder.decode(packets._replace(capture=np.zeros_like(packets.capture)), 0, [])
        self.unknown += len(batch.notes)
        self.fragments += len(self._decoder.fragments)

    def walked(self, begin: int, end: int, state: State | None, *, unreadable: bool, ends_badly: bool) -> Walked:
        cut, malformed = self._decoder.counts(0)
        return Walked(
            begin,
            end,
            self.packets,
            self.notes,
            self.clock,
            self.first_time,
            state,
            unreadable,
            ends_badly,
            self.unknown,
            self.fragments,
            cut,
            malformed,
        )


def walk(piece: PlannedPart, read_at: ReadAt, known: Walked | None = None) -> Walked:
    """Walk a piece: on its guess, or from the known state after the previous piece."""
    state = piece.guess if known is None else known.state
    if state is None:
        return _walk_whole(piece, read_at)
    parser = parser_from(state, piece.path, piece.capture)
    position = piece.first if known is None else known.end
    guessing = known is None and piece.first > HEADER_SIZE
    if guessing:
        parser.lose(position)
    begin = None if guessing else position
    tally = _Tally(piece.path, lambda index: parser.interfaces[index])
    stream = Region(read_at, position, piece.size)
    data, need = b"", 1
    ended = given_up = False
    while position < piece.stop and not ended and not given_up:
        # Up to the end of the piece, and beyond it as far as its last record goes.
        ended = stream.exhausted
        data = stream.extend(data, need, max(min(WALK_SIZE, piece.stop - position - len(data)), 1))
        parsed = parser.parse(data, position, ended=ended)
        if begin is None and not parser.lost:
            begin = parser.found_at
        tally.add(parsed)
        position += parsed.consumed
        data, need = data[parsed.consumed :], parsed.need
        given_up = parsed.given_up
    unreadable = ended or given_up or position >= piece.size
    return tally.walked(
        NOWHERE if begin is None else begin,
        piece.size if unreadable else position,
        parser.state,
        unreadable=unreadable,
        ends_badly=stream.failure is not None or bool(ended and data and not given_up),
    )


def _walk_whole(piece: PlannedPart, read_at: ReadAt) -> Walked:
    reader = open_whole(read_at, piece.path, piece.capture, piece.size)
    tally = _Tally(piece.path, reader.interface)
    while (parsed := reader.read(WALK_SIZE)) is not None:
        tally.add(parsed)
    return tally.walked(0, piece.size, None, unreadable=True, ends_badly=False)


def plan(parts: Sequence[PlannedPart], read_at: ReadAt, walked: Sequence[Walked] | None = None) -> list[Split]:
    """The splits of a capture from its pieces; `walked` are the results of walking them on their guesses."""
    if walked is None:
        walked = [walk(piece, read_at) for piece in parts]
    splits: list[Split] = []
    known: Walked | None = None
    packets, clock = 0, NO_TIME
    for index, (piece, guessed) in enumerate(zip(parts, walked, strict=True)):
        if known is not None and known.unreadable:
            break
        begin, state = (piece.first, piece.guess) if known is None else (known.end, known.state)
        found = guessed
        if known is not None and not _was_right(piece, guessed, known):
            found = walk(piece, read_at, known)
        notes = found.notes
        if guessed is found and index:
            notes -= 1  # for a guess the first note is about the bytes before its beginning
        splits.append(
            Split(
                piece.path,
                piece.capture,
                begin,
                found.end,
                piece.size,
                packets,
                found.packets,
                notes,
                clock,
                max(clock, found.clock),
                state,
                found.first_time,
                bool(notes or found.unknown or found.ends_badly),
                found.fragments,
                found.cut,
                found.malformed,
            )
        )
        packets += found.packets
        clock = max(clock, found.clock)
        known = found
    return [split for split in splits if split.begin < split.end] or splits[:1]


def _was_right(piece: PlannedPart, guessed: Walked, known: Walked) -> bool:
    """Whether a piece was walked from the place and with the state in which the previous one ended."""
    assumed, actual = piece.guess, known.state
    if guessed.begin != known.end or assumed is None or actual is None:
        return False
    if isinstance(assumed, PcapState) and isinstance(actual, PcapState):
        last = actual.last_seconds
        if last is not None and (
            guessed.first_time != NO_TIME and abs(guessed.first_time // 10**9 - last) > TIME_REACH
        ):
            return False  # the parser would have required proof that this is a record
        actual = msgspec.structs.replace(actual, last_seconds=assumed.last_seconds)
    return assumed == msgspec.structs.replace(actual, packets=assumed.packets, found_at=assumed.found_at)
