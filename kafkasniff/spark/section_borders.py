"""Sections: parts of a shard, in time, that tasks of their own decode (`shard_sections`). Which packets they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.shards import shard_of_rows
from kafkasniff.spark.packet_places import place_of, rows_before
from kafkasniff.tcp.packets import NO_TIME, PacketBatch

__all__ = ["SectionBorders", "SectionTask"]

Ints = NDArray[np.int64]
_NO_TASK: Final = -1


class SectionTask(NamedTuple):
    """What a task decodes: some consecutive sections of a shard."""

    shard: int
    first: int
    """The first section; they are numbered from 1."""
    last: int
    begin: Place
    """The place of its first packet."""
    end: Place | None
    """The place of the first packet after it; None: it has all packets from `begin` on."""


class SectionBorders:
    """Which tasks have which packets. Picklable."""

    def __init__(self, shards: int, tasks: Sequence[SectionTask], captures_before: int = 0) -> None:
        """`tasks`: by number; `captures_before`: their places have indices of captures that continue from there."""
        self._shards = shards
        self._by_shard: dict[int, list[tuple[int, Place, Place | None]]] = {}
        for number, task in enumerate(tasks):
            begin = _moved(task.begin, captures_before)
            end = None if task.end is None else _moved(task.end, captures_before)
            self._by_shard.setdefault(task.shard, []).append((number, begin, end))
        self.tasks = len(tasks)
        self._first = min((task.begin.clock for task in tasks), default=NO_TIME)

    def reaches(self, clock: int) -> bool:
        """Whether a section may have a packet at this packet clock, or before it."""
        return clock >= self._first

    def has(self, batch: PacketBatch) -> NDArray[np.bool_]:
        """Which packets of a batch are of a shard with tasks."""
        return np.isin(shard_of_rows(batch, self._shards), list(self._by_shard))

    def tasks_of(self, batch: PacketBatch) -> Ints:
        """The task of each packet of a batch, which is in capture order; negative if there is none."""
        shard = shard_of_rows(batch, self._shards)
        found = np.full(len(batch), _NO_TASK, np.int64)
        if not len(batch):
            return found
        first, last = place_of(batch, 0), place_of(batch, len(batch) - 1)
        for number, tasks in self._by_shard.items():
            own = shard == number
            for task, begin, end in tasks:
                if begin > last or (end is not None and end <= first):
                    continue
                start = 0 if begin <= first else rows_before(batch, begin)
                stop = len(batch) if end is None or end > last else rows_before(batch, end)
                found[start:stop][own[start:stop]] = task
        return found


def _moved(place: Place, captures_before: int) -> Place:
    return place._replace(capture=place.capture - captures_before)
