"""CaptureSource: one or more captures as one timeline of `PacketBatch`.

The order is that of (running maximum of the time within its capture, index of the capture): packets of one capture are
never reordered, whatever their time stamps; ties are ordered by argument. It does not depend on the chunk size.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import Interface, NoteValue, RawPackets
from kafkasniff.capture.formats.reader import BROKEN_KINDS, CaptureReader, open_path, open_pipe
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.timeline.locations import capture_at, open_capture, with_folders
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.threads import ClosedAtExit, Threads

PROBE_SIZE: Final = 64 << 10
"""Bytes read at a time to find a capture's first packet."""


class Cursor:
    """Packets of one capture that are read and not yet merged, each with its key: the running maximum of the times."""

    def __init__(
        self, capture: int, name: str, reader: CaptureReader, reopen: Callable[[], CaptureReader] | None
    ) -> None:
        """`reopen` opens the capture again from its start; None if that is impossible (a pipe)."""
        self.capture = capture
        self.name = name
        self.first_key: int = NO_TIME
        """No packet of the capture has a lower key; known after `probe`."""
        self.ended = False
        self.broken = False
        """The capture turned out to be damaged."""
        self._reader: CaptureReader | None = reader
        self._reopen = reopen
        self._packets: RawPackets | None = None
        self._keys: NDArray[np.int64] = np.empty(0, np.int64)
        self._key: int = NO_TIME
        """Key of the last packet that was read."""
        self._number = 1
        """Number of the first packet that is not merged yet."""
        self._notes: deque[tuple[int, NoteValue]] = deque()
        self._interfaces: Callable[[int], Interface] = reader.interface
        self._read_before = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read so far."""
        return self._reader.stream.bytes_read if self._reader is not None else self._read_before

    @property
    def empty(self) -> bool:
        """No packet is waiting to be merged."""
        return self._packets is None

    @property
    def last_key(self) -> int:
        """Key of the last packet that is waiting."""
        return int(self._keys[-1])

    def interface(self, index: int) -> Interface:
        """The interface that packets refer to by this index."""
        return self._interfaces(index)

    def probe(self) -> None:
        """Find `first_key`, and close the capture until it is needed: hundreds of files must not be open at once."""
        if self._reopen is None or self._reader is None:
            return
        while (parsed := self._reader.read(PROBE_SIZE)) is not None:
            if parsed.packets is not None:
                self.first_key = int(parsed.packets.time_ns[0])
                break
        self.close()
        self._read_before = 0

    def fill(self, size: int) -> None:
        """Read until a packet is waiting or the capture has ended."""
        if self._reader is None and not self.ended:
            self._open()
        while self._packets is None and not self.ended:
            parsed = self._reader.read(size) if self._reader is not None else None
            if parsed is None:
                self.ended = True
                self.close()
                return
            for _, value in parsed.notes:
                if isinstance(value, Problem) and value.kind in BROKEN_KINDS:
                    self.broken = True
            self._notes.extend(parsed.notes)
            if parsed.packets is not None:
                self._packets = parsed.packets
                self._keys = np.maximum.accumulate(np.maximum(parsed.packets.time_ns, self._key))
                self._key = self.last_key

    def _open(self) -> None:
        assert self._reopen is not None
        try:
            self._reader = self._reopen()
        except CaptureError as error:
            # It existed when the run began.
            self._notes.append((1, Problem("capture-broken", str(error), capture=self.name)))
            self.broken = True
            self.ended = True
            return
        self._interfaces = self._reader.interface

    def up_to(self, key: int, capture: int) -> int:
        """The number of waiting packets up to (key, capture)."""
        return int(np.searchsorted(self._keys, key, side="right" if self.capture <= capture else "left"))

    def take(self, count: int) -> tuple[RawPackets, NDArray[np.int64], list[tuple[int, NoteValue]]]:
        """The first `count` waiting packets, their keys, and the notes among them, each with the row it precedes."""
        assert self._packets is not None
        packets, keys = self._packets, self._keys
        if count < len(keys):
            self._packets, self._keys = packets.slice(count, len(keys)), keys[count:]
            packets, keys = packets.slice(0, count), keys[:count]
        else:
            self._packets = None
        notes = []
        while self._notes and self._notes[0][0] < self._number + count:
            number, value = self._notes.popleft()
            notes.append((number - self._number, value))
        self._number += count
        return packets, keys, notes

    def rest(self) -> list[NoteValue]:
        """Notes after the last packet, at the end."""
        values = [value for _, value in self._notes]
        self._notes.clear()
        return values

    def close(self) -> None:
        """Release the file."""
        if self._reader is not None:
            self._read_before = self._reader.stream.bytes_read
            self._reader.close()
            self._reader = None


CHUNK_SIZE: Final = 4 << 20
"""Bytes of captures in memory at a time, by default."""

SMALLEST_SHARE: Final = 64 << 10
"""Bytes read at a time from each of many captures that overlap."""

EMPTY: Final = np.empty(0, np.int64)


class CaptureSource(ClosedAtExit):
    """Iterable of `PacketBatch` over captures; a context manager. It can be iterated once."""

    def __init__(self, cursors: list[Cursor], chunk_size: int, bytes_total: int | None) -> None:
        self.captures: tuple[str, ...] = tuple(cursor.name for cursor in cursors)
        """Names of the captures, by index."""
        self.bytes_total = bytes_total
        """Bytes of all files (compressed ones as they are); None if a pipe is among them."""
        self._cursors = cursors
        self._chunk_size = chunk_size
        self._iterated = False
        self.packets = RawPackets.empty()
        """All packets that the last batch covers, TCP or not."""
        self.fragments = EMPTY
        """Rows of those that are IP fragments, which contribute to rows of other packets, or to none."""

    @property
    def bytes_read(self) -> int:
        """Bytes of all files read so far."""
        return sum(cursor.bytes_read for cursor in self._cursors)

    @property
    def broken(self) -> bool:
        """A capture turned out to be truncated or damaged."""
        return any(cursor.broken for cursor in self._cursors)

    def __iter__(self) -> Iterator[PacketBatch]:
        self._begin()
        return (batch for batch, _ in self._batches())

    def _begin(self) -> None:
        if self._iterated:
            raise UsageError("captures were read already; open them again")
        self._iterated = True

    def close(self) -> None:
        """Close all files."""
        for cursor in self._cursors:
            cursor.close()

    def interface(self, capture: int, index: int) -> Interface:
        """A capture's description of an interface of its packets."""
        return self._cursors[capture].interface(index)

    def _batches(self, *, pauses: bool = False) -> Iterator[tuple[PacketBatch, list[int] | None]]:
        decoder = PacketDecoder(self.captures, self.interface)
        order = 0
        notes: list[Note] = []
        waiting = deque(sorted(self._cursors, key=lambda cursor: (cursor.first_key, cursor.capture)))
        active: list[Cursor] = []
        begun = False
        while True:
            share = max(self._chunk_size // max(1, len(active)), min(self._chunk_size, SMALLEST_SHARE))
            for cursor in [cursor for cursor in active if cursor.empty]:
                cursor.fill(share)
                if cursor.ended:
                    active.remove(cursor)
                    notes.extend(Note(order, value) for value in cursor.rest())
                    notes.extend(Note(order, problem) for problem in decoder.finish(cursor.capture))
            if waiting and not active:
                if begun and pauses:
                    batch, notes, begun = decoder.decode(RawPackets.empty(), order, notes), [], False
                    self.packets, self.fragments = RawPackets.empty(), EMPTY
                    yield batch, [cursor.capture for cursor in self._cursors if cursor.ended]
                active.append(waiting.popleft())
                continue
            if not active:
                break
            key, capture = min((cursor.last_key, cursor.capture) for cursor in active)
            if waiting and (waiting[0].first_key, waiting[0].capture) <= (key, capture):
                active.append(waiting.popleft())
                active.sort(key=lambda cursor: cursor.capture)
                continue
            # Every active capture has a packet not before this place or after it, so everything up to it can be
            # emitted.
            packets, clock, found = _merged(active, key, capture)
            notes.extend(Note(order + row, value) for row, value in found)
            batch = decoder.decode(packets, order, notes, clock)
            notes, begun = [], True
            order = batch.end_order
            self.packets = packets
            self.fragments = np.concatenate(decoder.fragment_rows) if decoder.fragment_rows else EMPTY
            yield batch, None
        notes.extend(Note(order, problem) for problem in decoder.close())
        self.packets, self.fragments = RawPackets.empty(), EMPTY
        if notes:
            yield decoder.decode(RawPackets.empty(), order, notes), None


def with_pauses(source: CaptureSource) -> Iterator[tuple[PacketBatch, list[int] | None]]:
    """The batches of a source, each with None; and empty ones at places where a run may stop and resume later.

    There no capture is partially read, everything before has been in the batches so far, and the list has the indices
    of the finished captures. Raises UsageError like iterating does.
    """
    source._begin()
    return source._batches(pauses=True)


def noted(source: CaptureSource, problems: Iterable[Problem]) -> PacketBatch:
    """A batch with only problems, before the first one of a source."""
    notes = [Note(0, problem) for problem in problems]
    return PacketDecoder(source.captures, source.interface).decode(RawPackets.empty(), 0, notes)


def _merged(
    active: list[Cursor], key: int, capture: int
) -> tuple[RawPackets, NDArray[np.int64], list[tuple[int, NoteValue]]]:
    """The waiting packets of these captures up to (key, capture), in order, their keys, notes with their rows.

    Sorted by key, packets form the packet clock of the run: a key is the highest time so far.
    """
    taken = [cursor.take(count) for cursor in active if (count := cursor.up_to(key, capture))]
    if len(taken) == 1:
        return taken[0]
    # The captures are in ascending order: a stable sort by key orders ties by capture.
    keys_together = np.concatenate([keys for _, keys, _ in taken])
    order = np.argsort(keys_together, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    notes: list[tuple[int, NoteValue]] = []
    base = 0
    for _, keys, found in taken:
        notes.extend((int(place[base + row]), value) for row, value in found)
        base += len(keys)
    notes.sort(key=lambda note: note[0])
    return RawPackets.merge([packets for packets, _, _ in taken], order), keys_together[order], notes


def open_captures(
    paths: Sequence[str | os.PathLike[str]], *, stdin: BinaryIO | None = None, chunk_size: int = CHUNK_SIZE
) -> CaptureSource:
    """Open capture files as one timeline; `-` is `stdin` (default: the process's), which may be a live pipe.

    Reads pcap and pcapng, plain or compressed with gzip, zstd, LZ4, xz or bzip2; a folder means the captures in it, by
    name, a pattern (`*`, `?`, `[…]`) the files that match, and there are remote ones (`locations`). Raises CaptureError
    if one cannot be opened, is empty or invalid, UsageError if there is no path or `-` is repeated.
    """
    names = with_folders([os.fspath(path) for path in paths])
    if not names:
        raise UsageError("name at least one capture, or - for stdin")
    if names.count("-") > 1:
        raise UsageError("- (stdin) can be read only once")
    if chunk_size < 1:
        raise UsageError("chunk_size must be positive")
    cursors: list[Cursor] = []
    try:
        for capture, path in enumerate(names):
            cursors.append(_cursor(capture, path, stdin))
            if len(names) > 1:
                cursors[-1].probe()
    except BaseException:
        for cursor in cursors:
            cursor.close()
        raise
    return CaptureSource(cursors, chunk_size, _total(names))


def _cursor(capture: int, path: str, stdin: BinaryIO | None) -> Cursor:
    if path == "-":
        stream = open_pipe(sys.stdin.buffer if stdin is None else stdin)
        return Cursor(capture, "stdin", CaptureReader(stream, "stdin", capture), None)
    if not Location.of(path).is_local:
        return _remote_cursor(capture, path)
    reader = CaptureReader(open_path(path), path, capture)
    if not reader.stream.reopens:
        return Cursor(capture, path, reader, None)
    return Cursor(capture, path, reader, lambda: CaptureReader(open_path(path), path, capture))


def _remote_cursor(capture: int, path: str) -> Cursor:
    from kafkasniff.capture.timeline.splits import open_whole

    file = capture_at(path)

    def opened() -> CaptureReader:
        return open_whole(open_capture(file), file.name, capture, file.size)

    return Cursor(capture, file.name, opened(), opened)


def _total(paths: list[str]) -> int | None:
    """Bytes of all files; None if one is not a regular file of this machine."""
    total = 0
    for path in paths:
        if path == "-" or not Location.of(path).is_local:
            return None
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total


class ReadAhead:
    """The batches of a source; one is read while the previous one is processed."""

    def __init__(self, source: CaptureSource, threads: Threads) -> None:
        self._source = source
        self._threads = threads
        self.bytes_read = 0
        """As in `CaptureSource`, as of reading the last yielded batch."""
        self.broken = False

    @property
    def bytes_total(self) -> int | None:
        """As in `CaptureSource`."""
        return self._source.bytes_total

    def __iter__(self) -> Iterator[PacketBatch]:
        batches = iter(self._source)
        source = self._source

        def read(_: int) -> tuple[PacketBatch | None, int, bool]:
            batch = next(batches, None)
            return batch, source.bytes_read, source.broken

        task = self._threads.begin(read)
        while True:
            batch, self.bytes_read, self.broken = task.result()
            if batch is None:
                return
            task = self._threads.begin(read)
            yield batch
