"""The streaming reader: follows a folder (or a pattern) of rotated captures as they are written.

The stream's offset records, per file, how far it was read (`ReadProgress`); a micro-batch is the data between
two offsets. Files are read in the order of their first packets. If Spark requests a batch again, even after a restart,
it gets the same rows as long as the files exist.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from kafkasniff.capture.formats.converters import MAGIC_SIZE, inflater_for
from kafkasniff.capture.formats.pcap import NoteValue
from kafkasniff.capture.formats.reader import BROKEN_KINDS
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.timeline.locations import is_capture, listed, open_capture
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
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.addresses import Location
from kafkasniff.spark.options import SourceOptions
from kafkasniff.spark.packet_rows import note_rows, packet_rows, secret_rows

# -- progress of a file ------------------------------------------------------------------------------------------------
#
# Following captures as they are written: how far they can be read, and the data between two such positions.
#
# The state of a file between two looks is plain data, which a checkpoint keeps as JSON. It includes the state of the
# file's parser, so that nothing is read twice.

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


# -- the reader --------------------------------------------------------------------------------------------------------

_LOG: Final = logging.getLogger(__name__)
NO_LIMIT: Final = 1 << 62


class _Offset(msgspec.Struct):
    """An offset of the stream."""

    next: int = 0
    """Index of the next capture that is found."""
    files: dict[str, ReadProgress] = msgspec.field(default_factory=dict)
    """Positions by file name."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> _Offset:
        return msgspec.convert(given, cls, str_keys=True)

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return found


class StreamPartition(InputPartition):
    """Input of one task of a micro-batch: a part of a file, or problems about lost files."""

    def __init__(
        self,
        file: CaptureFile | None,
        start: ReadProgress | None,
        end: ReadProgress | None,
        lost: tuple[PlacedNote, ...] = (),
    ) -> None:
        super().__init__(None)
        self.file = file
        self.start = start
        self.end = end
        self.lost = lost


class CaptureStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the captures of one folder. Raises UsageError if the options do not name exactly one."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        if len(options.paths) != 1:
            raise UsageError("a stream follows one folder, or one pattern")
        if (options.selection.after_ns, options.selection.before_ns) != (None, None):
            # A file that grows would come or go with each look.
            raise UsageError("modifiedafter and modifiedbefore are not for streams")
        self._options = options
        self._columns = columns
        self._location = Location.of(options.paths[0])
        if self._location.is_local:
            self._location = self._location.at(self._location.uri)
        self._still: dict[str, tuple[int, float]] = {}
        """The size of each file, and since when it has that size."""
        self._last: dict[str, int] | None = None
        """Files and sizes up to which the query reads if it is to end with the available data."""

    # -- offsets: on the driver ------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing is read yet."""
        return _Offset().plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of option `maxbytespertrigger`."""
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit this query to the data that exists now."""
        self._last = {file.name: file.size for file in self._files().values()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the files can be read. Raises CaptureError if one is lost (see option `failondataloss`)."""
        offset = _Offset.of(start)
        files = self._files()
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else NO_LIMIT
        known: dict[str, ReadProgress] = {}
        for name, standing in offset.files.items():
            file = files.get(name)
            if file is None:
                self._lose(name, standing.unread, "it vanished")
            elif file.size < standing.at or not self._is_same(file, standing):
                self._lose(name, standing.unread, "another file has replaced it")
            else:
                known[name] = standing
                if standing.finished and not standing.same and file.size > standing.at:
                    self._lose(name, file.size - standing.at, "it grew after it had counted as finished")
        fresh = [file for name, file in files.items() if name not in known]
        for name, standing in self._begun(fresh, offset.files, offset.next):
            known[name] = standing
            offset.next = standing.index + 1
        offset.files = dict(sorted(known.items(), key=lambda item: item[1].index))
        for name, standing in list(offset.files.items()):
            new = name not in start["files"]
            if left <= 0 and new and not standing.same:
                del offset.files[name]  # the next look finds it again
            elif left > 0 and standing.finished:
                left -= standing.at if new and not standing.same else 0
            elif left > 0:
                file = files[name]
                finish = self._is_still(file) and file.size > standing.at
                further = advance(file, open_capture(file), standing, left, finish=finish)
                left -= further.at - standing.at
                offset.files[name] = further
        return offset.plain()

    def _files(self) -> dict[str, CaptureFile]:
        """The existing files, by name."""
        files = {file.name: file for file in listed(self._location.uri, self._options.selection)}
        if self._last is not None:
            last = self._last
            files = {
                name: msgspec.structs.replace(file, size=min(file.size, last[name]))
                for name, file in files.items()
                if name in last
            }
        now = time.monotonic()
        self._still = {
            name: (file.size, self._still[name][1])
            if name in self._still and self._still[name][0] == file.size
            else (file.size, now)
            for name, file in files.items()
        }
        return files

    def _is_still(self, file: CaptureFile) -> bool:
        return time.monotonic() - self._still[file.name][1] >= self._options.finish_after

    @staticmethod
    def _is_same(file: CaptureFile, standing: ReadProgress) -> bool:
        try:
            return begins_as(open_capture(file), standing.head)
        except OSError:
            return False  # it vanished just now

    def _begun(
        self, fresh: list[CaptureFile], known: dict[str, ReadProgress], index: int
    ) -> Iterator[tuple[str, ReadProgress]]:
        """The captures among new files, in the order of their first packets, numbered from `index`."""
        found: list[tuple[int, str, ReadProgress]] = []
        for file in fresh:
            read_at = open_capture(file)
            try:
                if not is_capture(read_at):
                    continue
                plain = known.get(file.name.rpartition(".")[0])
                if inflater_for(read_at(0, MAGIC_SIZE)) is None:
                    first = begin(file, read_at, 0)
                elif plain is not None:
                    # tcpdump -z: data that was read before compression must not be read again.
                    head = digest(read_at, file.size)
                    first = NO_TIME, ReadProgress(0, head, file.size, file.size, finished=True, same=True)
                else:
                    first = whole(file, read_at, 0, complete=self._is_still(file))
            except OSError:
                continue  # it vanished, or does not exist yet: left to the next look
            if first is not None:
                found.append((first[0], file.name, first[1]))
        for number, (_, name, standing) in enumerate(sorted(found, key=lambda item: item[:2]), index):
            yield name, msgspec.structs.replace(standing, index=number)

    def _lose(self, name: str, size: int, why: str) -> None:
        if not size:
            return
        text = f"{name}: {size} bytes were not read: {why}"
        if self._options.fail_on_loss:
            raise CaptureError(f"{text} (failondataloss=false ignores this)")
        _LOG.warning("%s", text)

    # -- micro-batches ---------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A partition for each file with more data."""
        before, after = _Offset.of(start), _Offset.of(end)
        parts: list[InputPartition] = []
        lost: list[PlacedNote] = []
        for name, standing in before.files.items():
            new = after.files.get(name)
            if (new is None or new.head != standing.head) and standing.unread:
                clock = NO_TIME if standing.clock is None else standing.clock
                text = f"{name}: {standing.unread} bytes vanished before they were read"
                problem = Problem("capture-cut", text, capture=name, bytes=standing.unread)
                lost.append(PlacedNote(Place(clock, standing.index, standing.packets + 1), problem))
        for name, standing in after.files.items():
            old = before.files.get(name)
            if old is not None and old.head != standing.head:
                old = None
            file = CaptureFile(name, self._location.at(Location.of(name).path).uri, standing.seen)
            if not standing.same and (old is None or standing.at > old.at):
                parts.append(StreamPartition(file, old, standing))
        if lost and self._options.table == "notes":
            parts.append(StreamPartition(None, None, None, tuple(lost)))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises CaptureError if its file is gone (see option `failondataloss`)."""
        assert isinstance(partition, StreamPartition)
        if partition.lost:
            yield self._note_rows(list(partition.lost), {})
        file, end = partition.file, partition.end
        if file is None or end is None:
            return
        try:
            for batch, notes in self._between(file, partition.start, end):
                if self._options.table == "notes":
                    if notes:
                        yield self._note_rows(notes, {end.index: file.name})
                    continue
                if batch is not None:
                    rows = packet_rows(batch, self._columns, ports=self._options.ports)
                    if rows.num_rows:
                        yield rows
                if notes and self._options.secrets:
                    rows = secret_rows(notes, {end.index: file.name})
                    if rows.num_rows:
                        yield rows.select(list(self._columns))
        except CaptureError as error:
            if self._options.fail_on_loss:
                raise
            _LOG.warning("%s", error)

    @staticmethod
    def _between(
        file: CaptureFile, start: ReadProgress | None, end: ReadProgress
    ) -> Iterator[tuple[PacketBatch | None, list[PlacedNote]]]:
        read_at = open_capture(file)
        if start is None and end.state is not None:
            # A new file: find where its packets begin.
            try:
                begun = begin(file, read_at, end.index) if begins_as(read_at, end.head) else None
            except OSError as error:
                raise CaptureError(f"{file.name}: cannot be read ({error.strerror or error})") from None
            if begun is None:
                raise CaptureError(f"{file.name}: another file has replaced it")
            start = begun[1]
        yield from read_between(split_between(file, start, end), read_at)

    def _note_rows(self, notes: list[PlacedNote], names: dict[int, str]) -> pa.RecordBatch:
        rows = note_rows(notes, names, show_secrets=self._options.show_secrets)
        return rows.select(list(self._columns))
