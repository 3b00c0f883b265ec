"""The packets and notes of several captures, part by part: the same as from `open_captures`, in any number of parts.

The place of a packet in the run is (packet clock, index of its capture, its number there); the clock of a packet is the
highest time so far in its capture. Sorted by place, the packets of all parts are in the order of `open_captures`.

Most packets need only their own bytes and are read split by split, in parallel. Two things do not belong to one split:
IP datagrams whose fragments are far apart, and reports about captures. They are the *rest*, which is read once for the
whole run; only the splits that the plan names are read for it. Both are rare.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import UNDESCRIBED_LINK, Interface, NoteValue, RawPackets
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.timeline.locations import CaptureFile
from kafkasniff.capture.timeline.splits import (
    SPLIT_SIZE,
    WALK_SIZE,
    PartDecoder,
    PlannedPart,
    ReadAt,
    Split,
    Walked,
    open_split,
    piece_count,
    pieces,
    plan,
    walk,
)
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME
from kafkasniff.packets import PacketBatch

__all__ = [
    "CaptureFile",
    "CapturePlan",
    "Open",
    "Place",
    "PlacedNote",
    "WalkedPiece",
    "in_order",
    "notes_of_capture",
    "notes_of_rest",
    "plan_captures",
    "read_datagrams",
    "read_notes",
    "read_split",
    "walk_piece",
]

FRAGMENTS_AT_ONCE: Final = 2_048
"""Packets with fragments that are decoded together: at most 128 MiB of them."""


Open = Callable[[CaptureFile], ReadAt]
"""Opens a capture for random access. Raises CaptureError."""

WalkedPiece = tuple[PlannedPart, Walked]
"""A piece of a capture, and what was found in it."""


class Place(NamedTuple):
    """A place in the run; they sort as packets do."""

    clock: int
    """Packet clock in nanoseconds; NO_TIME if nothing so far had a time."""
    capture: int
    number: int
    """For a packet its number in the capture; for a note that of the packet after it, one past the last at the end."""


class PlacedNote(msgspec.Struct, frozen=True):
    """A note and its place."""

    place: Place
    value: NoteValue


class CapturePlan(msgspec.Struct, frozen=True):
    """How the captures of a run are read in parts."""

    files: tuple[CaptureFile, ...]
    splits: tuple[Split, ...]
    """In order of captures, and within them of bytes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the captures, by index."""
        return tuple(file.name for file in self.files)

    def by_capture(self) -> dict[int, list[Split]]:
        """The splits of each capture that has any."""
        found: dict[int, list[Split]] = {}
        for split in self.splits:
            found.setdefault(split.capture, []).append(split)
        return found

    def noted(self) -> list[list[Split]]:
        """The splits of each capture that has notes."""
        return [splits for splits in self.by_capture().values() if any(split.has_notes for split in splits)]

    @property
    def has_fragments(self) -> bool:
        """Some packets have to be reassembled by `read_datagrams`."""
        return any(split.fragments for split in self.splits)

    def of_rest(self) -> CapturePlan:
        """The same without parts that reading the rest does not need: smaller to transfer."""
        return CapturePlan(self.files, tuple(split for split in self.splits if split.fragments))


def plan_captures(
    files: Sequence[CaptureFile],
    open_file: Open,
    *,
    split_size: int = SPLIT_SIZE,
    walked: Iterable[Sequence[WalkedPiece]] | None = None,
) -> CapturePlan:
    """Plan how to read captures; the index of a capture is its index in `files`.

    `walked`: the pieces of each capture with what `walk_piece` returned for them; by default they are walked here, one
    after the other. Raises CaptureError if a capture cannot be opened, is empty or invalid.
    """
    if walked is None:
        walked = (_walk_all(file, open_file(file), split_size) for file in files)
    splits: list[Split] = []
    for index, (file, found) in enumerate(zip(files, walked, strict=True)):
        parts = [msgspec.structs.replace(part, capture=index) for part, _ in found]
        splits.extend(plan(parts, open_file(file), [one for _, one in found]))
    return CapturePlan(tuple(files), tuple(splits))


def walk_piece(file: CaptureFile, read_at: ReadAt, split_size: int, index: int) -> WalkedPiece | None:
    """Walk one of the `piece_count` pieces of a capture; None if it does not have that many, since it is compressed.

    Raises CaptureError if the capture cannot be read, is empty or invalid.
    """
    try:
        parts = pieces(read_at, file.name, 0, file.size, split_size)
        return (parts[index], walk(parts[index], read_at)) if index < len(parts) else None
    except OSError as error:
        raise CaptureError(f"{file.name}: cannot be read ({error.strerror or error})") from None


def _walk_all(file: CaptureFile, read_at: ReadAt, split_size: int) -> list[WalkedPiece]:
    count = piece_count(file.size, split_size)
    found = (walk_piece(file, read_at, split_size, index) for index in range(count))
    return [piece for piece in found if piece is not None]


def _clocks(packets: RawPackets, before: int) -> NDArray[np.int64]:
    clocks: NDArray[np.int64] = np.maximum.accumulate(np.maximum(packets.time_ns, before))
    return clocks


def read_split(split: Split, read_at: ReadAt, *, size: int = WALK_SIZE) -> Iterator[PacketBatch]:
    """The packets of a split except those with fragments, from about `size` bytes at a time.

    `order` counts packets of the capture, from 0; `clock` is set. Raises CaptureError if the capture has changed since
    it was planned.
    """
    reader = open_split(split, read_at)
    names = ("",) * split.capture + (split.path,)
    decoder = PartDecoder(names, lambda _, index: reader.interface(index))
    clock = split.clock
    for parsed in reader.read(size):
        if parsed.packets is None:
            continue
        clocks = _clocks(parsed.packets, clock)
        clock = int(clocks[-1])
        yield decoder.decode(parsed.packets, int(parsed.packets.number[0]) - 1, [], clocks)


class _Fragment(NamedTuple):
    """A packet with an IP fragment; in order of their places."""

    place: Place
    time_ns: int
    wire: int
    link: int
    interface: int
    data: bytes


def _fragments(
    file: CaptureFile, splits: Iterable[Split], names: tuple[str, ...], open_file: Open
) -> Iterator[_Fragment]:
    """Those of one capture, by its splits."""
    read_at = open_file(file)
    for split in splits:
        if not split.fragments:
            continue
        index = split.capture
        reader = open_split(split, read_at)
        decoder = PartDecoder(names, _no_interface)
        clock = split.clock
        for parsed in reader.read():
            packets = parsed.packets
            if packets is None:
                continue
            clocks = _clocks(packets, clock)
            clock = int(clocks[-1])
            decoder.decode(packets, 0, [])
            for row in decoder.fragments.tolist():
                start = int(packets.start[row])
                yield _Fragment(
                    Place(int(clocks[row]), index, int(packets.number[row])),
                    int(packets.time_ns[row]),
                    int(packets.wire[row]),
                    int(packets.link[row]),
                    int(packets.interface[row]),
                    packets.buffer[start : start + int(packets.captured[row])],
                )


class _Datagrams:
    """Reassembles the fragments of all captures, in their order."""

    def __init__(self, plan: CapturePlan, open_file: Open) -> None:
        self._plan = plan
        self._open = open_file
        self.decoder = _JoiningDecoder(plan.names, _no_interface)
        self.notes: list[PlacedNote] = []

    def read(self) -> Iterator[PacketBatch]:
        plan, names = self._plan, self._plan.names
        merged = heapq.merge(
            *(
                _fragments(plan.files[index], splits, names, self._open)
                for index, splits in sorted(plan.by_capture().items())
                if any(split.fragments for split in splits)
            )
        )
        order = 0
        while fragments := list(islice(merged, FRAGMENTS_AT_ONCE)):
            yield self._decode(fragments, order)
            order += len(fragments)

    def _decode(self, fragments: list[_Fragment], order: int) -> PacketBatch:
        sizes = np.array([len(fragment.data) for fragment in fragments], np.int64)
        packets = RawPackets(
            b"".join(fragment.data for fragment in fragments),
            np.cumsum(sizes) - sizes,
            sizes,
            np.array([fragment.wire for fragment in fragments], np.int64),
            np.array([fragment.time_ns for fragment in fragments], np.int64),
            np.array([fragment.link for fragment in fragments], np.int32),
            np.array([fragment.interface for fragment in fragments], np.int32),
            np.array([fragment.place.capture for fragment in fragments], np.int32),
            np.array([fragment.place.number for fragment in fragments], np.int64),
        )
        clocks = np.array([fragment.place.clock for fragment in fragments], np.int64)
        batch = self.decoder.decode(packets, order, [], clocks)
        self.notes.extend(PlacedNote(fragments[note.order - order].place, note.value) for note in batch.notes)
        return batch


class _JoiningDecoder(PacketDecoder):
    """Reassembles fragments; counts of parts are added to its own."""

    def add_counts(self, capture: int, cut: int, malformed: int) -> None:
        self._cut[capture] = self._cut.get(capture, 0) + cut
        self._malformed[capture] = self._malformed.get(capture, 0) + malformed


def _no_interface(capture: int, index: int) -> Interface:
    """Reports about interfaces belong to the notes, not here."""
    del capture
    return Interface(UNDESCRIBED_LINK, index)


def read_datagrams(plan: CapturePlan, open_file: Open) -> Iterator[PacketBatch]:
    """The TCP segments in IP datagrams reassembled from fragments, of all captures, in order.

    `order` counts fragments. Raises CaptureError like `read_split`.
    """
    for batch in _Datagrams(plan, open_file).read():
        if len(batch):
            yield batch


def read_notes(plan: CapturePlan, open_file: Open) -> list[PlacedNote]:
    """All notes of a run, in order. Raises CaptureError like `read_split`."""
    notes: list[PlacedNote] = []
    for splits in plan.noted():
        file = plan.files[splits[0].capture]
        notes.extend(notes_of_capture(splits, file, open_file(file)))
    return in_order(notes, notes_of_rest(plan, open_file))


def in_order(notes: Iterable[PlacedNote], rest: Iterable[PlacedNote]) -> list[PlacedNote]:
    """All notes of a run, of `notes_of_capture` and `notes_of_rest`."""
    return sorted([*notes, *rest], key=lambda note: note.place)


def notes_of_rest(plan: CapturePlan, open_file: Open) -> list[PlacedNote]:
    """The notes that depend on fragments or on all parts of a capture. Reads only splits with fragments.

    Raises CaptureError like `read_split`.
    """
    notes: list[PlacedNote] = []
    ends: list[Place] = []
    datagrams = _Datagrams(plan, open_file)
    for _ in datagrams.read():
        pass  # for its reports
    by_capture = plan.by_capture()
    for index in range(len(plan.files)):
        splits = by_capture.get(index, [])
        ends.append(_end(splits, index))
        for split in splits:
            datagrams.decoder.add_counts(index, split.cut, split.malformed)
        notes.extend(PlacedNote(ends[-1], problem) for problem in datagrams.decoder.finish(index))
    last = Place(max((end.clock for end in ends), default=NO_TIME), len(ends), 0)
    notes.extend(datagrams.notes)
    notes.extend(PlacedNote(last, problem) for problem in datagrams.decoder.close())
    return notes


def _end(splits: Sequence[Split], index: int) -> Place:
    """The place of the end of a capture."""
    if not splits:
        return Place(NO_TIME, index, 1)
    return Place(splits[-1].clock_after, index, splits[-1].packets_before + splits[-1].packets + 1)


def notes_of_capture(splits: Sequence[Split], file: CaptureFile, read_at: ReadAt) -> list[PlacedNote]:
    """The notes of one capture except for its fragments. Raises CaptureError like `read_split`."""
    index = splits[0].capture
    # A single capture, however many others there are.
    splits = [msgspec.structs.replace(split, capture=0) for split in splits]
    notes: list[PlacedNote] = []
    waiting: list[tuple[int, NoteValue]] = []
    """With the number of the packet that they precede, which was not read yet."""
    readers = [open_split(split, read_at) for split in splits if split.has_notes]
    # A single decoder, since it reports on an interface only once; interfaces keep their indices.
    decoder = PartDecoder((file.name,), lambda _, which: readers[0].interface(which))
    clock, number = NO_TIME, 1
    for split in splits:
        if waiting and split.packets:
            place = Place(max(clock, split.first_time), index, number)
            notes.extend(PlacedNote(place, value) for _, value in waiting)
            waiting = []
        if split.has_notes:
            for parsed in readers[0].read():
                waiting.extend(parsed.notes)
                packets = parsed.packets
                if packets is None:
                    continue
                clocks = _clocks(packets, clock)
                after = number + len(clocks)
                batch = decoder.decode(packets, number, [])
                found = [(place, value) for place, value in waiting if place < after]
                found.extend((note.order, note.value) for note in batch.notes)
                notes.extend(PlacedNote(Place(int(clocks[at - number]), index, at), value) for at, value in found)
                waiting = [(place, value) for place, value in waiting if place >= after]
                clock, number = int(clocks[-1]), after
            readers.pop(0)
        clock, number = split.clock_after, split.packets_before + split.packets + 1
    notes.extend(PlacedNote(_end(splits, index), value) for _, value in waiting)
    return notes
