"""Reads captures for the explorer: all of them into an index, and one exchange again when it is looked at.

Output of a connection depends only on its own packets, so a second reading of a connection alone gives the exchange
that the first gave; `connection_id` and `exchange_id` identify it in both. It ends at that exchange. Pipes and live
traffic are copied into files that grow, so that they can be read again.
"""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast

from kafkasniff.browse.commands import program
from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector, packed, shard_of_keys, share
from kafkasniff.engine.message_table import Messages, Output, PairColumns, PairFinder
from kafkasniff.engine.selection import Selection, asks_columns
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.filters import Predicate, Selector, needs_records
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import NO_TIME, Exchange, Summary
from kafkasniff.native.library import kernel
from kafkasniff.runtime.memory_limits import release_freed_memory
from kafkasniff.runtime.threads import ENDS_WITH_STDIN
from kafkasniff.sinks.native_lines import AddedNames
from kafkasniff.tables.rows.column_rows import Bools
from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from kafkasniff.values.stage import ValueDecoder, ValueSchemas

MAX_GROWN: Final = 2 << 30
"""Maximum size in bytes of the file; the rest of the pipe, or of live traffic, is not written."""
LOOK_SECONDS: Final = 0.05
"""How often to look for new bytes."""
START_SECONDS: Final = 30.0
"""How long a live capture may take to open its file."""
COPY_BYTES: Final = 1 << 20
"""Maximum number of bytes that are copied at a time."""


class GrowingCapture(ABC):
    """A file that another thread or process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_full = False
        """It has reached its maximum size."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing further will be appended."""

    @property
    def state(self) -> str:
        """Text for the status line."""
        size = f"{self.path.stat().st_size / 1e6:,.1f} MB"
        if self.is_full:
            return f"{size}: that is the maximum, nothing further is read"
        return "" if self.is_over else f"live, {size}"

    def follow(self, stopped: Callable[[], bool]) -> BinaryIO:
        """A stream of its bytes, whose reads wait for more; it ends with the capture, or when `stopped`."""
        # It has what `open_captures` uses of a pipe.
        return cast("BinaryIO", _Following(self, stopped))

    @abstractmethod
    def close(self) -> None:
        """End the capture."""


class _Following:
    def __init__(self, capture: GrowingCapture, stopped: Callable[[], bool]) -> None:
        self._capture = capture
        self._stopped = stopped
        self._file = capture.path.open("rb", buffering=0)

    def read1(self, most: int) -> bytes:
        while True:
            is_over = self._capture.is_over
            data = self._file.read(most)
            if data:
                return data
            if is_over or self._stopped():
                self._file.close()
                return b""
            time.sleep(LOOK_SECONDS)

    read = read1


class CopiedPipe(GrowingCapture):
    """A copy of a pipe in a temporary file. A thread copies until the pipe ends or the file is full."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._folder = tempfile.mkdtemp(prefix="kafkasniff-")
        super().__init__(Path(self._folder) / "stdin")
        self._pipe = pipe
        self._file = self.path.open("wb", buffering=0)
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """The pipe has ended."""
        return not self._thread.is_alive()

    def _copy(self) -> None:
        read = getattr(self._pipe, "read1", self._pipe.read)
        while not self.is_full:
            data = read(min(COPY_BYTES, MAX_GROWN - self._file.tell()))
            if not data:
                return
            self._file.write(data)
            self.is_full = self._file.tell() >= MAX_GROWN

    def close(self) -> None:
        """Remove the file; the thread ends with the process, or with the pipe."""
        shutil.rmtree(self._folder, ignore_errors=True)


class LiveCapture(GrowingCapture):
    """The file of a process that captures. `folder`: removed at the end, None: the file is kept."""

    def __init__(self, command: list[str], path: Path, folder: Path | None) -> None:
        super().__init__(path)
        self._folder = folder
        self._last_line = b""
        pipe, environment = subprocess.PIPE, {**os.environ, ENDS_WITH_STDIN: "1"}
        self._process = subprocess.Popen(
            program(command), stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, env=environment
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._watch)]

    @property
    def is_over(self) -> bool:
        """The process has ended."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        return self._process.poll()

    @property
    def state(self) -> str:
        """As above, with the last message of the process, such as that packets were lost."""
        said = printable(self._last_line.decode("utf-8", "replace").removeprefix("kafkasniff: "), backslashes=False)
        return " · ".join(part for part in (super().state, said) if part)

    def begin(self) -> bool:
        """Wait until it captures; False if it has ended instead, which `said` explains. Starts no threads."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not self.is_over:
            if self.path.exists() and self.path.stat().st_size:
                return True
            time.sleep(LOOK_SECONDS)
        self.close()
        return False

    def watch(self) -> None:
        """Begin to observe its size and its messages, in threads."""
        for thread in self._threads:
            thread.start()

    @property
    def said(self) -> str:
        """The last message of the process, once it has ended."""
        if self._threads[0].ident is None:
            self._listen()
        return self._last_line.decode("utf-8", "replace").strip()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_line = line.strip()

    def _watch(self) -> None:
        while not self.is_over:
            time.sleep(LOOK_SECONDS)
            if self.path.exists() and self.path.stat().st_size >= MAX_GROWN:
                self.is_full = True
                self._process.terminate()
                return

    def close(self) -> None:
        """End the process, and remove a temporary file."""
        if not self.is_over:
            self._process.terminate()
        self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


FIRST_RECORDS: Final = 100_000
"""Records of a message that are decoded at first: more take seconds."""
RELEASE_SECONDS: Final = 10.0
"""How often freed memory is returned to the system while a capture grows."""
SHARES: Final = 1 << 16
"""Parts into which connections are divided for the second reading; one of them is decoded."""


Progress = Callable[[int, int | None], object]
"""Takes the bytes that were read so far, and in total, None if unknown."""


def unseen(_read: int, _total: int | None) -> None:
    """Progress that nobody sees."""


class ExchangeReading(Protocol):
    """What the explorer reads from."""

    growing: GrowingCapture | None

    def fill(
        self,
        index: ExchangeIndex,
        predicate: Predicate | None,
        *,
        stopped: Callable[[], bool],
        progress: Progress,
        follow: bool = False,
    ) -> bool:
        """See `CaptureReading`."""

    def look(
        self,
        index: ExchangeIndex,
        row: Row,
        *,
        stopped: Callable[[], bool],
        progress: Progress = unseen,
        most: int = FIRST_RECORDS,
    ) -> Exchange | None:
        """See `CaptureReading`."""


class CaptureReading:
    """The captures of a run. `arguments` makes those of each `Inspector`: a key log is read once per reading.

    `growing`: the only capture, which is still being written; `schemas`: those of keys and values.
    """

    def __init__(
        self,
        captures: tuple[str, ...],
        arguments: Callable[[], Mapping[str, Any]],
        catalog: Catalog | None = None,
        growing: GrowingCapture | None = None,
        schemas: ValueSchemas | None = None,
    ) -> None:
        self._values: ValueDecoder | None = None
        if schemas is not None:
            from kafkasniff.values.stage import ValueDecoder  # noqa: PLC0415 - most runs have no schemas

            self._values = ValueDecoder(schemas, Summary())
        self._decoding = threading.Lock()
        """Held while values are decoded."""
        self._captures = captures
        self.growing = growing
        self._arguments = arguments
        self._given = Catalog() if catalog is None else catalog
        self._catalog = self._given
        self._lock = threading.Lock()
        """Held while the catalog changes or is copied."""

    def fill(
        self,
        index: ExchangeIndex,
        predicate: Predicate | None,
        *,
        stopped: Callable[[], bool],
        progress: Progress,
        follow: bool = False,
    ) -> bool:
        """Append the exchanges that a predicate selects, until the end, the index's bound, or until `stopped`.

        `progress` receives after each batch the bytes read and in total, None if unknown. Returns whether a capture
        is broken. `follow`: it is for the list; wait for what is still being written. Raises CaptureError.
        """
        with self._lock:
            catalog = copy.deepcopy(self._given)
            if follow or self._catalog is self._given:
                # Readings for jumps begin without names, which `look` needs meanwhile and afterwards.
                self._catalog = catalog
        wants_records = predicate is not None and needs_records(predicate)
        inspector = Inspector(
            **self._arguments(), records="full" if wants_records else "metadata", exchanges=True, show_secrets=False
        )
        selector = Selector(predicate)
        # Only filters ask for the topics of fetch sessions, which columns do not have.
        enricher = Enricher(catalog, summary=inspector.summary, sessions=predicate is not None)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
        finder = None if wants_records else _finder(predicate, selector, enricher, index)

        def take(slices: Iterable[tuple[list[Output], list[PairColumns]]]) -> None:
            for events, columns in slices:
                with self._lock:
                    enricher.feed(events)
                if wants_records:
                    self._decode(events)
                for event in selector.feed(events):  # type: ignore[arg-type]  # no connections are asked for
                    if type(event) is Exchange:
                        index.add(event)
                for column in columns:
                    if column.selected and column.facts is not None:
                        index.add_columns(column)
            index.publish()

        released = time.monotonic()
        growing = self.growing if follow else None
        pipe = None if growing is None else growing.follow(stopped)
        with open_captures(self._captures if pipe is None else ("-",), stdin=pipe) as source:
            for batch in source:
                if stopped() or index.is_full:
                    break
                if selector.start_ns is None and len(batch):
                    times = batch.time_ns[batch.time_ns != NO_TIME]
                    selector.start_ns = int(times[0]) if len(times) else None
                take(inspector.feed_columns(batch, finder))
                progress(source.bytes_read, source.bytes_total)
                if pipe is not None and time.monotonic() >= released + RELEASE_SECONDS:
                    released = time.monotonic()
                    release_freed_memory()
            else:
                take(zip(inspector.close_slices(), repeat([])))
            index.is_complete = True
            return source.broken and (follow or self.growing is None)

    def _decode(self, events: list[Output]) -> None:
        """Decode the keys and values of messages, in place."""
        if self._values is not None:
            with self._decoding:
                self._values.feed(events)

    def look(
        self,
        index: ExchangeIndex,
        row: Row,
        *,
        stopped: Callable[[], bool],
        progress: Progress = unseen,
        most: int = FIRST_RECORDS,
    ) -> Exchange | None:
        """The exchange of a row with its bodies, records and bytes; None if `stopped`, or if the captures changed.

        `progress`: as for `fill`. `most`: records of a message that are decoded; the problem `record-bound` says that
        there are more. Raises CaptureError.
        """
        ends = index.ends(row)
        if ends is None:
            return None
        one, other = sorted(map(packed, ends))
        shard = shard_of_keys([(one, other)], SHARES)[0]
        with self._lock:
            catalog = copy.deepcopy(self._catalog)
        inspector = Inspector(**self._arguments(), records="full", exchanges=True, show_secrets=False, frames=True)
        inspector.limit_records(most)
        enricher = Enricher(catalog, summary=inspector.summary)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
        wanted = row.connection_id, row.exchange_id

        def found(slices: Iterable[list[Output]]) -> Exchange | None:
            for events in slices:
                enricher.feed(events)
                self._decode(events)
                for event in events:
                    if type(event) is Exchange and (event.connection_id, event.exchange_id) == wanted:
                        return event
            return None

        with open_captures(self._captures) as source:
            for batch in source:
                if stopped():
                    return None
                progress(source.bytes_read, source.bytes_total)
                exchange = found(inspector.feed_slices(share(batch, shard, SHARES)))
                if exchange is not None:
                    return exchange
        return found(inspector.close_slices())


class _Indexing:
    """A `PairFinder` that appends exchanges to an index at once, and yields only what was read of their headers.

    So nobody works out how long they waited for each other, which takes a fifth of the time and is not listed.
    """

    def __init__(self, finder: ExchangeFinder, index: ExchangeIndex) -> None:
        self._finder = finder
        self._index = index
        self.may_take = finder.may_take

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """The exchanges of a part of a batch, and a mask of the other messages."""
        columns, others = self._finder.find(messages, options, capture)
        for column in columns:
            self._index.add_columns(column)
        return [column._replace(facts=None) for column in columns], others


def _finder(
    predicate: Predicate | None, selector: Selector, enricher: Enricher, index: ExchangeIndex
) -> PairFinder | None:
    """Finds exchanges that the kernel reads; None: all become objects."""
    native = kernel()
    if predicate is None:
        return _Indexing(ExchangeFinder(native, names=AddedNames(enricher)), index)
    if not asks_columns(predicate):
        return None
    return ExchangeFinder(native, selection=Selection(predicate, selector, native, show_secrets=False, writes=True))
