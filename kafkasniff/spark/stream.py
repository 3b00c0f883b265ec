"""The streaming reader: follows a folder (or a pattern) of rotated captures as they are written.

The stream's offset records, per file, how far it was read (`follow.ReadProgress`); a micro-batch is the data between
two offsets. Files are read in the order of their first packets. If Spark requests a batch again, even after a restart,
it gets the same rows as long as the files exist.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from kafkasniff.capture.formats.converters import MAGIC_SIZE, inflater_for
from kafkasniff.capture.timeline.locations import is_capture, listed, open_capture
from kafkasniff.capture.timeline.parts import CaptureFile, Place, PlacedNote
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.addresses import Location
from kafkasniff.spark.follow import ReadProgress, advance, begin, begins_as, digest, read_between, split_between, whole
from kafkasniff.spark.options import SourceOptions
from kafkasniff.spark.packet_rows import note_rows, packet_rows, secret_rows

__all__ = ["CaptureStreamReader"]

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
