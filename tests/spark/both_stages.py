"""Both stages of the pipeline one after the other in this process, without Spark: what its tasks do, task by task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import CapturePlan, plan_captures, read_notes
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark import connections
from kafkasniff.spark.connections import END, HELD, STEP, STEP_COLUMNS, ReadConnections, ShardBegin, ShardEnd, TaskKeys
from kafkasniff.spark.pieces import BEGIN_INDEX, PIECE_SCHEMA, PacketCutter
from kafkasniff.spark.source import packets_of, parts_of
from kafkasniff.spark.table_rows import WriteFiles
from kafkasniff.spark.tasks import share
from kafkasniff.tables.checkpoint import Carried, dump
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import first_states
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tls.keylog import KeyLog
from tests.tables.exports.exported import Rows

OPTIONS = ExportOptions()
SPLIT = 64 << 10


def of_kinds(rows: pa.RecordBatch, *kinds: str) -> pa.RecordBatch:
    return rows.filter(pc.is_in(rows.column("kind"), pa.array(kinds)))


def pieces_of(plan: CapturePlan, shards: int) -> list[dict[str, Any]]:
    """The packets of captures in pieces of shards."""
    cutter = PacketCutter(shards)
    return [row for part in parts_of(plan, SPLIT) for cut in cutter.cut(packets_of(part)) for row in cut.to_pylist()]


def in_shard(pieces: list[dict[str, Any]], shard: int, begin: ShardBegin, size: int) -> Iterator[pa.RecordBatch]:
    """What the task of a shard gets, `size` rows at a time, in an order that is always the same."""
    first = {"shard": shard, "capture_index": BEGIN_INDEX, "data": connections.BEGIN_VALUES.dump(begin)}
    found = [first, *(row for row in pieces if row["shard"] == shard)]
    Random(shard).shuffle(found)
    for start in range(0, len(found), size):
        yield pa.RecordBatch.from_pylist(found[start : start + size], schema=PIECE_SCHEMA)


class Decoded:
    """Rows between the stages, and what the tasks say of them."""

    def __init__(self) -> None:
        self.rows: list[pa.RecordBatch] = []
        self.steps: list[dict[str, Any]] = []
        self.ends: list[ShardEnd] = []

    def take(self, rows: pa.RecordBatch) -> list[ShardEnd]:
        ends = [connections.END_VALUES.load(data) for data in of_kinds(rows, END).column("data").to_pylist()]
        self.ends += ends
        self.steps += of_kinds(rows, STEP).to_pylist()
        self.rows.append(of_kinds(rows, *TABLE_NAMES))
        return ends

    @property
    def learned_facts(self) -> LearnedFacts:
        found = LearnedFacts()
        for end in self.ends:
            found.merge(end.learned_facts)
        return found

    def held(self, size: int = 100) -> list[pa.RecordBatch]:
        """Rows with what applies to exchanges in fetch sessions."""
        steps = sorted(self.steps, key=lambda row: [(row[name] is not None, row[name]) for name in STEP_COLUMNS[:5]])
        schema = self.rows[0].schema
        batches = [
            pa.RecordBatch.from_pylist(steps[at : at + size], schema=schema) for at in range(0, len(steps), size)
        ]
        return [of_kinds(rows, HELD) for rows in connections.WalkSessions(dump(Sessions()))(batches)]


def decode(
    captures: Sequence[Path],
    *,
    keys: KeyLog | None = None,
    shards: int = 1,
    size: int = 100,
    options: ExportOptions = OPTIONS,
) -> Decoded:
    """Stage 1, `size` rows at a time."""
    files = find_captures([str(path) for path in captures])
    plan = plan_captures(files, open_capture, split_size=SPLIT)
    found = pieces_of(plan, shards)
    # As a task gets it.
    notes = read_notes(plan, open_capture)
    task_keys = pickle.loads(pickle.dumps(TaskKeys(keys, connections.secrets_among(notes))))
    problems = [*connections.key_log_problems(keys), *(note.value for note in notes if isinstance(note.value, Problem))]
    read = ReadConnections(
        options, dict(enumerate(plan.names)), end_clock=max(split.clock_after for split in plan.splits), keys=task_keys
    )
    decoded = Decoded()
    for shard, state in enumerate(first_states(Carried(), shards, options, {})):
        begin = ShardBegin(state, [] if shard else problems)
        before = len(decoded.rows)
        for rows in read.read(in_shard(found, shard, begin, size)):
            ends = decoded.take(rows)
        (end,) = ends
        blocks = [row for rows in decoded.rows[before:] for row in rows.select(["shard", "in_session"]).to_pylist()]
        assert {row["shard"] for row in blocks} <= {shard}
        assert (end.size > 0, end.in_session > 0) == (bool(blocks), any(row["in_session"] for row in blocks))
    return decoded


def by_stages(captures: Sequence[Path], folder: Path, **more: Any) -> dict[str, Rows]:
    """All rows of captures, in an order that does not depend on the tasks; arguments as for `decode`."""
    into = open_own_folder(folder, make=True)
    options = more.get("options", OPTIONS)
    found = decode(captures, **more)
    write = WriteFiles(options, found.learned_facts, {}, share(into), 1)
    tables: dict[str, Rows] = {table: [] for table in TABLE_NAMES}
    for report in write.write(0, [*found.rows, *found.held()]):
        for table, files in report.files.items():
            for path, rows, size in files:
                assert (folder / path).stat().st_size == size
                some = pq.ParquetFile(folder / path).read().to_pylist()
                assert len(some) == rows
                tables[table] += some
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}
