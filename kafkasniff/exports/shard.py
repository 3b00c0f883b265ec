"""Step 1 over captures, in one process: all connections, or a share of them.

Whenever captures are through and none is in the midst, what was staged and the state may be fixed as a checkpoint: a
run that is killed goes on from there when it is made again.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec
import numpy as np

from kafkasniff.capture.key_log_file import open_key_log
from kafkasniff.capture.source import CaptureSource, open_captures, with_pauses
from kafkasniff.confined import ConfinedPath
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import UsageError
from kafkasniff.exports.beginning import load_state
from kafkasniff.exports.distrust import DamagedRunError, check_staged
from kafkasniff.exports.folder import MAX_COUNT
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.staged import StagedFiles
from kafkasniff.exports.staging import new_stager, stage, stage_unfinished
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Summary
from kafkasniff.packets import Note, PacketBatch
from kafkasniff.shards import share
from kafkasniff.state import dump

if TYPE_CHECKING:
    from typing import BinaryIO

    from kafkasniff.filters import Predicate
    from kafkasniff.tls.keylog import KeyLog

__all__ = [
    "CHECKPOINT",
    "CHECKPOINT_SECONDS",
    "MAX_SEGMENTS",
    "MAX_SHARDS",
    "Hooks",
    "Reading",
    "ShardResult",
    "ShardTask",
    "is_shard",
    "parts",
    "run_shard",
    "shard_name",
]

CHECKPOINT_SECONDS: Final = 5.0
"""Time between two checkpoints at least: each costs what it takes to write the state of all open connections."""
MAX_PART_ROWS: Final = 32_768
MAX_PART_BYTES: Final = 4 << 20
"""Packets, and payload bytes, that are gone through at a time: what they yield is held until it is staged."""
HEADERS_AT_ONCE: Final = 8
COLUMNS_AT_ONCE: Final = 4
"""So many times that much where no bodies are read, which is what takes room, and where most exchanges are columns."""
FIRST_PARTS: Final = 16
"""There, the first part is so much smaller, and each of the next ones twice as large as the one before: a connection is
in step from its second part on."""
MANY: Final = 1024
"""Exchanges that are columns in a part of the usual size, from which on larger parts pay."""

MAX_SHARDS: Final = 128
"""Shards of a run that is resumed: each is a process, and how many is what a file says."""
MAX_SEGMENTS: Final = 1 << 15
"""Checkpoints of one run, each with a folder of staged rows: those of 45 hours. All files of a table are mapped at
once, and Linux allows a process 65,530 mappings."""

CHECKPOINT: Final = "checkpoint"
"""In the folder of a shard: how far it is."""
_OPEN: Final = "open"
_SHARD: Final = re.compile(r"shard-\d{5}", re.ASCII)


class ShardTask(msgspec.Struct, frozen=True):
    """What one process has to do."""

    folder: ConfinedPath
    """Its own."""
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


class _Checkpoint(msgspec.Struct):
    """How far a shard is."""

    done: list[int]
    """Indices of the run's captures that are through."""
    order: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    segments: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEGMENTS)]
    """Folders of staged rows that count."""
    rows: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    """In these folders."""
    broken: bool
    state: bytes


class ShardResult(msgspec.Struct):
    """What one process has done."""

    state: bytes
    """For the next run."""
    tellings: Tellings
    order: int
    broken: bool
    """A capture was cut or damaged."""
    summary: Summary
    staged: list[ConfinedPath]
    """Folders of staged rows."""
    unfinished: ConfinedPath
    """Folder of rows of what was not over at the end."""


class Reading(Protocol):
    """How far captures are read."""

    @property
    def bytes_read(self) -> int:
        """So far."""

    @property
    def bytes_total(self) -> int | None:
        """None where that is not known."""


class Hooks(msgspec.Struct):
    """What a run calls."""

    opened: Callable[[Reading], None] | None = None
    part: Callable[[], None] | None = None
    """After each part of a batch."""
    stdin: BinaryIO | None = None


def run_shard(task: ShardTask, hooks: Hooks) -> ShardResult:
    """Stage the rows of all captures of a run, as far as that was not done before the run was killed.

    Raises CaptureError where a capture cannot be opened, OSError where rows cannot be written, DamagedRunError where
    what was done before cannot be used.
    """
    task.folder.make_folder()
    keys = None if task.keylog is None else open_key_log(task.keylog)
    if (task.folder / CHECKPOINT).exists():
        run = _resumed(task, keys)
    else:
        run = _Run(task, _read(task), keys)
    run.captures(hooks)
    # Its state is loaded again below: both together would be twice the budget, and cycles are not freed by themselves.
    del run
    gc.collect()
    # What ends only because the captures do is not over: the next run goes on from the state before.
    checkpoint = _read(task)
    unfinished = task.folder / _OPEN
    again = None if keys is None else keys.silent()
    state = stage_unfinished(
        checkpoint.state,
        task.options,
        task.predicate,
        unfinished,
        keys=again,
        limit=lambda state: state.limit_memory(task.memory, task.shards),
    )
    tellings = state.enricher.catalog.tellings
    assert tellings is not None
    return ShardResult(
        checkpoint.state,
        tellings,
        checkpoint.order,
        checkpoint.broken,
        state.inspector.summary,
        _segments(task, checkpoint),
        unfinished,
    )


def _resumed(task: ShardTask, keys: KeyLog | None) -> _Run:
    """The shard as an earlier process left it. Raises DamagedRunError where that cannot be used."""
    try:
        checkpoint = _read(task)
        captures = range(len(task.paths))
        if sorted(set(checkpoint.done)) != checkpoint.done or not all(one in captures for one in checkpoint.done):
            raise DamagedRunError(f"{task.folder / CHECKPOINT} is of other captures")
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
    """The folder of a shard, in that of the run."""
    return f"shard-{number:05}"


def is_shard(name: str) -> bool:
    """Whether a folder has such a name."""
    return _SHARD.fullmatch(name) is not None


def _segment(number: int) -> str:
    return f"staged-{number:05}"


def _segments(task: ShardTask, checkpoint: _Checkpoint) -> list[ConfinedPath]:
    return [task.folder / _segment(number) for number in range(checkpoint.segments)]


class _Run:
    """The way from one checkpoint to the last."""

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
            # Who goes on with a run that was killed finds them told.
            inspector.follow_key_log(keys, tells=task.shard == 0 and not checkpoint.segments)
        inspector.keys.tells = task.shard == 0
        if not checkpoint.done:
            # Earlier runs had their own summaries.
            self._state.enricher.count_into(self._state.inspector.begin_summary())
        self._next = time.monotonic() + task.checkpoint_seconds
        self._begin()

    def _begin(self) -> None:
        folder = self._task.folder / _segment(self._segments)
        folder.remove_tree()
        self._files = StagedFiles(folder)
        self._stager = new_stager(self._state, self._task.options, self._task.predicate, self._files)

    def captures(self, hooks: Hooks) -> None:
        """Go through the captures that are not done, and fix the result."""
        task = self._task
        left = [index for index in range(len(task.paths)) if index not in self._done]
        scales = self._scales()
        if left:
            with open_captures([task.paths[index] for index in left], stdin=hooks.stdin) as source:
                if hooks.opened is not None:
                    hooks.opened(source)
                placed = _Placed(left, len(task.names), (*task.names, *self._names(source, left)), self._order)
                for batch, ended in with_pauses(source):
                    for part in parts(share(placed.batch(batch), task.shard, task.shards), scales):
                        self._feed(part)
                        if hooks.part is not None:
                            hooks.part()
                    self._order = placed.order
                    if ended is not None and time.monotonic() >= self._next and self._segments < MAX_SEGMENTS - 1:
                        self._broken = self._broken or source.broken
                        self._done = sorted({*self._done, *(left[index] for index in ended)})
                        self._fix()
                        self._begin()
                self._broken = self._broken or source.broken
            self._done = list(range(len(task.paths)))
            self._fix()

    def _scales(self) -> Iterator[float]:
        """How large the next part is."""
        stager, most = self._stager, 1.0
        scale = 1.0 if stager.finder is None else 1 / FIRST_PARTS
        while True:
            before = stager.in_columns
            yield scale
            if stager is self._stager:
                many = stager.in_columns - before >= MANY * min(scale, 1)
                most = float(HEADERS_AT_ONCE if self._task.options.reads_headers else COLUMNS_AT_ONCE) if many else 1.0
            stager = self._stager
            scale = min(2 * scale, most)

    def _names(self, source: CaptureSource, left: list[int]) -> list[str]:
        """Names of all captures of this run; those that are through have none of a source any more."""
        names = list(self._task.paths)
        for index, name in zip(left, source.captures, strict=True):
            names[index] = name
        return names

    def _feed(self, batch: PacketBatch) -> None:
        stage(self._state, self._stager, batch)

    def _fix(self) -> None:
        """Make a checkpoint of what is staged."""
        self._stager.flush()
        self._files.close()
        self._state.selected = self._stager.selected
        self._segments += 1
        self._rows += self._files.rows
        checkpoint = _Checkpoint(self._done, self._order, self._segments, self._rows, self._broken, dump(self._state))
        (self._task.folder / CHECKPOINT).put(msgspec.msgpack.encode(checkpoint))
        self._next = time.monotonic() + self._task.checkpoint_seconds


class _Placed:
    """Puts batches of some captures of a run where they stand among all captures of all runs."""

    def __init__(self, indices: list[int], before: int, names: tuple[str, ...], order: int) -> None:
        self._indices = np.array([before + index for index in indices], np.int32)
        self._names = names
        self._first = order
        self.order = order
        """One past the order of the last packet so far."""

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
    """A batch in parts that are bounded in packets and payload bytes; `scales`: so many times the usual bounds each."""
    while len(batch) > 1:
        scale = 1.0 if scales is None else next(scales)
        sizes = np.cumsum(batch.length[: int(MAX_PART_ROWS * scale)], dtype=np.int64)
        rows = int(np.searchsorted(sizes, MAX_PART_BYTES * scale)) + 1
        if rows >= len(batch):
            break
        part, batch = batch.split(rows)
        yield part
    yield batch
