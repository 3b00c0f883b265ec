"""Captures in Spark: planned by a job, read as the table `packets`. The basis of the pipeline."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import (
    CaptureFile,
    captures_among,
    for_each,
    is_capture,
    list_captures,
    open_capture,
)
from kafkasniff.capture.timeline.parts import (
    CapturePlan,
    Place,
    PlacedNote,
    WalkedPiece,
    in_order,
    notes_of_capture,
    notes_of_rest,
    plan_captures,
    read_datagrams,
    read_notes,
    read_split,
    walk_piece,
)
from kafkasniff.capture.timeline.splits import ReadAt, Split, piece_count
from kafkasniff.errors import CaptureError
from kafkasniff.model import Problem
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.spark.options import PACKETS, PIPELINE, SPLIT_BYTES, ddl
from kafkasniff.spark.packet_rows import Condition, keeper, packet_rows, secret_rows
from kafkasniff.spark.pieces import PIECES, PacketCutter
from kafkasniff.spark.session import task_errors
from kafkasniff.spark.tasks import settle_worker
from kafkasniff.tables.checkpoint.wire import Values
from kafkasniff.tables.exports.captures import (
    SMALL_FILE,
    Exported,
    Look,
    ManifestCapture,
    flaw_of,
    identify,
    kept,
    open_kept,
)
from kafkasniff.tables.rows.exchanges import capture_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# -- the input of a task -----------------------------------------------------------------------------------------------
#
# Input of one task, as rows of the table `packets`.
#
# It is either splits of captures, or datagrams whose fragments are in different splits, or TLS secrets between packets.

_T = TypeVar("_T")


class PacketQuery(msgspec.Struct, frozen=True):
    """Rows and columns to read of the table `packets`."""

    columns: tuple[str, ...] = tuple(PACKETS)
    ports: tuple[int, ...] = ()
    """Only packets from or to one of these ports; empty: all."""
    conditions: tuple[Condition, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """Input of one task."""

    splits: tuple[tuple[Split, CaptureFile], ...] = ()
    rest: CapturePlan | None = None
    """All datagrams of this plan that are reassembled from fragments."""
    secrets: CapturePlan | None = None
    """All blocks of decryption secrets of this plan."""


AT_ONCE: Final = 16
"""Remote captures that a task requests at the same time: an answer takes about as long as the work for as many."""

FILE_BYTES: Final = 1 << 20
"""What a part of a file costs besides its bytes, in bytes: opening it, two requests if it is remote, and reading its
first packets take about 2 ms of CPU time, in which a task reads about a megabyte."""


MAX_PARTS: Final = 1 << 13
"""Tasks that read captures of an export, about: each takes CPU time of the driver, which has a single queue."""


def split_bytes(size: int) -> int:
    """Bytes of captures that one task reads, if there are `size` bytes in total."""
    return max(SPLIT_BYTES, -(-size // MAX_PARTS))


def grouped(items: Sequence[_T], size: Callable[[_T], int], limit: int) -> list[list[_T]]:
    """Neighbouring items in groups of about `limit` bytes, or of files that cost as much as a split of usual size.

    So many small files need neither a task each nor a single one for all.
    """
    groups: list[list[_T]] = []
    most = max(limit, SPLIT_BYTES)
    total = 0
    for item in items:
        total += size(item)
        if not groups or total > limit or total + (len(groups[-1]) + 1) * FILE_BYTES > most:
            groups.append([])
            total = size(item)
        groups[-1].append(item)
    return groups


def parts_of(plan: CapturePlan, split_size: int, *, secrets: bool = False) -> list[Part]:
    """The parts that cover all packets of a plan; `secrets`: also the decryption secrets."""
    pairs = [(split, plan.files[split.capture]) for split in plan.splits]
    parts = [Part(tuple(group)) for group in grouped(pairs, lambda pair: pair[0].end - pair[0].begin, split_size)]
    if plan.has_fragments:
        parts.append(Part(rest=plan.of_rest()))
    if secrets and any(split.has_notes for split in plan.splits):
        parts.append(Part(secrets=plan))
    return parts


def read_part(part: Part, wanted: PacketQuery) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in batches bounded by bytes. Raises CaptureError if it can no longer be read."""
    keep, looked_at = keeper(wanted.conditions)
    for batch in packets_of(part):
        rows = packet_rows(batch, wanted.columns, ports=wanted.ports, keep=keep, looked_at=looked_at)
        if rows.num_rows:
            yield rows
    if part.secrets is not None:
        plan = part.secrets
        rows = secret_rows(read_notes(plan, open_capture), dict(enumerate(plan.names)))
        if keep is not None:
            rows = rows.filter(pa.array(keep(rows)))
        if rows.num_rows:
            yield rows.select(list(wanted.columns))


def packets_of(part: Part) -> Iterator[PacketBatch]:
    """The packets of a part, those of one capture after those of another. Raises CaptureError as `read_part` does."""
    for start in range(0, len(part.splits), AT_ONCE):
        splits = part.splits[start : start + AT_ONCE]
        remote = any(is_remote(file.path) for _, file in splits)
        for split, read_at in for_each(_opened, splits, remote=remote, at_once=AT_ONCE):
            yield from read_split(split, read_at)
    if part.rest is not None:
        yield from read_datagrams(part.rest, open_capture)


def _opened(item: tuple[Split, CaptureFile]) -> tuple[Split, ReadAt]:
    """A split and how to read it; a small remote file is read here already, at the same time as others."""
    split, file = item
    read_at = open_kept(file)
    if file.size <= SMALL_FILE and is_remote(file.path):
        read_at(0, file.size)
    return split, read_at


# -- planning ----------------------------------------------------------------------------------------------------------
#
# Planning with Spark: tasks look at captures, and the driver only puts together what they found.
#
# A piece of a capture is looked at once, with as few requests as possible: whether its capture is a capture at all and
# is new to an export, and where its packets begin. Small captures are read by a single request.

ANSWER: Final = "id int, data binary"
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
        rows = in_tasks(spark, groups).mapInArrow(look, ANSWER).collect()
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


def _given(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """In a task: the numbers and values of `in_tasks`."""
    for batch in batches:
        for number, data in zip(*(batch.column(name).to_pylist() for name in ("id", "data")), strict=True):
            yield number, pickle.loads(data)


def _answer(number: int, data: bytes) -> pa.RecordBatch:
    """What a task finds for a value, as a row (`ANSWER`)."""
    return pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int32()), "data": [data]})


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
        for number, pieces in _given(batches):
            remote = any(is_remote(piece.file.path) for piece in pieces)
            yield _answer(
                number, msgspec.msgpack.encode([*for_each(self.seen, pieces, remote=remote, at_once=AT_ONCE)])
            )

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
    groups: list[_Noted] = [*grouped(items, lambda item: sum(split.end - split.begin for split in item[0]), split_size)]
    if plan.has_fragments:
        groups.append(plan)
    rows = in_tasks(spark, groups).mapInArrow(_read_notes, ANSWER).collect()
    found = {row["id"]: _in_one(_NOTES.load(row["data"])) for row in rows}
    rest = found.pop(len(groups) - 1) if plan.has_fragments else notes_of_rest(plan, open_capture)
    return in_order((note for _, notes in sorted(found.items()) for note in notes), rest)


def _read_notes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, group in _given(batches):
        if isinstance(group, CapturePlan):
            notes = notes_of_rest(group, open_capture)
        else:
            notes = [note for splits, file in group for note in notes_of_capture(splits, file, open_capture(file))]
        yield _answer(number, _NOTES.dump([_in_columns(note) for note in notes]))


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


# -- captures as a DataFrame -------------------------------------------------------------------------------------------


class PlannedCaptures:
    """Planned captures of a run: `packets` has their packets, `notes` everything else."""

    def __init__(self, spark: SparkSession, plan: CapturePlan, split_size: int = SPLIT_BYTES) -> None:
        self.spark = spark
        self._split_size = split_size
        self.plan = plan

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the captures, by `capture_index`."""
        return self.plan.names

    def packets(self, *, columns: Sequence[str] = PIPELINE, ports: Iterable[int] = ()) -> DataFrame:
        """The table `packets`, each packet once, in no particular order.

        Sorted by (`clock_ns` with nulls first, `capture_index`, `number`) they are in capture order. A task raises
        CaptureError if a capture has changed since it was planned.
        """
        wanted = PacketQuery(tuple(columns), tuple(ports))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _, part in _given(batches):
                yield from read_part(part, wanted)

        return in_tasks(self.spark, self._parts).mapInArrow(read, ddl(PACKETS, columns))

    def pieces(self, shards: int, *, ports: Iterable[int] = (), captures_before: int = 0) -> DataFrame:
        """The same packets in pieces of shards (`pieces.PIECES`); parameters as for `PacketCutter`."""
        cutter = PacketCutter(shards, ports=ports, captures_before=captures_before)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle_worker()
            for _, part in _given(batches):
                yield from cutter.cut(packets_of(part))

        return in_tasks(self.spark, self._parts).mapInArrow(read, ddl(PIECES))

    @cached_property
    def _parts(self) -> list[Part]:
        return parts_of(self.plan, self._split_size)

    def notes(self) -> list[PlacedNote]:
        """Problems of captures, names, decryption secrets, in order; read from the parts that have any."""
        with task_errors():
            return notes_of(self.spark, self.plan, self._split_size)


def open_captures(spark: SparkSession, paths: Sequence[str], *, split_size: int = SPLIT_BYTES) -> PlannedCaptures:
    """Find captures (paths, folders, patterns, addresses) and plan how to read them, for which they are scanned.

    Raises CaptureError if one cannot be opened, is empty or is not a capture.
    """
    with task_errors():
        looked_at = look_at_captures(spark, list_captures(paths), split_size)
    return PlannedCaptures(spark, plan_looked_at(looked_at), split_size)
