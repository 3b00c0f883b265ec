"""Who decodes which connection: each goes to the shard that had least to do so far, when its first packet comes.

A hash would do for thousands of connections. Where a few have most of the traffic it often leaves one shard with three
quarters of it, and a run takes as long as its slowest shard.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.packets import PacketBatch
from kafkasniff.tcp.plan import connection_hash

__all__ = ["MAX_DEALT", "Dealer"]

MAX_DEALT: Final = 1 << 19
"""Connections of which it is remembered who has them, some 150 bytes each; those that come later go by their hash."""

PACKET_BYTES: Final = 200
"""A packet is as much work as so many bytes of payload, about."""


class Dealer:
    """Deals the packets of a run, batch by batch, to `shards` shards."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._dealt: dict[int, int] = {}
        """By a hash of the two endpoints: those few that share one go together."""
        self._loads = [0] * shards

    def deal(self, batch: PacketBatch) -> NDArray[np.int64]:
        """The shard of each packet of the next batch; that of a connection never changes."""
        if not len(batch):
            return np.empty(0, np.int64)
        hashes = connection_hash(batch)
        arranged = np.argsort(hashes, kind="stable")
        ordered = hashes[arranged]
        begins = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
        work = np.add.reduceat(batch.length[arranged].astype(np.int64) + PACKET_BYTES, begins).tolist()
        keys = ordered[begins].tolist()
        dealt, loads = self._dealt, self._loads
        new: list[tuple[int, int]] = []
        for key, amount in zip(keys, work, strict=True):
            shard = dealt.get(key)
            if shard is not None:
                loads[shard] += amount
            else:
                new.append((amount, key))
        # The largest first: the small ones even out what is left.
        new.sort(reverse=True)
        for amount, key in new:
            shard = loads.index(min(loads)) if len(dealt) < MAX_DEALT else key % self._shards
            loads[shard] += amount
            if len(dealt) < MAX_DEALT:
                dealt[key] = shard
        of_keys = np.array([dealt.get(key, key % self._shards) for key in keys], np.int64)
        found = np.empty(len(hashes), np.int64)
        found[arranged] = np.repeat(of_keys, np.diff(begins, append=len(hashes)))
        return found
