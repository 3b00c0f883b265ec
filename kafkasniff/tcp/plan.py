"""Endpoints of connections: as keys, as indices of dicts, and as hashes."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.tcp.packets import PacketBatch

__all__ = [
    "End",
    "Key",
    "connection_hash",
    "end_index",
    "endpoint_hash",
    "endpoints_of",
    "index_of",
    "indexed_end",
    "indexed_key",
]

End = tuple[int, int, int]
"""An endpoint: address high half, low half, port."""
Key = tuple[End, End]
"""Both endpoints of a connection, the lower one first."""

_END: Final = struct.Struct(">QQH")
_KEY: Final = struct.Struct(">QQHQQH")


def endpoints_of(batch: PacketBatch, rows: NDArray[np.int64]) -> tuple[list[Key], list[bool]]:
    """The 4-tuples of some rows, and whether the higher endpoint sent them."""
    sources = zip(batch.src_hi[rows].tolist(), batch.src_lo[rows].tolist(), batch.src_port[rows].tolist(), strict=True)
    targets = zip(batch.dst_hi[rows].tolist(), batch.dst_lo[rows].tolist(), batch.dst_port[rows].tolist(), strict=True)
    keys: list[Key] = []
    higher: list[bool] = []
    for source, target in zip(sources, targets, strict=True):
        higher.append(source > target)
        keys.append((target, source) if source > target else (source, target))
    return keys, higher


def index_of(key: Key) -> bytes:
    """Both endpoints as an index of dicts and sets, in the order of keys.

    The hash of bytes depends on a secret of the process. That of integers does not, so that chosen addresses could all
    have the same one.
    """
    return _KEY.pack(*key[0], *key[1])


def end_index(end: End) -> bytes:
    """The same for one endpoint."""
    return _END.pack(*end)


def indexed_key(index: bytes) -> Key:
    """The endpoints that `index_of` was given."""
    numbers = _KEY.unpack(index)
    return numbers[:3], numbers[3:]


def indexed_end(index: bytes) -> End:
    """The endpoint that `end_index` was given."""
    high, low, port = _END.unpack(index)
    return high, low, port


def connection_hash(batch: PacketBatch) -> NDArray[np.uint64]:
    """A hash of each row's 4-tuple that is the same for both directions, in every run and on every machine."""
    source = endpoint_hash(batch.src_hi, batch.src_lo, batch.src_port)
    together: NDArray[np.uint64] = source + endpoint_hash(batch.dst_hi, batch.dst_lo, batch.dst_port)
    return together


def endpoint_hash(high: NDArray[np.uint64], low: NDArray[np.uint64], port: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """Hash of endpoints. Products wrap; the factors are odd, without pattern; the shifts bring high bits down."""
    value: NDArray[np.uint64] = (high ^ (low * np.uint64(0x9E3779B97F4A7C15))) + port.astype(np.uint64)
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    value ^= value >> np.uint64(32)
    return value
