"""The explorer's threads that read: one fills the list, another decodes the exchange under the cursor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from textual.app import App

from kafkasniff.browse.following import Followed, Trail, find_trail, matches
from kafkasniff.browse.index import MAX_EXCHANGES, ExchangeIndex, Row
from kafkasniff.browse.reading import FIRST_RECORDS, ExchangeReading, Progress
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.errors import KafkasniffError
from kafkasniff.filters import Predicate, needs_records
from kafkasniff.model import Exchange
from kafkasniff.runtime.memory_limits import release_freed_memory
from kafkasniff.text.printable import printable

MORE_RECORDS: Final = 10
"""How many times as many records are decoded when more are wanted."""


class ReadingThreads:
    """Results are passed to functions that the thread of the screen calls."""

    def __init__(self, app: App[Any], reading: ExchangeReading) -> None:
        self._app = app
        self._reading = reading
        self.predicate: Predicate | None = None
        """Which exchanges are listed."""
        self.state = "reading"
        """Text for the status line."""
        self.is_broken = False
        """A capture is broken."""
        self.most = FIRST_RECORDS
        """Records of a message that are decoded."""
        self._read: tuple[Row, Exchange] | None = None
        """The exchange that was decoded last."""
        self.matches: tuple[BodyField, ...] = ()
        """Its records that the filter selects, if it asks about records."""
        self._stop = threading.Event()
        """Ends the thread that fills the index."""
        self._away = threading.Event()
        """Ends the thread that reads an exchange, or all for a jump."""
        self._progressed: tuple[threading.Event, str] | None = None
        """How far that thread has read."""

    def end(self) -> None:
        """End the threads."""
        self._stop.set()
        self._away.set()

    def leave(self) -> None:
        """End what is being decoded."""
        self._away.set()

    @property
    def looking(self) -> str:
        """How far the captures have been read for one exchange, or for a jump; empty if they are not."""
        of, text = self._progressed or (None, "")
        return "" if of is not self._away or self._away.is_set() else text

    def _progress(self, away: threading.Event) -> Progress:
        """Show how far a reading has come, from the beginning of the captures, until it is no longer wanted."""

        def progress(read: int, total: int | None) -> None:
            if total:
                self._progressed = away, f"reading from the start: {min(read * 100 // total, 100)}%"

        return progress

    def show_growth(self, index: ExchangeIndex, *, is_paused: bool) -> None:
        """Have the state say how far a capture has grown that is still written."""
        growing = self._reading.growing
        if growing is not None and not index.is_complete:
            self.state = f"{'paused, ' if is_paused else ''}{growing.state}"

    def begin(self, predicate: Predicate | None) -> ExchangeIndex:
        """Fill an index with the exchanges that a predicate selects, instead of the one before."""
        self._stop.set()
        stop = self._stop = threading.Event()
        index = ExchangeIndex()
        self.state, self.predicate = "reading", predicate
        self.matches = ()
        if predicate is not None and needs_records(predicate):
            # It selects other records of the same exchange.
            self._read = None
        growing = self._reading.growing

        def progress(read: int, total: int | None) -> None:
            if not stop.is_set() and growing is None:
                self.state = f"reading: {min(read * 100 // total, 100)}%" if total else "reading"

        def run() -> None:
            try:
                is_broken = self._reading.fill(index, predicate, stopped=stop.is_set, progress=progress, follow=True)
            except KafkasniffError:
                # A reading that was stopped may have seen only the beginning of a growing capture.
                if not stop.is_set():
                    raise
                return
            if not stop.is_set():
                self.is_broken = is_broken
                self.state = "a capture is broken" if is_broken else "" if growing is None else growing.state
                if index.is_full:
                    self.state = f"only the first {MAX_EXCHANGES:,} exchanges"

        self.work(run)
        return index

    def work(self, run: Callable[[], object]) -> None:
        """Run something in a thread; the status line reports errors of captures."""
        # Textual keeps what a worker runs until garbage is collected. The indexes that it uses must not last as long.
        runs = [run]

        def guarded() -> None:
            try:
                runs.pop()()
            except KafkasniffError as error:
                self.state, self._progressed = printable(str(error)), None
            finally:
                # Reading needs much more memory than what it has found.
                release_freed_memory()

        self._app.run_worker(guarded, thread=True, exit_on_error=True)

    def decode(
        self, index: ExchangeIndex, row: Row, use: Callable[[Exchange | None], object], *, more: bool = False
    ) -> None:
        """Decode an exchange and use it, unless another one is wanted by then. `more`: with more records."""
        self.leave()
        away = self._away = threading.Event()
        if more:
            self._read = None
            self.most *= MORE_RECORDS
        if self._read is not None and self._read[0] == row:
            use(self._read[1])
            return
        predicate = self.predicate

        def run() -> None:
            progress = self._progress(away)
            exchange = self._reading.look(index, row, stopped=away.is_set, progress=progress, most=self.most)
            body_fields: tuple[BodyField, ...] = ()
            if exchange is not None and predicate is not None and needs_records(predicate):
                body_fields = tuple(BodyField(*match) for match in matches(exchange, predicate))
            if not away.is_set():
                self._app.call_from_thread(done, exchange, body_fields)

        def done(exchange: Exchange | None, found: tuple[BodyField, ...]) -> None:
            if not away.is_set():
                self._progressed, self.matches = None, found
                self._read = None if exchange is None else (row, exchange)
                use(exchange)

        self.work(run)

    def find(self, of: Followed, index: ExchangeIndex, use: Callable[[Trail], object]) -> None:
        """Find the rows of an index that share something with the exchange that was decoded last."""
        away, predicate = self._away, self.predicate

        def run() -> None:
            progress = self._progress(away)
            found = find_trail(of, index, self._reading, predicate, stopped=away.is_set, progress=progress)
            if not away.is_set():
                self._app.call_from_thread(done, found)

        def done(found: Trail) -> None:
            self._progressed = None
            use(found)

        self.work(run)
