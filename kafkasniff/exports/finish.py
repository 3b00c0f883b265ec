"""Step 2 of a run: what its shards staged to the files of its tables, and the state for the next run."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from kafkasniff.confined import ConfinedPath
from kafkasniff.exports.carried import Carried
from kafkasniff.exports.finalise import finalise
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.partitions import Partitions
from kafkasniff.exports.shard import ShardResult
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Problem
from kafkasniff.rows.resolve import Names

__all__ = ["Finished", "finish"]


class Finished(msgspec.Struct):
    """A run that is ready to be committed."""

    written: dict[str, list[tuple[ConfinedPath, int]]]
    """By table, files and how many rows each has."""
    unfinished: dict[str, list[tuple[ConfinedPath, int]]]
    """Of what was not over at the end."""
    state: bytes
    """A dumped `Carried`."""
    problems: list[Problem] = []
    """What putting rows into partitions turned up; rows of the tables, too."""


def finish(
    into: ConfinedPath,
    run: int,
    options: ExportOptions,
    carried: Carried,
    results: Sequence[ShardResult],
    *,
    given: Mapping[str, str],
    memory: int = DEFAULT_MEMORY,
) -> Finished:
    """Write a run's tables below `into`.

    `carried`: of the run before, goes on; `given`: names by topic id; `memory`: the run's budget in bytes.
    Raises OSError where they cannot be written.
    """
    # What staging took is free, but only this gives it back: the peak of both steps would be their sum.
    gc.collect()
    pa.default_memory_pool().release_unused()
    for result in results:
        carried.tellings.merge(result.tellings)
    names = Names(carried.tellings, given)
    sessions = carried.sessions
    staged = [path for result in results for path in result.staged]
    name = f"part-{run:05}"
    done, open_ = Partitions(), Partitions()
    written = finalise(staged, into, name, options, names=names, sessions=sessions, partitions=done, memory=memory)
    order = max(one.order for one in results)
    state = Carried([result.state for result in results], sessions, carried.tellings, order).dump()
    # Rows of what is not over: the next run makes them again, from the sessions as they are now.
    rest = [result.unfinished for result in results]
    unfinished = finalise(
        rest, into, f"{name}-open", options, names=names, sessions=sessions, partitions=open_, memory=memory
    )
    return Finished(written, unfinished, state, [*done.problems, *open_.problems])
