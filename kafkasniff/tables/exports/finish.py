"""Step 2 of a run: turns staged rows into the files of its tables, and makes the state for the next run."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.finalise import finalise
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.shard import ShardResult
from kafkasniff.tables.rows.resolve import LearnedNames

if TYPE_CHECKING:
    from kafkasniff.tables.rows.decoded_values import DecodedValues

__all__ = ["Finished", "finish"]


class Finished(msgspec.Struct):
    """A run that is ready to be committed."""

    written: dict[str, list[WrittenFile]]
    """The files of each table."""
    unfinished: dict[str, list[WrittenFile]]
    """Files of rows that were not over at the end."""
    state: bytes
    """A dumped `Carried`."""
    problems: list[Problem] = []
    """Problems found when rows were put into partitions; they are rows of the tables, too."""

    @property
    def files(self) -> list[WrittenFile]:
        """All files."""
        return [file for part in (self.written, self.unfinished) for files in part.values() for file in files]


def finish(
    into: ConfinedPath,
    name: str,
    options: ExportOptions,
    carried: Carried,
    results: Sequence[ShardResult],
    *,
    given: Mapping[str, str],
    memory: int = DEFAULT_MEMORY,
    values: DecodedValues | None = None,
) -> Finished:
    """Write a run's tables to `into`.

    `name`: what the names of the files begin with; `carried`: state of the run before, which is advanced; `given`:
    names by topic id; `memory`: the run's budget in bytes; `values`: decodes keys and values of records. Raises OSError
    if a file cannot be written.
    """
    # Return the memory of staging to the system; otherwise the peak would be the sum of both steps.
    gc.collect()
    pa.default_memory_pool().release_unused()
    for result in results:
        carried.learned_facts.merge(result.learned_facts)
    names = LearnedNames(carried.learned_facts, given)
    sessions = carried.sessions
    staged = [path for result in results for path in result.staged]
    done, open_ = TablePartitions(), TablePartitions()
    written = finalise(
        staged,
        into,
        name,
        options,
        names=names,
        sessions=sessions,
        partitions=done,
        memory=memory,
        values=values,
    )
    order = max(one.order for one in results)
    state = dump(Carried([result.state for result in results], sessions, carried.learned_facts, order))
    # Unfinished rows: the next run makes them again, from the present state of the sessions.
    rest = [result.unfinished for result in results]
    unfinished = finalise(
        rest,
        into,
        f"{name}-open",
        options,
        names=names,
        sessions=sessions,
        partitions=open_,
        memory=memory,
        values=values,
    )
    return Finished(written, unfinished, state, [*done.problems, *open_.problems])
