"""Shares of connections: which of several processes reads a connection.

One function of the two endpoints says it (`tcp.plan.connection_hash`), alike for both directions, in every process and
every run: what a connection yields depends on its own packets only, so that it does not matter who reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.inspector import Inspector
from kafkasniff.model import Problem
from kafkasniff.packets import COLUMNS, PacketBatch
from kafkasniff.tcp.plan import Key, connection_hash, endpoint_hash

__all__ = ["NUMBERS", "number_from", "reshard", "shard_of_keys", "shard_of_rows", "share", "share_of_rows"]

NUMBERS: Final = 1 << 40
"""Each shard numbers connections and exchanges from a multiple of this, so that no two give the same number."""


def shard_of_rows(batch: PacketBatch, shards: int) -> NDArray[np.int64]:
    """The shard of each packet of a batch."""
    return (connection_hash(batch) % np.uint64(shards)).astype(np.int64)


def shard_of_keys(keys: Sequence[Key], shards: int) -> list[int]:
    """The shard of each connection, by its endpoints."""
    hashes = np.zeros(len(keys), np.uint64)
    for end in (0, 1):
        high = np.array([key[end][0] for key in keys], np.uint64)
        low = np.array([key[end][1] for key in keys], np.uint64)
        port = np.array([key[end][2] for key in keys], np.uint16)
        hashes += endpoint_hash(high, low, port)
    found: list[int] = (hashes % np.uint64(shards)).tolist()
    return found


def share(batch: PacketBatch, shard: int, shards: int) -> PacketBatch:
    """The packets of a batch that a shard reads; what concerns no connection is for the first shard."""
    if shards == 1:
        return batch
    return share_of_rows(batch, shard_of_rows(batch, shards) == shard, first=shard == 0)


def share_of_rows(batch: PacketBatch, keep: NDArray[np.bool_], *, first: bool) -> PacketBatch:
    """The packets of a batch that one of several readers reads; `first`: it gets what concerns no connection, too."""
    return PacketBatch(
        {name: getattr(batch, name)[keep] for name in COLUMNS},
        batch.buffer,
        captures=batch.captures,
        clock=None if batch.clock is None else batch.clock[keep],
        end_clock=batch.end_clock,
        end_order=batch.end_order,
        packets=batch.packets if first else 0,
        # Names and secrets are for all.
        notes=batch.notes if first else [note for note in batch.notes if not isinstance(note.value, Problem)],
        ticks=batch.ticks or (batch.order, batch.time_ns if batch.clock is None else batch.clock),
    )


def number_from(inspector: Inspector, shard: int) -> None:
    """Let an inspector that has seen nothing number what it finds as this shard."""
    inspector.number_from(shard * NUMBERS)


def reshard(inspectors: Sequence[Inspector], shard: int, shards: int) -> Inspector:
    """The inspector of one of `shards` shards, from what the inspectors of another number of shards left.

    It is made of the inspectors given, which are of no use then: each shard needs copies of its own.
    """
    first, *others = inspectors

    def wanted(keys: Sequence[Key]) -> list[bool]:
        return [number == shard for number in shard_of_keys(keys, shards)]

    highest = max(inspector.highest_number for inspector in inspectors)
    first.absorb(others, wanted)
    first.number_from((highest // NUMBERS + 1 + shard) * NUMBERS)
    return first
