"""Both stages of the pipeline one after the other in this process, without Spark: what its tasks do, task by task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import CapturePlan, Place, plan_captures, read_notes
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.connections import BEGIN_VALUES, END_VALUES, ReadConnections, ShardBegin
from kafkasniff.spark.keys import TaskKeys, key_log_problems, secrets_among
from kafkasniff.spark.piece_store import BEGIN_INDEX
from kafkasniff.spark.pieces import PIECE_SCHEMA, PacketCutter
from kafkasniff.spark.reading import earliest, packets_of, parts_of
from kafkasniff.spark.shard_rows import END, STEP
from kafkasniff.spark.shared_folder import share
from kafkasniff.spark.table_rows import WriteFiles
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tls.keylog import KeyLog
from tests.tables.exports.exported import Rows


def pieces_of(plan: CapturePlan, shards: int) -> tuple[list[dict[str, Any]], list[Place]]:
    """The packets of captures in pieces of shards, and for each part a lower bound of the places of its packets."""
    cutter = PacketCutter(shards)
    parts = sorted(parts_of(plan, 64 << 10), key=earliest)
    cuts = (cut for number, part in enumerate(parts) for cut in cutter.cut(packets_of(part), number, count=True))
    return [row for cut in cuts for row in cut.to_pylist()], [*map(earliest, parts)]


def in_shard(pieces: list[dict[str, Any]], shard: int, begin: ShardBegin, size: int) -> Iterator[pa.RecordBatch]:
    """What the task of a shard gets, `size` rows at a time, in an order that is always the same."""
    first = {"shard": shard, "capture_index": BEGIN_INDEX, "data": BEGIN_VALUES.dump(begin)}
    found = [first, *(row for row in pieces if row["shard"] == shard)]
    Random(shard).shuffle(found)
    for start in range(0, len(found), size):
        yield pa.RecordBatch.from_pylist(found[start : start + size], schema=PIECE_SCHEMA)


def by_stages(
    captures: Sequence[Path], folder: Path, *, keys: KeyLog | None = None, shards: int = 1, size: int = 100
) -> dict[str, Rows]:
    """All rows of captures that hold no fetch sessions, in an order that does not depend on the tasks."""
    options = ExportOptions()
    files = find_captures([str(path) for path in captures])
    plan = plan_captures(files, open_capture, split_size=64 << 10)
    notes = read_notes(plan, open_capture)
    pieces, places = pieces_of(plan, shards)
    # As a task gets it.
    task_keys = pickle.loads(pickle.dumps(TaskKeys(keys, secrets_among(notes))))
    end_clock = max(split.clock_after for split in plan.splits)
    names = dict(enumerate(plan.names))
    read = ReadConnections(options, names, end_clock=end_clock, keys=task_keys, earliest=places)
    found: list[pa.RecordBatch] = []
    learned_facts = LearnedFacts()
    for shard, state in enumerate(first_states(Carried([], Sessions(), LearnedFacts()), shards, options, {})):
        begin = ShardBegin(state, [] if shard else key_log_problems(keys))
        for rows in read.read(shard, in_shard(pieces, shard, begin, size)):
            kinds = np.array(rows.column("kind").to_pylist())
            for data in rows.filter(pa.array(kinds == END)).column("data").to_pylist():
                end = END_VALUES.load(data)
                learned_facts.merge(end.learned_facts)
            found.append(rows.filter(pa.array((kinds != END) & (kinds != STEP))))
    into = open_own_folder(folder, make=True)
    write = WriteFiles(options, learned_facts, {}, share(into), 1)
    written = [row for batch in write.write(0, 0, found) for row in batch.to_pylist()]
    tables: dict[str, Rows] = {table: [] for table in TABLE_NAMES}
    for row in written:
        if row["path"] is None:
            continue  # how many rows which day has
        tables[row["table"]] += pq.ParquetFile(folder / row["path"]).read().to_pylist()
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}
