"""Captures in Spark: planned by a job, read as the table `packets`. The basis of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import CaptureFile, CapturePlan, PlacedNote, plan_captures, read_notes
from kafkasniff.capture.timeline.planning import PlannedPart, Walked, walk
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.packet_rows import packet_batches
from kafkasniff.spark.reading import PacketQuery, Part, grouped, parts_of, read_part
from kafkasniff.spark.tables import PACKETS, PIPELINE, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PlannedCaptures", "open_captures", "open_files", "packet_batches", "packets", "walk_here"]

FEW_BYTES: Final = 256 << 20
"""Smaller captures are scanned where the plan is made: a job would cost more than it saves."""


class PlannedCaptures:
    """Planned captures of a run: `packets` has their packets, `notes` everything else."""

    def __init__(self, spark: SparkSession, plan: CapturePlan, split_size: int = SPLIT_BYTES) -> None:
        self._spark = spark
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
        read = _ReadParts(parts_of(self.plan, self._split_size), PacketQuery(tuple(columns), tuple(ports)))
        ids = self._spark.range(0, len(read.parts), 1, max(1, len(read.parts)))
        return ids.mapInArrow(read, ddl(PACKETS, columns))

    def notes(self) -> list[PlacedNote]:
        """Problems of captures, names, decryption secrets, in order; read here, from the parts that have any."""
        return read_notes(self.plan, open_capture)


def open_captures(spark: SparkSession, paths: Sequence[str], *, split_size: int = SPLIT_BYTES) -> PlannedCaptures:
    """Find captures (paths, folders, patterns, addresses) and plan how to read them, for which they are scanned.

    Raises CaptureError if one cannot be opened, is empty or is not a capture.
    """
    return open_files(spark, find_captures(paths), split_size=split_size)


def open_files(spark: SparkSession, files: Sequence[CaptureFile], *, split_size: int = SPLIT_BYTES) -> PlannedCaptures:
    """Plan how to read captures that were found. Raises CaptureError as `open_captures` does."""
    walk_all = walk_here(files)
    if sum(file.size for file in files) > FEW_BYTES:
        walk_all = _walk_in_job(spark, files, split_size)
    return PlannedCaptures(
        spark, plan_captures(files, open_capture, split_size=split_size, walk_all=walk_all), split_size
    )


def packets(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    columns: Sequence[str] = PIPELINE,
    ports: Iterable[int] = (),
    split_size: int = SPLIT_BYTES,
) -> DataFrame:
    """The table `packets` of captures; see `open_captures` and `PlannedCaptures.packets`."""
    return open_captures(spark, paths, split_size=split_size).packets(columns=columns, ports=ports)


WalkAll = Callable[[Sequence[PlannedPart]], Iterable[Walked]]


def walk_here(files: Sequence[CaptureFile]) -> WalkAll:
    """Scans pieces in threads of this process: reading, decompression and NumPy run in parallel."""

    def walk_all(pieces: Sequence[PlannedPart]) -> list[Walked]:
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda piece: walk(piece, open_capture(files[piece.capture])), pieces))

    return walk_all


def _walk_in_job(spark: SparkSession, files: Sequence[CaptureFile], split_size: int) -> WalkAll:
    """Scans pieces in a separate job."""

    def walk_all(pieces: Sequence[PlannedPart]) -> list[Walked]:
        numbered = [(index, piece, files[piece.capture]) for index, piece in enumerate(pieces)]
        groups = grouped(numbered, lambda item: item[1].stop - item[1].first, split_size)
        ids = spark.range(0, len(groups), 1, len(groups))
        rows = ids.mapInArrow(_WalkPieces(groups), "piece bigint, walked binary").collect()
        found = {row["piece"]: msgspec.msgpack.decode(bytes(row["walked"]), type=Walked) for row in rows}
        return [found[index] for index in range(len(pieces))]

    return walk_all


class _WalkPieces:
    """Scans groups of pieces, by their numbers."""

    def __init__(self, groups: list[list[tuple[int, PlannedPart, CaptureFile]]]) -> None:
        self._groups = groups

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for index, piece, file in self._groups[number]:
                    walked = msgspec.msgpack.encode(walk(piece, open_capture(file)))
                    yield pa.RecordBatch.from_pydict({"piece": [index], "walked": [walked]})


class _ReadParts:
    """Reads parts, by their numbers."""

    def __init__(self, parts: list[Part], wanted: PacketQuery) -> None:
        self.parts = parts
        self._wanted = wanted

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from read_part(self.parts[number], self._wanted)
