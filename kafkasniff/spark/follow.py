"""Following captures as they are written: how far they can be read, and the data between two such positions.

The state of a file between two looks is plain data, which a checkpoint keeps as JSON. It includes the state of the
file's parser, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np

from kafkasniff.capture.formats.raw import NoteValue
from kafkasniff.capture.formats.reader import BROKEN_KINDS
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.timeline.parts import CaptureFile, Place, PlacedNote
from kafkasniff.capture.timeline.splits import (
    HEAD_SIZE,
    WALK_SIZE,
    ReadAt,
    Region,
    Split,
    State,
    open_split,
    open_whole,
    parser_at,
    parser_from,
)
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import PacketBatch

__all__ = ["ReadProgress", "advance", "begin", "begins_as", "digest", "read_between", "split_between", "whole"]

HEAD: Final = 1_024
"""Maximum number of bytes at the start of a file that identify it: they include the times of its first packets."""

SMALLEST: Final = 40
"""A file with fewer bytes contains no packet."""


class ReadProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a capture was read."""

    index: int
    """Number of the capture in the order of discovery."""
    head: str
    """Identifies its beginning, see `digest`."""
    at: int = 0
    """Bytes that were read: whole packets only."""
    seen: int = 0
    """Bytes that existed."""
    packets: int = 0
    notes: int = 0
    clock: int | None = None
    """Highest time of its packets in nanoseconds."""
    state: State | None = None
    """State of the parser at `at`; None for a compressed capture, which is read as a whole."""
    finished: bool = False
    """No more data is expected."""
    same: bool = False
    """The capture was read under another name, before it was compressed."""

    @property
    def unread(self) -> int:
        """Bytes that existed and were not read."""
        return 0 if self.finished else max(0, self.seen - self.at)


def digest(read_at: ReadAt, size: int) -> str:
    """Identifies a file by its first `size` bytes: the digest stays valid while the file grows.

    Raises OSError.
    """
    size = min(size, HEAD)
    return f"{size}-{blake2b(read_at(0, size), digest_size=8).hexdigest()}"


def begins_as(read_at: ReadAt, known: str) -> bool:
    """Whether a file begins with the bytes of a known digest. Raises OSError."""
    return digest(read_at, int(known.partition("-")[0])) == known


def begin(file: CaptureFile, read_at: ReadAt, index: int) -> tuple[int, ReadProgress] | None:
    """The time of a capture's first packet, and the start position; None if it has no packet yet.

    For compressed captures see `whole`. Raises OSError.
    """
    head = read_at(0, min(HEAD_SIZE, file.size))
    found = parser_at(head, file.name, index)
    if found is None or len(head) < SMALLEST:
        return None
    parser, start = found
    standing = ReadProgress(index, digest(read_at, len(head)), start, start, state=parser.state)
    parsed = parser.parse(head[start:], start, ended=False)
    # Damage before the first packet may be longer than the part examined.
    if parsed.packets is None and not parser.lost:
        return None
    return NO_TIME if parsed.packets is None else int(parsed.packets.time_ns[0]), standing


def whole(file: CaptureFile, read_at: ReadAt, index: int, *, complete: bool) -> tuple[int, ReadProgress] | None:
    """The time of the first packet of a compressed capture, and its end position, up to which it is read here.

    None if it is truncated, unless it is known to be `complete`. Raises OSError; CaptureError if it is not a capture.
    """
    reader = open_whole(read_at, file.name, index, file.size)
    packets = notes = 0
    first = clock = NO_TIME
    broken = False
    while (parsed := reader.read(WALK_SIZE)) is not None:
        notes += len(parsed.notes)
        broken = broken or any(isinstance(value, Problem) and value.kind in BROKEN_KINDS for _, value in parsed.notes)
        if parsed.packets is not None:
            first = first if packets else int(parsed.packets.time_ns[0])
            packets += len(parsed.packets.start)
            clock = max(clock, int(parsed.packets.time_ns.max()))
    if broken and not complete:
        return None
    head = digest(read_at, file.size)
    standing = ReadProgress(index, head, file.size, file.size, packets, notes, _known(clock), finished=True)
    return first, standing


def _known(clock: int) -> int | None:
    return None if clock == NO_TIME else clock


def _clock(standing: ReadProgress | None) -> int:
    return NO_TIME if standing is None or standing.clock is None else standing.clock


def advance(
    file: CaptureFile, read_at: ReadAt, standing: ReadProgress, most: int, *, finish: bool = False
) -> ReadProgress:
    """Read on from `standing`: up to the last whole packet, and not much more than `most` bytes.

    `finish`: the file will not grow any more; an incomplete packet at its end counts as truncated. Raises CaptureError
    if it cannot be read.
    """
    if standing.state is None or standing.finished:
        return standing
    parser = parser_from(standing.state, file.name, standing.index)
    position, notes, clock = standing.at, standing.notes, _clock(standing)
    stream = Region(read_at, position, file.size)
    stop = min(file.size, position + most)
    data, need = b"", 1
    ended = given_up = False
    while (position < stop or (finish and parser.lost)) and not ended and not given_up:
        if stream.exhausted:
            if not finish:
                break
            ended = True
        data = stream.extend(data, need, max(min(WALK_SIZE, stop - position - len(data)), 1))
        if stream.failure is not None:
            raise CaptureError(f"{file.name}: {stream.failure.reason}")
        parsed = parser.parse(data, position, ended=ended)
        position += parsed.consumed
        data, need, given_up = data[parsed.consumed :], parsed.need, parsed.given_up
        notes += len(parsed.notes)
        if parsed.packets is not None:
            clock = max(clock, int(parsed.packets.time_ns.max()))
    finished = ended or given_up
    return ReadProgress(
        standing.index,
        standing.head,
        file.size if finished else position,
        file.size,
        parser.packets,
        notes,
        _known(clock),
        parser.state,
        finished,
    )


def split_between(file: CaptureFile, start: ReadProgress | None, end: ReadProgress) -> Split:
    """The data from one position to the next; None: from the beginning of a compressed capture."""
    before = start or ReadProgress(end.index, end.head)
    return Split(
        file.name,
        end.index,
        before.at,
        end.at,
        # The reader may only look at bytes that existed, so that every attempt finds the same. A size beyond the end
        # means that this is not the end of the file.
        end.at if end.finished else max(end.seen, end.at + 1),
        before.packets,
        end.packets - before.packets,
        end.notes - before.notes,
        _clock(start),
        _clock(end),
        before.state,
    )


def read_between(split: Split, read_at: ReadAt) -> Iterator[tuple[PacketBatch | None, list[PlacedNote]]]:
    """Packets and notes of a split. Fragments are reassembled only if all of them are in it.

    Raises CaptureError if the file is gone or was replaced.
    """
    reader = open_split(split, read_at)
    names = ("",) * split.capture + (split.path,)
    decoder = PacketDecoder(names, lambda _, index: reader.interface(index))
    clock, following = split.clock, split.packets_before + 1
    for parsed in reader.read():
        found: list[tuple[int, NoteValue]] = list(parsed.notes)
        clocks = np.empty(0, np.int64)
        first = following
        batch: PacketBatch | None = None
        if parsed.packets is not None:
            clocks = np.maximum.accumulate(np.maximum(parsed.packets.time_ns, clock))
            batch = decoder.decode(parsed.packets, first, [], clocks)
            found.extend((note.order, note.value) for note in batch.notes)
            clock, following = int(clocks[-1]), first + len(clocks)
        notes = [
            PlacedNote(Place(int(clocks[at - first]) if first <= at < following else clock, split.capture, at), value)
            for at, value in found
        ]
        yield batch, notes
    ends = [*decoder.finish(split.capture), *decoder.close()]
    yield None, [PlacedNote(Place(clock, split.capture, following), problem) for problem in ends]
