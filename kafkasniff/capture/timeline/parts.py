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

from kafkasniff.capture.formats.raw import UNDESCRIBED_LINK, Interface, NoteValue, RawPackets
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.timeline.locations import CaptureFile
from kafkasniff.capture.timeline.planning import SPLIT_SIZE, PlannedPart, Walked, pieces, plan, walk
from kafkasniff.capture.timeline.splits import WALK_SIZE, PartDecoder, ReadAt, Split, open_split
from kafkasniff.errors import CaptureError
from kafkasniff.tcp.packets import NO_TIME, PacketBatch

__all__ = [
    "CaptureFile",
    "CapturePlan",
    "Open",
    "Place",
    "PlacedNote",
    "plan_captures",
    "read_datagrams",
    "read_notes",
    "read_split",
]

FRAGMENTS_AT_ONCE: Final = 2_048
"""Packets with fragments that are decoded together: at most 128 MiB of them."""


Open = Callable[[CaptureFile], ReadAt]
"""Opens a capture for random access. Raises CaptureError."""


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
    walk_all: Callable[[Sequence[PlannedPart]], Iterable[Walked]] | None = None,
) -> CapturePlan:
    """Plan how to read captures; the index of a capture is its index in `files`.

    `walk_all` walks pieces of all captures, in any order, and returns what it found in each; by default they are walked
    one after the other. Raises CaptureError if a capture cannot be opened, is empty or invalid.
    """
    readers = [open_file(file) for file in files]
    parts = [_pieces(file, index, readers[index], split_size) for index, file in enumerate(files)]
    every = [piece for of_one in parts for piece in of_one]
    walked = iter(walk_all(every) if walk_all is not None else (walk(piece, readers[piece.capture]) for piece in every))
    splits: list[Split] = []
    for of_one, read_at in zip(parts, readers, strict=True):
        splits.extend(plan(of_one, read_at, list(islice(walked, len(of_one)))))
    return CapturePlan(tuple(files), tuple(splits))


def _pieces(file: CaptureFile, index: int, read_at: ReadAt, split_size: int) -> list[PlannedPart]:
    try:
        return pieces(read_at, file.name, index, file.size, split_size)
    except OSError as error:
        raise CaptureError(f"{file.name}: cannot be read ({error.strerror or error})") from None


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


def _splits_by_capture(plan: CapturePlan) -> dict[int, list[Split]]:
    """The splits of each capture that has any."""
    found: dict[int, list[Split]] = {}
    for split in plan.splits:
        found.setdefault(split.capture, []).append(split)
    return found


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
                for index, splits in sorted(_splits_by_capture(plan).items())
                if any(split.fragments for split in splits)
            )
        )
        order = 0
        while found := list(islice(merged, FRAGMENTS_AT_ONCE)):
            yield self._decode(found, order)
            order += len(found)

    def _decode(self, found: list[_Fragment], order: int) -> PacketBatch:
        sizes = np.array([len(fragment.data) for fragment in found], np.int64)
        packets = RawPackets(
            b"".join(fragment.data for fragment in found),
            np.cumsum(sizes) - sizes,
            sizes,
            np.array([fragment.wire for fragment in found], np.int64),
            np.array([fragment.time_ns for fragment in found], np.int64),
            np.array([fragment.link for fragment in found], np.int32),
            np.array([fragment.interface for fragment in found], np.int32),
            np.array([fragment.place.capture for fragment in found], np.int32),
            np.array([fragment.place.number for fragment in found], np.int64),
        )
        clocks = np.array([fragment.place.clock for fragment in found], np.int64)
        batch = self.decoder.decode(packets, order, [], clocks)
        self.notes.extend(PlacedNote(found[note.order - order].place, note.value) for note in batch.notes)
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
    ends: list[Place] = []
    datagrams = _Datagrams(plan, open_file)
    for _ in datagrams.read():
        pass  # for its reports
    by_capture, names = _splits_by_capture(plan), plan.names
    for index, file in enumerate(plan.files):
        splits = by_capture.get(index, [])
        found, end = _notes_of_capture(splits, index, open_file(file), names)
        ends.append(end)
        for split in splits:
            datagrams.decoder.add_counts(index, split.cut, split.malformed)
        notes.extend(found)
        notes.extend(PlacedNote(end, problem) for problem in datagrams.decoder.finish(index))
    last = Place(max((end.clock for end in ends), default=NO_TIME), len(ends), 0)
    notes.extend(datagrams.notes)
    notes.extend(PlacedNote(last, problem) for problem in datagrams.decoder.close())
    return sorted(notes, key=lambda note: note.place)


def _notes_of_capture(
    splits: list[Split], index: int, read_at: ReadAt, names: tuple[str, ...]
) -> tuple[list[PlacedNote], Place]:
    """Those of one capture except for its fragments, and the place of its end."""
    notes: list[PlacedNote] = []
    waiting: list[tuple[int, NoteValue]] = []
    """With the number of the packet that they precede, which was not read yet."""
    readers = [open_split(split, read_at) for split in splits if split.has_notes]
    # A single decoder, since it reports on an interface only once; interfaces keep their indices.
    decoder = PartDecoder(names, lambda _, which: readers[0].interface(which))
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
    end = Place(clock, index, number)
    notes.extend(PlacedNote(end, value) for _, value in waiting)
    return notes, end
