"""A live capture into an export: its rows are committed every few minutes, each time as a run of the folder.

Connections and fetch sessions continue from one commit to the next, as between runs over captures. But nothing
continues from an earlier export into a live capture or out of it, because there are uncaptured packets in between. So
all rows are finished at its end.

Meanwhile, rows are staged in `.staged`, in a folder for each commit. The state is dumped there, too, and a separate
process makes the files of the tables from both (with `finish`, as a run over captures does). Packets are captured at
the same time, because the kernel buffers no more than seconds of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Output
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import KafkasniffError
from kafkasniff.model import Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.runtime.worker_processes import Background
from kafkasniff.tables.checkpoint import Carried, ShardState, dump, load
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.finalise import Finished, finish
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import ShardResult, parts
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.exports.staging import (
    inspected,
    load_state,
    new_stager,
    new_state,
    stage_rest,
    stage_unfinished,
    together_bytes,
)
from kafkasniff.tables.exports.target import Deliver, open_export

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate

EVERY_SECONDS: Final = 600.0
"""Default time between two commits. A longer time gives fewer and larger files, and loses more if the process is
killed."""

HELD_SECONDS: Final = 1.0
"""Time for which events wait until rows are made of them (at most `staging.together_bytes`): small groups cost
several times as much."""

_STATE: Final = "state"
_CARRIED: Final = "carried"
_OPEN: Final = "open"


class LiveResult(msgspec.Struct):
    """Result of a live capture."""

    commits: int = 0
    rows: dict[str, int] = {}
    """Committed rows, by table."""
    summary: Summary = msgspec.field(default_factory=Summary)
    notices: tuple[str, ...] = ()
    """Problems found when rows were put into partitions."""


class _Task(msgspec.Struct, frozen=True):
    """Input of a run."""

    folder: ConfinedPath
    """Folder of the staged rows and the state after them."""
    carried: ConfinedPath
    """State that the run before left."""
    into: ConfinedPath
    name: str
    """What the names of the files begin with."""
    deliver: Deliver | None
    """Brings the files to where the tables are, if that is not here."""
    options: ExportOptions
    predicate: Predicate | None
    order: int
    memory: int
    """Budget in bytes."""
    whole: int
    """Memory budget of the run."""


class LiveExport:
    """Takes the batches of one capture, in order; a context manager that holds the folder.

    - `interface`: name of the capture
    - `given`: names by topic id; `predicate`: selects exchanges
    - `every_seconds`: time between two commits, by `clock`
    - `discard_state`: ignore the state of earlier runs, with their names of topics and brokers
    - `memory`: budget in bytes; `whole`: that of the run, which bounds each message, if `memory` is a part of it

    Raises UsageError if the folder holds an export of another kind or with other options, OutputError if it cannot be
    written: here, and in `feed` and `close`. If another exception leaves the block, the packets so far are committed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        options: ExportOptions,
        interface: str,
        *,
        given: Mapping[str, str] | None = None,
        predicate: Predicate | None = None,
        every_seconds: float = EVERY_SECONDS,
        discard_state: bool = False,
        clock: Callable[[], float] = time.monotonic,
        memory: int = DEFAULT_MEMORY,
        whole: int | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self._options = options
        self._predicate = predicate
        self._every = every_seconds
        self._clock = clock
        self._next = clock() + every_seconds
        self._held: list[Output] = []
        """Events from which no rows are made yet."""
        self._held_bytes = 0
        self._rows_at = clock() + HELD_SECONDS
        self._order = 0
        self._segment = 0
        self._making: tuple[Background[Finished], _Task] | None = None
        self._begun = self._closed = False
        self._makes = False
        """The content of `.partial` is ours, not from a killed run over captures that may be resumed."""
        self._fresh = False
        """There are packets since the last commit began."""
        self.torn = False
        """Feeding was interrupted or failed: rows since the last commit are incomplete and will not be committed."""
        self._target = open_export(directory)
        try:
            self._begin(given or {}, interface, discard_state=discard_state, memory=memory, whole=whole or memory)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def _begin(self, given: Mapping[str, str], interface: str, *, discard_state: bool, memory: int, whole: int) -> None:
        target, options = self._target, self._options
        target.check_continues(options)
        before = () if target.manifest is None else tuple(capture.name for capture in target.manifest.captures)
        self._index = len(before)
        self._names = (*before, interface)
        self._capture = ManifestCapture(interface, None, begun=datetime.now(UTC))
        # Names of topics and brokers from earlier runs stay valid.
        learned_facts = target.carried(discard=discard_state).learned_facts
        names = {topic_id: name for topic_id, (_, name) in learned_facts.topics.items()}
        catalog = Catalog({**given, **names}, learned_facts=LearnedFacts())
        self._state = new_state(options, catalog, sessions=self._predicate is not None)
        self._budgets = memory, whole
        self._state.limit_memory(memory, whole=whole)
        self._result = LiveResult(rows=dict.fromkeys(options.tables, 0), summary=self._state.inspector.summary)
        with target.output():
            self._carried = target.staged / _CARRIED
            self._carried.put(dump(Carried(learned_facts=learned_facts)))
        self._stage_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._begun and not self._closed and not self.torn:
                self.close()
        finally:
            if self._making is not None:
                self._making[0].close()
            if self._makes:
                self._target.discard()
            with contextlib.suppress(OSError):
                self._target.staged.remove_tree()
            self._target.__exit__(kind, error, traceback)

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets, perhaps none: each call may start a commit. `batch` is changed."""
        self._begun = True
        try:
            batch.captures = self._names
            batch.capture = batch.capture + self._index
            self._order = batch.end_order
            self._fresh = self._fresh or bool(batch.packets or batch.notes)
            with self._target.output():
                for part in parts(batch):
                    for events in inspected(self._state, self._stager, part):
                        self._held += events
                        self._held_bytes += self._state.inspector.slice_bytes
                        if self._held_bytes >= together_bytes(self._state.inspector):
                            self._make_rows()
                    if self._clock() >= self._rows_at:
                        self._make_rows()
                self._commit_in_time()
        except BaseException:
            self.torn = True
            raise

    def close(self) -> LiveResult:
        """Commit the rest after the end of the capture. An interruption leaves only committed rows."""
        self._closed = True
        with self._target.output():
            if self._making is not None:
                self._commit_made(*self._making)
            self._make_rows()
            stage_rest(self._state, self._stager, self._files)
            self._begin_run()
            carried = load(self._carried.content(), Carried)
            result = _shard_result(self._place, b"", self._state, self._order)
            given = self._state.enricher.catalog.given
            made = finish(
                self._target.partial,
                self._target.file_name,
                self._options,
                carried,
                [result],
                given=given,
                memory=self._budgets[0],
            )
            made.state = dump(Carried(learned_facts=carried.learned_facts, order=self._order))
            self._commit(made)
        return self._result

    @property
    def inspector(self) -> Inspector:
        """The inspector that decodes for the tables."""
        return self._state.inspector

    def _make_rows(self) -> None:
        held, self._held = self._held, []
        self._held_bytes, self._rows_at = 0, self._clock() + HELD_SECONDS
        self._stager.take(held)

    # -- commits

    def _stage_on(self) -> None:
        """Stage further rows into a new folder."""
        self._segment += 1
        self._place = self._target.staged / f"{self._segment:05}"
        self._files = StagedFiles(self._place)
        self._stager = new_stager(self._state, self._options, self._predicate, self._files)

    def _begin_run(self) -> None:
        self._makes = True
        self._target.discard()
        self._target.partial.make_folder()

    def _commit_in_time(self) -> None:
        if self._making is not None:
            if not self._making[0].done:
                return
            self._commit_made(*self._making)
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        if not self._fresh:
            return
        self._fresh = False
        self._make_rows()
        self._stager.flush()
        self._files.close()
        self._state.selected = self._stager.selected
        place, target = self._place, self._target
        (place / _STATE).put(dump(self._state))
        self._begin_run()
        task = _Task(
            place,
            self._carried,
            target.partial,
            target.file_name,
            target.deliver,
            self._options,
            self._predicate,
            self._order,
            *self._budgets,
        )
        self._making = (Background(_make, task), task)
        self._stage_on()

    def _commit_made(self, making: Background[Finished], task: _Task) -> None:
        """Wait for the files of a run, and commit them."""
        try:
            made = making.result()
        except KafkasniffError:
            # The process was killed, or kafkasniff was replaced on the disk: better a pause than no rows.
            task.into.remove_tree()
            task.into.make_folder()
            made = _make(task)
        self._making = None
        self._commit(made)
        task.folder.remove_tree()

    def _commit(self, made: Finished) -> None:
        first = not self._result.commits
        new = [self._capture] if first else []
        # Unfinished rows of runs before the capture stay as they are.
        self._target.commit(self._options, new, made.written, made.unfinished, made.state, continues=not first)
        self._carried.put(made.state)
        self._result.commits += 1
        self._result.notices += tuple(problem.detail for problem in made.problems)
        for table, files in made.written.items():
            self._result.rows[table] += sum(file.rows for file in files)


def _make(task: _Task) -> Finished:
    """Make a run of the rows staged so far. Raises OSError."""
    dumped = (task.folder / _STATE).content()
    state = load_state(dumped, task.options)
    state.limit_memory(task.memory, whole=task.whole)
    stage_unfinished(state, task.options, task.predicate, task.folder / _OPEN)
    carried = load(task.carried.content(), Carried)
    result = _shard_result(task.folder, dumped, state, task.order)
    given = state.enricher.catalog.given
    made = finish(task.into, task.name, task.options, carried, [result], given=given, memory=task.memory)
    if task.deliver is not None:
        task.deliver(task.into, made.files)
    return made


def _shard_result(folder: ConfinedPath, dumped: bytes, state: ShardState, order: int) -> ShardResult:
    learned_facts = state.enricher.catalog.learned_facts
    assert learned_facts is not None
    return ShardResult(dumped, learned_facts, order, False, state.inspector.summary, [folder], folder / _OPEN)
