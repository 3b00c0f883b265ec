"""Planning with Spark: tasks look at captures, and the driver only puts together what they found.

A piece of a capture is looked at once, with as few requests as possible: whether its capture is a capture at all and
is new to an export, and where its packets begin. Small captures are read by a single request.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import CaptureFile, captures_among, for_each, is_capture, open_capture
from kafkasniff.capture.timeline.parts import (
    CapturePlan,
    Place,
    PlacedNote,
    WalkedPiece,
    in_order,
    notes_of_capture,
    notes_of_rest,
    plan_captures,
    read_notes,
    walk_piece,
)
from kafkasniff.capture.timeline.splits import Split, piece_count
from kafkasniff.errors import CaptureError
from kafkasniff.model import Problem
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.spark.reading import AT_ONCE, FILE_BYTES, grouped
from kafkasniff.spark.worker_settings import settle_worker
from kafkasniff.tables.checkpoint.values import Values
from kafkasniff.tables.exports.captures import Exported, Look, ManifestCapture, flaw_of, identify, kept
from kafkasniff.tables.rows.exchanges import capture_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LookedAt", "in_tasks", "look_at_captures", "notes_of", "plan_looked_at"]

FEW_BYTES: Final = 256 << 20
"""Smaller captures are looked at where the plan is made: a job would cost more than it saves."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LookedAt(NamedTuple):
    """A capture, and what is known of it."""

    file: CaptureFile
    look: Look
    pieces: list[WalkedPiece]
    """Empty if its packets are not to be read."""


class _Piece(NamedTuple):
    file: CaptureFile
    number: int
    """Its number among the pieces of the capture, from 0."""
    size: int


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """What is found out about a piece; without names, which need not be text that can be encoded."""

    counts: bool
    """False: its file was doubtful, and does not begin like a capture."""
    size: int | None = None
    head: str | None = None
    tail: str | None = None
    flaw: str | None = None
    grown: bool = False
    version: str | None = None
    walked: WalkedPiece | None = None


_GROUP: Final = msgspec.msgpack.Decoder(list[_Seen])


def look_at_captures(
    spark: SparkSession | None, files: Sequence[CaptureFile], split_size: int, exported: Exported | None = None
) -> list[LookedAt]:
    """Look at files that were listed; returns the captures among them.

    `exported`: for an export, the captures that it has; otherwise captures are not identified.

    This is done in tasks, or without a session, or if there are few, in threads of this process. Raises CaptureError if
    one cannot be read, or a folder has none.
    """
    pieces = [
        _Piece(file, index, min(split_size, file.size - index * split_size))
        for file in files
        for index in range(piece_count(file.size, split_size))
    ]
    look = _Looks(split_size, exported)
    if spark is None or _are_few(piece.size for piece in pieces):
        seen = _in_threads(look.seen, pieces, any(is_remote(file.path) for file in files))
    else:
        groups = grouped(pieces, lambda piece: piece.size, split_size)
        rows = in_tasks(spark, groups).mapInArrow(look, "id int, data binary").collect()
        by_group = {row["id"]: row["data"] for row in rows}
        seen = (one for group in range(len(groups)) for one in _GROUP.decode(by_group.pop(group)))
    by_file = [list(islice(seen, piece_count(file.size, split_size))) for file in files]
    found = {(file.path, file.folder): _put_together(file, of_one) for file, of_one in zip(files, by_file, strict=True)}
    return [found[file.path, file.folder] for file in captures_among(files, (of_one[0].counts for of_one in by_file))]


def _put_together(file: CaptureFile, seen: Sequence[_Seen]) -> LookedAt:
    first = seen[0]
    versions = {one.version for one in seen}
    if len(versions - {None}) > 1:
        raise CaptureError(f"{file.name}: was changed while it was planned; repeat the run")
    # With None, it has begun to grow.
    file = msgspec.structs.replace(file, version=None if None in versions else first.version)
    capture = ManifestCapture(capture_name(file.name) or "", first.size, first.head, first.tail)
    walked = [(msgspec.structs.replace(one.walked[0], path=file.name), one.walked[1]) for one in seen if one.walked]
    return LookedAt(file, Look(file.path, capture, first.flaw, first.grown), walked)


def plan_looked_at(captures: Sequence[LookedAt]) -> CapturePlan:
    """The plan of captures. Raises CaptureError if one is empty or no capture."""
    for one in captures:
        if one.look.flaw is not None:
            raise CaptureError(one.look.flaw)
    return plan_captures([one.file for one in captures], open_capture, walked=(one.pieces for one in captures))


def in_tasks(spark: SparkSession, values: Sequence[object]) -> DataFrame:
    """A row (`id`, pickled value) for each value, each in a task of its own.

    What a function holds would be sent to every task, whose work would grow with the number of tasks.
    """
    table = pa.table(
        {
            "id": pa.array(range(len(values)), pa.int32()),
            "data": pa.array([pickle.dumps(value) for value in values], pa.binary()),
        }
    )
    return spark.createDataFrame(table).repartitionById(max(1, len(values)), "id")


def _are_few(sizes: Iterable[int]) -> bool:
    return sum(size + FILE_BYTES for size in sizes) <= FEW_BYTES


def _in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item], remote: bool) -> Iterator[_Result]:
    """Reading, decompression and NumPy run in parallel."""
    with ThreadPoolExecutor(AT_ONCE if remote else min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(function, items)


class _Looks:
    """Looks at pieces of captures."""

    def __init__(self, split_size: int, exported: Exported | None) -> None:
        self._split_size = split_size
        self._exported = exported

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker()
        for batch in batches:
            for number, data in zip(*(batch.column(name).to_pylist() for name in ("id", "data")), strict=True):
                pieces: list[_Piece] = pickle.loads(data)
                remote = any(is_remote(piece.file.path) for piece in pieces)
                found = msgspec.msgpack.encode(list(for_each(self.seen, pieces, remote=remote, at_once=AT_ONCE)))
                yield pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int32()), "data": [found]})

    def seen(self, piece: _Piece) -> _Seen:
        """Look at a piece, and walk it if its capture is to be read."""
        file, exported = piece.file, self._exported
        opened = open_capture(file)
        read_at = kept(file, opened)
        try:
            if file.doubtful and not is_capture(read_at):
                return _Seen(counts=False)
            capture = ManifestCapture(capture_name(file.name) or "", file.size)
            if exported is None:
                look = Look(file.path, capture, flaw_of(capture, read_at))
            else:
                capture = identify(capture.name, file.size, read_at)
                look = exported.examine(file.path, capture, read_at)
        except OSError as error:
            raise CaptureError(f"{file.name}: cannot be read ({error.strerror or error})") from None
        walked = None
        if look.flaw is None and not look.grown and (exported is None or not exported.has(capture)):
            walked = walk_piece(file, read_at, self._split_size, piece.number)
        if walked is not None:
            part, found = walked
            # Only the next piece needs the state after this one.
            state = found.state if part.stop < part.size else None
            walked = (msgspec.structs.replace(part, path=""), msgspec.structs.replace(found, state=state))
        return _Seen(True, capture.size, capture.head, capture.tail, look.flaw, look.grown, opened.version, walked)


_Noted = list[tuple[list[Split], CaptureFile]] | CapturePlan
"""What a task reads notes of: captures, or all fragments of a plan."""

_Columns = tuple[Place, Problem | None, tuple[str, str] | None, bytes | None]
_NOTES: Final = Values[list[_Columns]](list[_Columns])


def notes_of(spark: SparkSession, plan: CapturePlan, split_size: int) -> list[PlacedNote]:
    """All notes of a run, as `read_notes` returns them; tasks read them unless they are few. Raises CaptureError."""
    if _are_few(split.end - split.begin for split in plan.splits if split.has_notes or split.fragments):
        return read_notes(plan, open_capture)
    items = [(splits, plan.files[splits[0].capture]) for splits in plan.noted()]
    groups: list[_Noted] = [*grouped(items, lambda item: sum(one.end - one.begin for one in item[0]), split_size)]
    if plan.has_fragments:
        groups.append(plan)
    rows = in_tasks(spark, groups).mapInArrow(_read_notes, "id int, data binary").collect()
    found = {row["id"]: _in_one(_NOTES.load(row["data"])) for row in rows}
    rest = found.pop(len(groups) - 1) if plan.has_fragments else notes_of_rest(plan, open_capture)
    return in_order((note for _, notes in sorted(found.items()) for note in notes), rest)


def _read_notes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number, data in zip(*(batch.column(name).to_pylist() for name in ("id", "data")), strict=True):
            group: _Noted = pickle.loads(data)
            if isinstance(group, CapturePlan):
                notes = notes_of_rest(group, open_capture)
            else:
                notes = [note for splits, file in group for note in notes_of_capture(splits, file, open_capture(file))]
            dumped = _NOTES.dump([_in_columns(note) for note in notes])
            yield pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int32()), "data": [dumped]})


def _in_columns(note: PlacedNote) -> _Columns:
    value = note.value
    return (
        note.place,
        value if isinstance(value, Problem) else None,
        value if isinstance(value, tuple) else None,
        value if isinstance(value, bytes) else None,
    )


def _in_one(notes: Iterable[_Columns]) -> list[PlacedNote]:
    return [PlacedNote(place, value) for place, *values in notes for value in values if value is not None]
