"""Sections of shards in a run: their tasks, and the check that each begins where the one before has ended.

See `shard_sections`. The captures are read once more, for the packets of the sections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kafkasniff.engine.run_parts import add_problems
from kafkasniff.spark.connections import ReadConnections, ShardBegin, ShardEnd
from kafkasniff.spark.piece_store import BEGIN_INDEX
from kafkasniff.spark.section_borders import SectionTask
from kafkasniff.spark.shard_rows import SECTION
from kafkasniff.spark.shard_sections import section_state
from kafkasniff.spark.shard_tasks import begin_rows, in_tasks_of_shards
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.beginning import load_state
from kafkasniff.tables.exports.options import ExportOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DecodedPart", "DecodedShards", "decode_sections", "next_tasks"]

Pieces = Callable[[Sequence[SectionTask]], "DataFrame"]
"""Makes pieces (`pieces.PIECES`) of the packets of tasks."""
Decode = Callable[["DataFrame", ReadConnections], tuple["DataFrame", list[ShardEnd]]]
"""Runs tasks of stage 1 over their rows; returns the rows of all, and the end of each."""


class DecodedShards(NamedTuple):
    """Shards after all of their sections."""

    rows: DataFrame
    ends: list[ShardEnd]
    """First those of shards, then those of sections, which have numbers as if they were further shards."""
    states: list[bytes]
    """The last state of each shard."""
    problems: dict[int, int]
    """By `connection_id`, problems of connections in parts of their shards before the one that has their row."""


class DecodedPart(NamedTuple):
    """What a task has decoded of a shard."""

    last: int
    """Its last section; 0: none, it is the task of the shard."""
    end: ShardEnd


def decode_sections(
    rows: DataFrame,
    ends: Sequence[ShardEnd],
    read: ReadConnections,
    options: ExportOptions,
    *,
    pieces: Pieces | None,
    decode: Decode,
) -> DecodedShards:
    """Decode the sections that the tasks of shards have left to others.

    `rows`, `ends`: of these tasks, in order of shards; `read`: what they did. `pieces` may be missing if there are no
    sections. Raises what `decode` raises.
    """
    from pyspark.sql import functions as sf

    shards = [[DecodedPart(0, end)] for end in ends]
    whole, used = rows, len(ends)
    wrong: list[int] = []
    for again in (False, True):
        tasks = [task for own in shards for task in next_tasks(own, alone=again)]
        if not tasks:
            break
        assert pieces is not None
        if again:
            begins = {at: _begin_after(shards[task.shard][-1].end, options) for at, task in enumerate(tasks)}
            first = begin_rows(rows.sparkSession, begins)
        else:
            first = _found_begins(rows, tasks)
        goes_on = [used + at for at, task in enumerate(tasks) if task.end is not None]
        made, more = decode(in_tasks_of_shards(first, pieces(tasks), len(tasks)), read.of_sections(used, goes_on))
        whole = whole.union(made)
        for task, end in zip(tasks, more, strict=True):
            shards[task.shard].append(DecodedPart(task.last, end))
        used += len(tasks)
        if again:
            break  # they began with the state with which the part before ended
        for own in shards:
            right = right_parts(own)
            wrong += [part.end.shard for part in own[right:]]
            del own[right:]
    if wrong:
        whole = whole.where(~sf.col("shard").isin(wrong))
    problems: Counter[int] = Counter()
    for own in shards:
        for part in own[:-1]:
            problems.update(part.end.problems)
    return DecodedShards(
        whole,
        sorted((part.end for own in shards for part in own), key=lambda end: end.shard),
        [_last_state(own, options, problems) for own in shards],
        dict(problems),
    )


def next_tasks(parts: Sequence[DecodedPart], *, alone: bool) -> list[SectionTask]:
    """The tasks for the sections of a shard that are not decoded; `alone`: a single one.

    If a section did not begin with the right state, those after it may be wrong for the same reason.
    """
    shard, begins, done = parts[0].end.shard, parts[0].end.sections, parts[-1].last
    left = range(done + 1, len(begins) + 1)
    if alone and left:
        return [SectionTask(shard, left[0], left[-1], begins[done], None)]
    ends = [*begins[1:], None]
    return [SectionTask(shard, number, number, begins[number - 1], ends[number - 1]) for number in left]


def right_parts(parts: Sequence[DecodedPart]) -> int:
    """The number of parts up to the first one that did not begin with the state with which the one before ended."""
    for at, (before, part) in enumerate(pairwise(parts), 1):
        if part.end.begins_with != before.end.ends_with:
            return at
    return len(parts)


def _begin_after(end: ShardEnd, options: ExportOptions) -> ShardBegin:
    """The beginning of the section after a part."""
    return ShardBegin(section_state(load_state(end.state, options)), order=end.order)


def _last_state(parts: Sequence[DecodedPart], options: ExportOptions, problems: Mapping[int, int]) -> bytes:
    """The state of a shard for the next run, with the problems of its connections in all parts."""
    dumped = parts[-1].end.state
    if len(parts) == 1 or not problems:
        return dumped
    state = load_state(dumped, options)
    add_problems(state.inspector, problems)
    return dump(state)


def _found_begins(rows: DataFrame, tasks: Sequence[SectionTask]) -> DataFrame:
    """The beginnings of sections that the tasks of shards have found."""
    from pyspark.sql import functions as sf

    columns = [pa.array(one, pa.int64()) for one in zip(*((task.shard, task.first) for task in tasks), strict=True)]
    columns.append(pa.array(range(len(tasks)), pa.int64()))
    planned = rows.sparkSession.createDataFrame(pa.table(columns, ["shard", "number", "task"]))
    found = rows.where(f"kind = '{SECTION}'").select("shard", "number", "data")
    return found.join(sf.broadcast(planned), ["shard", "number"]).select(
        sf.col("task").cast("int").alias("shard"), sf.lit(BEGIN_INDEX).alias("capture_index"), "data"
    )
