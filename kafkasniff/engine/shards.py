"""Shards of connections: which of several processes handles a connection.

A hash of the two endpoints decides it (`packets.connection_hash`), the same for both directions, in every process and
every run. The output of a connection depends only on its own packets, so it does not matter who handles it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Endpoint, Problem
from kafkasniff.packets import Key, PacketBatch, connection_hash, endpoint_hash

NUMBERS: Final = 1 << 40
"""Each shard numbers connections and exchanges from a multiple of this, so that numbers are unique."""
_MAPPED: Final = 0xFFFF_0000_0000
"""Low half of an IPv4-mapped address (RFC 4291, section 2.5.5.2)."""


def packed(endpoint: Endpoint) -> tuple[int, int, int]:
    """One end of a `Key`: address, as two halves of 64 bits, and port."""
    address = ipaddress.ip_address(endpoint.address)
    if address.version == 4:
        return 0, _MAPPED | int(address), endpoint.port
    return int(address) >> 64, int(address) & (1 << 64) - 1, endpoint.port


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


def in_shard(shard: int, shards: int) -> Callable[[Sequence[Key]], list[bool]]:
    """Which connections belong to a shard, by their endpoints."""
    return lambda keys: [number == shard for number in shard_of_keys(keys, shards)]


def share(batch: PacketBatch, shard: int, shards: int) -> PacketBatch:
    """The packets of a batch for a shard; notes that concern no connection go to the first shard."""
    if shards == 1:
        return batch
    keep, first = shard_of_rows(batch, shards) == shard, shard == 0
    # Names and secrets go to all.
    notes = batch.notes if first else [note for note in batch.notes if not isinstance(note.value, Problem)]
    return batch.share(keep, packets=batch.packets if first else 0, notes=notes)


def number_from(inspector: Inspector, shard: int) -> None:
    """Make a fresh inspector number connections and exchanges as this shard."""
    inspector.number_from(shard * NUMBERS)


def reshard(inspectors: Sequence[Inspector], shard: int, shards: int) -> Inspector:
    """The inspector of one of `shards` shards, from the inspectors of another number of shards.

    It is made from the given inspectors, which cannot be used any more: each shard needs its own copies.
    """
    first, *others = inspectors
    highest = max(inspector.highest_number for inspector in inspectors)
    first.absorb(others, in_shard(shard, shards))
    first.number_from((highest // NUMBERS + 1 + shard) * NUMBERS)
    return first
