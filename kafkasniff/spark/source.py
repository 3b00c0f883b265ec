"""Captures in Spark: planned by a job, read as the table `packets`. The basis of the pipeline."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.capture.timeline.locations import list_captures
from kafkasniff.capture.timeline.parts import CapturePlan, Place, PlacedNote
from kafkasniff.spark.failures import task_errors
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.packet_rows import packet_batches
from kafkasniff.spark.pieces import PIECES, PacketCutter
from kafkasniff.spark.planning import in_tasks, look_at_captures, notes_of, plan_looked_at
from kafkasniff.spark.reading import PacketQuery, Part, earliest, packets_of, parts_of, read_part
from kafkasniff.spark.tables import PACKETS, PIPELINE, ddl
from kafkasniff.spark.worker_settings import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PlannedCaptures", "open_captures", "packet_batches", "packets"]

MAX_COUNTS: Final = 1 << 22
"""Maximum number of rows with a number of pieces, of which there is one for each part and shard; reached at 256 GB."""


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
        read = _ReadParts(PacketQuery(tuple(columns), tuple(ports)))
        return in_tasks(self.spark, self._parts).mapInArrow(read, ddl(PACKETS, columns))

    def pieces(self, shards: int, *, ports: Iterable[int] = (), captures_before: int = 0) -> DataFrame:
        """The same packets in pieces of shards (`pieces.PIECES`); parameters as for `PacketCutter`."""
        cutter = PacketCutter(shards, ports=ports, captures_before=captures_before)
        read = _ReadPieces(cutter, count=shards * len(self._parts) <= MAX_COUNTS)
        return in_tasks(self.spark, self._parts).mapInArrow(read, ddl(PIECES))

    def earliest(self, captures_before: int = 0) -> list[Place]:
        """For each part, a lower bound of the places of its packets; ascending."""
        places = map(earliest, self._parts)
        return [place._replace(capture=place.capture + captures_before) for place in places]

    @cached_property
    def _parts(self) -> list[Part]:
        # Spark hands the pieces of a machine to a shard in order of parts.
        return sorted(parts_of(self.plan, self._split_size), key=earliest)

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


class _ReadParts:
    """Reads parts, which are its input."""

    def __init__(self, wanted: PacketQuery) -> None:
        self._wanted = wanted

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("data").to_pylist():
                part: Part = pickle.loads(data)
                yield from read_part(part, self._wanted)


class _ReadPieces:
    """Reads parts and cuts their packets."""

    def __init__(self, cutter: PacketCutter, *, count: bool = False) -> None:
        self._cutter = cutter
        self._count = count

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker()
        for batch in batches:
            for number, data in zip(*(batch.column(name).to_pylist() for name in ("id", "data")), strict=True):
                part: Part = pickle.loads(data)
                yield from self._cutter.cut(packets_of(part), number, count=self._count)
