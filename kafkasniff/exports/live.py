"""A live capture into an export: its rows are committed every few minutes, each time as a run of the folder.

Connections and fetch sessions go on from one commit to the next, as they do from run to run over captures; but not into
a live capture from what was exported before, nor out of it: there are packets in between that nobody has seen. So at
its end everything is over, and no row is left for a later run to make again.

Rows that are staged meanwhile wait in `.staged`, in a folder for each commit. The state is dumped there, too, and a
process of its own makes the files of the tables from both (as a run over captures does: `finish`), while packets are
taken on: the kernel keeps no more than seconds of them.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from kafkasniff.confined import ConfinedPath
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import KafkasniffError
from kafkasniff.exports.background import Background
from kafkasniff.exports.beginning import check_no_stream, check_options, load_state, new_state, read_carried
from kafkasniff.exports.captures import CaptureFile
from kafkasniff.exports.carried import Carried, ShardState
from kafkasniff.exports.finish import Finished, finish
from kafkasniff.exports.folder import ExportFolder
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.shard import ShardResult, parts
from kafkasniff.exports.staged import StagedFiles
from kafkasniff.exports.staging import inspected, new_stager, stage_rest, stage_unfinished, together_bytes
from kafkasniff.inspector import Inspector, Output
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.rows.sessions import Sessions
from kafkasniff.state import dump

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate

__all__ = ["EVERY_SECONDS", "LiveExport", "LiveResult"]

EVERY_SECONDS: Final = 600.0
"""Time between two commits, by default. The longer, the fewer and the larger are the files, and the more is lost where
the process is killed."""

HELD_SECONDS: Final = 1.0
"""Time for which events wait to be made rows of together (`staging.together_bytes` of them at most): a few at a time
cost several times as much."""

_STATE: Final = "state"
_CARRIED: Final = "carried"
_OPEN: Final = "open"


class LiveResult(msgspec.Struct):
    """What came of a live capture."""

    commits: int = 0
    rows: dict[str, int] = {}
    """Rows, by table, that stand for good."""
    summary: Summary = msgspec.field(default_factory=Summary)
    notices: tuple[str, ...] = ()
    """What putting rows into partitions turned up."""


class _Task(msgspec.Struct, frozen=True):
    """What is to be made a run of."""

    folder: ConfinedPath
    """With staged rows and the state behind them."""
    carried: ConfinedPath
    """What the run before left."""
    into: ConfinedPath
    run: int
    options: ExportOptions
    predicate: Predicate | None
    order: int
    memory: int
    """Budget in bytes."""
    whole: int
    """That of the run."""


class LiveExport:
    """Takes the batches of one capture, in order; a context manager that holds the folder.

    - `interface`: name of the capture
    - `given`: names by topic id; `predicate`: only the exchanges that it is true of
    - `every_seconds`: time between two commits, by `clock`
    - `discard_state`: do not read what earlier runs left, which tells names of topics and brokers
    - `memory`: budget in bytes; `whole`: that of the run, if this is a part of it, which bounds each message

    Raises UsageError where the folder holds an export of another kind or of other options, OutputError where it cannot
    be written: here, and in `feed` and `close`. Left by an exception from elsewhere, the block commits what was fed.
    """

    def __init__(
        self,
        directory: Path,
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
        self.directory = directory
        self._options = options
        self._predicate = predicate
        self._every = every_seconds
        self._clock = clock
        self._next = clock() + every_seconds
        self._held: list[Output] = []
        """Events that are no rows yet."""
        self._held_bytes = 0
        self._rows_at = clock() + HELD_SECONDS
        self._order = 0
        self._segment = 0
        self._making: tuple[Background[Finished], _Task] | None = None
        self._begun = self._closed = False
        self._makes = False
        """What is in `.partial` is ours, not what a run over captures left that was killed and may go on."""
        self._fresh = False
        """There are packets since the last commit was begun."""
        self.torn = False
        """Feeding was interrupted or failed: what came since the last commit is not whole and will not be committed."""
        self._folder = ExportFolder(directory)
        try:
            self._begin(given or {}, interface, discard_state=discard_state, memory=memory, whole=whole or memory)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def _begin(self, given: Mapping[str, str], interface: str, *, discard_state: bool, memory: int, whole: int) -> None:
        folder, options = self._folder, self._options
        if folder.manifest is not None:
            check_no_stream(folder.manifest, folder.directory)
            check_options(folder.manifest, options, folder.directory)
        before = () if folder.manifest is None else tuple(one.name for one in folder.manifest.captures)
        self._index = len(before)
        self._names = (*before, interface)
        self._capture = CaptureFile(interface, None, begun=datetime.now(UTC))
        # What earlier runs were told of topics and brokers holds.
        tellings = read_carried(folder, discard=discard_state).tellings
        told = {topic_id: name for topic_id, (_, name) in tellings.topics.items()}
        catalog = Catalog({**given, **told}, tellings=Tellings())
        self._state = new_state(options, catalog, sessions=self._predicate is not None)
        self._budgets = memory, whole
        self._state.limit_memory(memory, whole=whole)
        self._result = LiveResult(rows=dict.fromkeys(options.tables, 0), summary=self._state.inspector.summary)
        with folder.output():
            self._carried = folder.staged / _CARRIED
            self._carried.put(Carried([], Sessions(), tellings).dump())
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
                self._folder.discard()
            with contextlib.suppress(OSError):
                self._folder.staged.remove_tree()
            self._folder.__exit__(kind, error, traceback)

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets, perhaps none: whenever it is called, a commit may be due. `batch` is changed."""
        self._begun = True
        try:
            batch.captures = self._names
            batch.capture = batch.capture + self._index
            self._order = batch.end_order
            self._fresh = self._fresh or bool(batch.packets or batch.notes)
            with self._folder.output():
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
        """The capture has ended: commit what there is. An interruption leaves what is committed, and nothing else."""
        self._closed = True
        with self._folder.output():
            if self._making is not None:
                self._commit_made(*self._making)
            self._make_rows()
            stage_rest(self._state, self._stager, self._files)
            self._begin_run()
            carried = Carried.load(self._carried.content())
            result = _shard_result(self._place, b"", self._state, self._order)
            given = self._state.enricher.catalog.given
            made = finish(
                self._folder.partial,
                self._folder.run,
                self._options,
                carried,
                [result],
                given=given,
                memory=self._budgets[0],
            )
            made.state = Carried([], Sessions(), carried.tellings, self._order).dump()
            self._commit(made)
        return self._result

    @property
    def inspector(self) -> Inspector:
        """What decodes for the tables."""
        return self._state.inspector

    def _make_rows(self) -> None:
        held, self._held = self._held, []
        self._held_bytes, self._rows_at = 0, self._clock() + HELD_SECONDS
        self._stager.take(held)

    # -- commits

    def _stage_on(self) -> None:
        """Stage what comes next into a folder of its own."""
        self._segment += 1
        self._place = self._folder.staged / f"{self._segment:05}"
        self._files = StagedFiles(self._place)
        self._stager = new_stager(self._state, self._options, self._predicate, self._files)

    def _begin_run(self) -> None:
        self._makes = True
        self._folder.discard()
        self._folder.partial.make_folder()

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
        place, folder = self._place, self._folder
        (place / _STATE).put(dump(self._state))
        self._begin_run()
        task = _Task(
            place,
            self._carried,
            folder.partial,
            folder.run,
            self._options,
            self._predicate,
            self._order,
            *self._budgets,
        )
        self._making = (Background(_make, task), task)
        self._stage_on()

    def _commit_made(self, making: Background[Finished], task: _Task) -> None:
        """Wait for what is being made, and commit it."""
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
        # What runs before the capture did not finish stays as it is.
        manifest = self._folder.commit(self._options, new, made.written, made.unfinished, made.state, goes_on=not first)
        assert manifest.state is not None
        self._carried = self._folder.root.below(*manifest.state.split("/"))
        self._result.commits += 1
        self._result.notices += tuple(problem.detail for problem in made.problems)
        for table, files in made.written.items():
            self._result.rows[table] += sum(rows for _, rows in files)


def _make(task: _Task) -> Finished:
    """Make a run of what is staged so far. Raises OSError."""
    dumped = (task.folder / _STATE).content()
    state = load_state(dumped, task.options)
    state.limit_memory(task.memory, whole=task.whole)
    stage_unfinished(state, task.options, task.predicate, task.folder / _OPEN)
    carried = Carried.load(task.carried.content())
    result = _shard_result(task.folder, dumped, state, task.order)
    given = state.enricher.catalog.given
    return finish(task.into, task.run, task.options, carried, [result], given=given, memory=task.memory)


def _shard_result(folder: ConfinedPath, dumped: bytes, state: ShardState, order: int) -> ShardResult:
    tellings = state.enricher.catalog.tellings
    assert tellings is not None
    return ShardResult(dumped, tellings, order, False, state.inspector.summary, [folder], folder / _OPEN)
