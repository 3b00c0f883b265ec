"""Step 1 over captures, in one process: all connections, or a share of them.

Whenever no capture is partly read, the staged rows and the state may be saved as a checkpoint. A run that was killed
continues from there when it is repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.source import CaptureSource, noted, open_captures, with_pauses
from kafkasniff.engine.inspector import share
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import Problem, Summary
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.runtime.addresses import name_of
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.tables.checkpoint import ShardState, dump
from kafkasniff.tables.exports.manifest import MAX_COUNT
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staged import DamagedRunError, StagedFiles, check_staged
from kafkasniff.tables.exports.staging import load_state, new_stager, stage, stage_unfinished
from kafkasniff.tables.rows.staged import STAGED

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from typing import BinaryIO

    from kafkasniff.filters import Predicate
    from kafkasniff.tls.keylog import KeyLog

CHECKPOINT_SECONDS: Final = 5.0
"""Minimum time between two checkpoints: each costs the time to write the state of all open connections."""
MAX_PART_ROWS: Final = 32_768
MAX_PART_BYTES: Final = 4 << 20
"""Packets, and payload bytes, that are processed at a time: their events are held until they are staged."""
HEADERS_AT_ONCE: Final = 8
"""Factor for both if no bodies are read: bodies take most of the memory, and most exchanges are columns then."""
FEW_BYTES: Final = 1 << 20
"""Memory of packets below which they wait for those of the next batch."""
FIRST_PARTS: Final = 16
"""Then the first part is smaller by this factor, and each of the next ones is twice as large as the one before: a
connection is in step from its second part on."""
MANY: Final = 1024
"""Exchanges made as columns in a part of the usual size, from which on larger parts pay."""

MAX_SHARDS: Final = 128
"""Maximum number of shards of a resumed run: each is a process, and their number comes from a file."""
MAX_SEGMENTS: Final = 1 << 15
"""Checkpoints of one run, each with a folder of staged rows: enough for 45 hours. All files of a table are mapped at
once, and Linux allows a process 65,530 mappings."""

CHECKPOINT: Final = "checkpoint"
"""File in the folder of a shard: its progress."""
_OPEN: Final = "open"
_SHARD: Final = re.compile(r"shard-\d{5}", re.ASCII)


class ShardTask(msgspec.Struct, frozen=True):
    """The task of one process."""

    folder: ConfinedPath
    """Its own folder."""
    options: ExportOptions
    paths: tuple[str, ...]
    """The captures of this run."""
    names: tuple[str, ...]
    """Names of the captures of earlier runs."""
    order: int
    """Packets of earlier runs."""
    state: bytes
    """A `ShardState`."""
    shard: int = 0
    shards: int = 1
    predicate: Predicate | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    keylog: str | None = None
    """A file with secrets of TLS."""
    memory: int = DEFAULT_MEMORY
    """The budget in bytes of all shards."""
    problems: tuple[Problem, ...] = ()
    """Problems of captures that are not among `paths`."""
    columns: frozenset[str] = frozenset(STAGED["exchanges"].names)
    """The columns of `exchanges` that are wanted; others are null."""


class _Checkpoint(msgspec.Struct):
    """The progress of a shard."""

    done: list[int]
    """Indices of the run's captures that were read completely."""
    order: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    segments: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEGMENTS)]
    """Folders of staged rows that belong to the checkpoint."""
    rows: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    """Number of rows in these folders."""
    broken: bool
    state: bytes


class ShardResult(msgspec.Struct):
    """The result of one process."""

    state: bytes
    """State for the next run."""
    learned_facts: LearnedFacts
    order: int
    broken: bool
    """A capture was truncated or damaged."""
    summary: Summary
    staged: list[ConfinedPath]
    """Folders of staged rows."""
    unfinished: ConfinedPath
    """Folder of rows that were unfinished at the end."""


class ReadingProgress(Protocol):
    """Progress of reading captures."""

    @property
    def bytes_read(self) -> int:
        """Bytes so far."""

    @property
    def bytes_total(self) -> int | None:
        """None if unknown."""


class Hooks(msgspec.Struct):
    """Callbacks of a run."""

    opened: Callable[[ReadingProgress], None] | None = None
    part: Callable[[], None] | None = None
    """After each part of a batch."""
    stdin: BinaryIO | None = None


def run_shard(task: ShardTask, hooks: Hooks) -> ShardResult:
    """Stage the rows of all captures of a run, except those staged before the run was killed.

    Raises CaptureError if a capture cannot be opened, OSError if rows cannot be written, DamagedRunError if the earlier
    results cannot be used.
    """
    task.folder.make_folder()
    keys = None if task.keylog is None else open_key_log(task.keylog)
    if (task.folder / CHECKPOINT).exists():
        run = _resumed(task, keys)
    else:
        run = _Run(task, _read(task), keys)
    run.captures(hooks)
    # Connections that end only with the captures are not over: the next run continues from the state before.
    checkpoint = _read(task)
    unfinished = task.folder / _OPEN
    state = run.state
    del run  # with the room that the kernel writes columns to
    stage_unfinished(state, task.options, task.predicate, unfinished, task.columns)
    learned_facts = state.enricher.catalog.learned_facts
    assert learned_facts is not None
    return ShardResult(
        checkpoint.state,
        learned_facts,
        checkpoint.order,
        checkpoint.broken,
        state.inspector.summary,
        _segments(task, checkpoint),
        unfinished,
    )


def _resumed(task: ShardTask, keys: KeyLog | None) -> _Run:
    """The shard as an earlier process left it. Raises DamagedRunError if that cannot be used."""
    try:
        checkpoint = _read(task)
        captures = range(len(task.paths))
        if sorted(set(checkpoint.done)) != checkpoint.done or not all(one in captures for one in checkpoint.done):
            raise DamagedRunError(f"{task.folder / CHECKPOINT} belongs to other captures")
        check_staged(_segments(task, checkpoint), checkpoint.rows)
        return _Run(task, checkpoint, keys)
    except (msgspec.MsgspecError, UsageError) as error:
        raise DamagedRunError(f"{task.folder / CHECKPOINT} is damaged: {error}") from error


def _read(task: ShardTask) -> _Checkpoint:
    path = task.folder / CHECKPOINT
    if path.exists():
        return msgspec.msgpack.decode(path.content(), type=_Checkpoint)
    return _Checkpoint([], task.order, 0, 0, False, task.state)


def shard_name(number: int) -> str:
    """The name of a shard's folder in the folder of the run."""
    return f"shard-{number:05}"


def is_shard(name: str) -> bool:
    """Whether a folder has such a name."""
    return _SHARD.fullmatch(name) is not None


def _segment(number: int) -> str:
    return f"staged-{number:05}"


def _segments(task: ShardTask, checkpoint: _Checkpoint) -> list[ConfinedPath]:
    return [task.folder / _segment(number) for number in range(checkpoint.segments)]


class _Run:
    """A shard between its first and its last checkpoint."""

    def __init__(self, task: ShardTask, checkpoint: _Checkpoint, keys: KeyLog | None) -> None:
        self._task = task
        self._done = checkpoint.done
        self._order = checkpoint.order
        self._segments = checkpoint.segments
        self._rows = checkpoint.rows
        self._broken = checkpoint.broken
        self._state = load_state(checkpoint.state, task.options)
        inspector = self._state.inspector
        self._state.limit_memory(task.memory, task.shards)
        if keys is not None:
            # A resumed run has reported them already.
            inspector.follow_key_log(keys, reports=task.shard == 0 and not checkpoint.segments)
        inspector.keys.reports = task.shard == 0
        if not checkpoint.done:
            # Earlier runs had their own summaries.
            self._state.enricher.count_into(self._state.inspector.begin_summary())
        self._next = time.monotonic() + task.checkpoint_seconds
        self._begin()

    def _begin(self) -> None:
        folder = self._task.folder / _segment(self._segments)
        folder.remove_tree()
        self._files = StagedFiles(folder)
        task = self._task
        self._stager = new_stager(self._state, task.options, task.predicate, self._files, columns=task.columns)

    @property
    def state(self) -> ShardState:
        """The state after the packets so far."""
        return self._state

    def captures(self, hooks: Hooks) -> None:
        """Process the captures that are not done, and save the result."""
        task = self._task
        left = [index for index in range(len(task.paths)) if index not in self._done]
        scales = self._scales()
        if left:
            with open_captures([task.paths[index] for index in left], stdin=hooks.stdin) as source:
                if hooks.opened is not None:
                    hooks.opened(source)
                placed = _Placed(left, len(task.names), (*task.names, *self._names(source, left)), self._order)
                if self._task.problems and not self._done and not self._segments:
                    self._feed(placed.batch(noted(source, self._task.problems)))
                few = _Few()
                for batch, ended in with_pauses(source):
                    few.add(share(placed.batch(batch), task.shard, task.shards))
                    pauses = ended is not None and time.monotonic() >= self._next and self._segments < MAX_SEGMENTS - 1
                    if few.are_many or pauses:
                        self._take(few, scales, hooks)
                    if ended is not None and pauses:
                        self._order = placed.order
                        self._broken = self._broken or source.broken
                        self._done = sorted({*self._done, *(left[index] for index in ended)})
                        self._fix()
                        self._begin()
                self._take(few, scales, hooks)
                self._order = placed.order
                self._broken = self._broken or source.broken
            self._done = list(range(len(task.paths)))
            self._fix()

    def _take(self, few: _Few, scales: Iterator[float], hooks: Hooks) -> None:
        for batch in few.take():
            for part in parts(batch, scales):
                self._feed(part)
                if hooks.part is not None:
                    hooks.part()

    def _scales(self) -> Iterator[float]:
        """The sizes of the next parts, as factors."""
        stager, most = self._stager, 1.0
        scale = 1.0 if stager.finder is None else 1 / FIRST_PARTS
        while True:
            before = stager.in_columns
            yield scale
            if stager is self._stager:
                many = stager.in_columns - before >= MANY * min(scale, 1)
                most = float(HEADERS_AT_ONCE) if many and self._task.options.reads_headers else 1.0
            stager = self._stager
            scale = min(2 * scale, most)

    def _names(self, source: CaptureSource, left: list[int]) -> list[str]:
        """Names of all captures of this run; those that were read before come from the task."""
        names = [name_of(path) for path in self._task.paths]
        for index, name in zip(left, source.captures, strict=True):
            names[index] = name
        return names

    def _feed(self, batch: PacketBatch) -> None:
        stage(self._state, self._stager, batch)

    def _fix(self) -> None:
        """Make a checkpoint of the staged rows."""
        self._stager.flush()
        self._files.close()
        self._state.selected = self._stager.selected
        # The state is dumped beside what staging took; with glibc's allocator this gives back its free part.
        pa.default_memory_pool().release_unused()
        self._segments += 1
        self._rows += self._files.rows
        checkpoint = _Checkpoint(self._done, self._order, self._segments, self._rows, self._broken, dump(self._state))
        (self._task.folder / CHECKPOINT).put(msgspec.msgpack.encode(checkpoint))
        self._next = time.monotonic() + self._task.checkpoint_seconds


class _Few:
    """Batches until they are worth a part: each small capture is at least one."""

    def __init__(self) -> None:
        self._batches: list[PacketBatch] = []
        self._bytes = 0

    def add(self, batch: PacketBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes

    @property
    def are_many(self) -> bool:
        return self._bytes >= FEW_BYTES

    def take(self) -> list[PacketBatch]:
        """All in one, if there are any."""
        batches, self._batches, self._bytes = self._batches, [], 0
        return [PacketBatch.joined(batches)] if batches else []


class _Placed:
    """Numbers batches of some captures of a run as among all captures of all runs."""

    def __init__(self, indices: list[int], before: int, names: tuple[str, ...], order: int) -> None:
        self._indices = np.array([before + index for index in indices], np.int32)
        self._names = names
        self._first = order
        self.order = order
        """One more than the order of the last packet so far."""

    def batch(self, batch: PacketBatch) -> PacketBatch:
        """The same packets; `batch` is changed."""
        batch.captures = self._names
        batch.capture = self._indices[batch.capture]
        if self._first:
            batch.order = batch.order + self._first
            batch.end_order += self._first
            batch.notes = [Note(note.order + self._first, note.value) for note in batch.notes]
        self.order = batch.end_order
        return batch


def parts(batch: PacketBatch, scales: Iterator[float] | None = None) -> Iterator[PacketBatch]:
    """A batch in parts of bounded packets and payload bytes; `scales`: a factor for the bounds of each part."""
    factors = repeat(1.0) if scales is None else scales
    return batch.parts((int(MAX_PART_ROWS * scale), MAX_PART_BYTES * scale) for scale in factors)


# -- in several processes ----------------------------------------------------------------------------------------------

SIGN_SECONDS: Final = 0.2
"""Time between two progress messages of a worker."""


class _Together:
    """The progress of all processes, as if one read the captures."""

    def __init__(self, processes: int) -> None:
        self._read = [0] * processes
        self.bytes_total: int | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of the captures, averaged over the processes."""
        return sum(self._read) // len(self._read)

    def note(self, process: int, read: int, total: int | None) -> None:
        """Record the progress of a process."""
        self._read[process] = read
        self.bytes_total = total


def run_shards(tasks: Sequence[ShardTask], hooks: Hooks) -> list[ShardResult]:
    """Run tasks in parallel, the first one here and each other one in a process; returns their results in order.

    Raises the exceptions of a task, and KafkasniffError if a process ends without a result. No process is left then.
    """
    # One process needs none of it.
    from kafkasniff.runtime.worker_processes import Workers  # noqa: PLC0415

    together = _Together(len(tasks))
    shard_results: dict[int, ShardResult] = {}
    mine: list[ReadingProgress] = []

    def hear(timeout: float) -> None:
        for worker, message in workers.messages(timeout, without=shard_results):
            if isinstance(message, ShardResult):
                shard_results[worker] = message
            else:
                together.note(worker + 1, *message)
        if mine:
            together.note(0, mine[0].bytes_read, mine[0].bytes_total)
        if hooks.part is not None:
            hooks.part()

    with Workers(_work, list(tasks[1:])) as workers:
        if hooks.opened is not None:
            hooks.opened(together)
        first = run_shard(tasks[0], Hooks(mine.append, lambda: hear(0)))
        while len(shard_results) < len(workers):
            hear(SIGN_SECONDS)
    return [first, *(shard_results[worker] for worker in range(len(workers)))]


def _work(task: ShardTask, end: Connection[Any, Any]) -> None:
    """Read captures and report progress now and then."""
    reading: list[ReadingProgress] = []
    next_sign = 0.0

    def part() -> None:
        nonlocal next_sign
        now = time.monotonic()
        if now >= next_sign and reading:
            next_sign = now + SIGN_SECONDS
            # Raises if the parent has ended, which ends this process, too.
            end.send((reading[0].bytes_read, reading[0].bytes_total))

    end.send(run_shard(task, Hooks(reading.append, part)))
