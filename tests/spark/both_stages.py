"""Both stages of the pipeline one after the other in this process, without Spark: what its tasks do, task by task."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import CapturePlan, Place, plan_captures, read_notes
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.connections import BEGIN_VALUES, END_VALUES, ReadConnections, ShardBegin, ShardEnd
from kafkasniff.spark.keys import TaskKeys, key_log_problems, secrets_among
from kafkasniff.spark.piece_store import BEGIN_INDEX
from kafkasniff.spark.pieces import PIECE_SCHEMA, PacketCutter
from kafkasniff.spark.reading import earliest, packets_of, parts_of
from kafkasniff.spark.section_borders import SectionBorders, SectionTask
from kafkasniff.spark.section_runs import DecodedPart, next_tasks
from kafkasniff.spark.shard_rows import END, SECTION, STEP
from kafkasniff.spark.shard_sections import SectionSizes
from kafkasniff.spark.shared_folder import share
from kafkasniff.spark.table_rows import WriteFiles
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tls.keylog import KeyLog
from tests.tables.exports.exported import Rows

OPTIONS = ExportOptions()


def pieces_of(
    plan: CapturePlan, shards: int, sections: SectionBorders | None = None
) -> tuple[list[dict[str, Any]], list[Place]]:
    """The packets of captures in pieces of shards, and for each part a lower bound of the places of its packets.

    `sections`: only those of sections, in pieces of their tasks.
    """
    cutter = PacketCutter(shards, sections=sections)
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


class Sections:
    """Divides shards into sections, and what came of it."""

    def __init__(self, sizes: SectionSizes) -> None:
        self.sizes = sizes
        self.tasks = 0
        self.wrong: list[SectionTask] = []
        """Those that did not begin with the state with which the part before ended."""

    def begin(self, begins: dict[tuple[int, int], bytes], shard: int, number: int) -> bytes:
        """What a section begins with."""
        return begins[shard, number]

    def decode(
        self, plan: CapturePlan, read: ReadConnections, ends: list[ShardEnd], begins: dict[tuple[int, int], bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the tasks of sections.

        `begins`: by shard and section, what the task of the shard found.
        """
        tasks = [task for end in ends for task in next_tasks([DecodedPart(0, end)], alone=False)]
        if not tasks:
            return
        self.tasks += len(tasks)
        pieces, _ = pieces_of(plan, len(ends), SectionBorders(len(ends), tasks))
        again = read.of_sections(len(ends), [len(ends) + at for at, task in enumerate(tasks) if task.end is not None])
        before = {end.shard: end.ends_with for end in ends}
        for at, task in enumerate(tasks):
            begin = BEGIN_VALUES.load(self.begin(begins, task.shard, task.first))
            for rows in again.read(in_shard(pieces, at, begin, 100)):
                for data in _of_kind(rows, END).column("data").to_pylist():
                    end = END_VALUES.load(data)
                    if end.begins_with != before[task.shard]:
                        self.wrong.append(task)
                    before[task.shard] = end.ends_with
                yield rows


def by_stages(
    captures: Sequence[Path],
    folder: Path,
    *,
    keys: KeyLog | None = None,
    shards: int = 1,
    size: int = 100,
    sections: Sections | None = None,
    options: ExportOptions = OPTIONS,
) -> dict[str, Rows]:
    """All rows of captures that hold no fetch sessions, in an order that does not depend on the tasks."""
    files = find_captures([str(path) for path in captures])
    plan = plan_captures(files, open_capture, split_size=64 << 10)
    notes = read_notes(plan, open_capture)
    pieces, places = pieces_of(plan, shards)
    # As a task gets it.
    task_keys = pickle.loads(pickle.dumps(TaskKeys(keys, secrets_among(notes))))
    end_clock = max(split.clock_after for split in plan.splits)
    names = dict(enumerate(plan.names))
    sizes = None if sections is None else sections.sizes
    read = ReadConnections(options, names, end_clock=end_clock, keys=task_keys, earliest=places, sizes=sizes)
    found: list[pa.RecordBatch] = []
    ends: list[ShardEnd] = []
    begins: dict[tuple[int, int], bytes] = {}

    def take(rows: pa.RecordBatch) -> None:
        ends.extend(END_VALUES.load(data) for data in _of_kind(rows, END).column("data").to_pylist())
        begun = _of_kind(rows, SECTION)
        for one in begun.select(["shard", "number", "data"]).to_pylist():
            begins[one["shard"], one["number"]] = one["data"]
        found.append(rows.filter(pc.invert(pc.is_in(rows.column("kind"), pa.array([END, STEP, SECTION])))))

    for shard, state in enumerate(first_states(Carried([], Sessions(), LearnedFacts()), shards, options, {})):
        begin = ShardBegin(state, [] if shard else key_log_problems(keys))
        for rows in read.read(in_shard(pieces, shard, begin, size)):
            take(rows)
    if sections is not None:
        for rows in sections.decode(plan, read, ends[:], begins):
            take(rows)
    learned_facts = LearnedFacts()
    problems: Counter[int] = Counter()
    for end in ends:
        learned_facts.merge(end.learned_facts)
        problems.update(end.problems)
    into = open_own_folder(folder, make=True)
    write = WriteFiles(options, learned_facts, {}, share(into), 1, problems_before=problems)
    written = [row for batch in write.write(0, 0, found) for row in batch.to_pylist()]
    tables: dict[str, Rows] = {table: [] for table in TABLE_NAMES}
    for row in written:
        if row["path"] is None:
            continue  # how many rows which day has
        tables[row["table"]] += pq.ParquetFile(folder / row["path"]).read().to_pylist()
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def _of_kind(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    return rows.filter(pc.equal(rows.column("kind"), kind))
