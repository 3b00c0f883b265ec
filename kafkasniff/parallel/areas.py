"""Memory that processes share: packets on their way to all shards, answers, and lines on their way back.

An area is a file without a name, mapped by every process; copies of a process (fork) inherit it, so that nothing has to
be cleaned up whatever happens to them. Who writes when, and when what was written is no longer needed, is said by the
messages between the processes (crew.py).

Objects are pickled here: they are of many classes, and the memory is that of this run's own processes, which are copies
of each other; no name in any file system leads to it. What lies in files that others may write is never unpickled
(kafkasniff/state/).
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.packets import COLUMNS, PacketBatch

__all__ = ["Area", "Block", "get_object", "get_packets", "own_payloads", "put_objects", "put_packets"]

_PAGE: Final = 1 << 20
"""Areas grow by this at least."""
_ALIGN: Final = 8
LONG_PAYLOAD: Final = 1024
"""Payloads of so many bytes on average are copied one by one; shorter ones with all that lies between them."""


class Area:
    """Bytes that processes share. It grows where more is put into it, and never shrinks."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("kafkasniff")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        self._map: mmap.mmap | None = None
        self._size = 0

    def view(self, size: int, *, grow: bool = False) -> memoryview:
        """The first `size` bytes, or more; `grow`: by one process at a time, and not while another reads."""
        if self._map is None or size > self._size:
            if grow:
                os.ftruncate(self._file, max(2 * self._size, -(-size // _PAGE) * _PAGE))
            self._size = os.fstat(self._file).st_size
            # The map before goes when the last view of it does.
            self._map = mmap.mmap(self._file, self._size)
        return memoryview(self._map)

    def close(self) -> None:
        """Of this process; the memory goes with the last one."""
        os.close(self._file)
        self._map = None


class Block:
    """Pieces of bytes, one behind the other in an area; sliced as a list of them would be, to the bytes of a slice."""

    __slots__ = ("offsets", "view")

    def __init__(self, view: memoryview, offsets: NDArray[np.int64]) -> None:
        self.view = view
        """Of the area."""
        self.offsets = offsets
        """Where pieces begin, and behind the last one."""

    def __getitem__(self, pieces: slice) -> memoryview:
        return self.view[self.offsets[pieces.start] : self.offsets[pieces.stop]]


def put_objects(area: Area, objects: list[Any]) -> list[tuple[int, int]]:
    """Put objects into an area, in the place of what it held; returns where each is, for `get_object`."""
    pickled = [pickle.dumps(one, 5) for one in objects]
    view = area.view(sum(map(len, pickled)), grow=True)
    places: list[tuple[int, int]] = []
    start = 0
    for data in pickled:
        end = start + len(data)
        view[start:end] = data
        places.append((start, end))
        start = end
    return places


def get_object(area: Area, place: tuple[int, int]) -> Any:
    """What `put_objects` put there. Only for areas that this process shares with those that it comes from."""
    return pickle.loads(area.view(place[1])[place[0] : place[1]])


def put_packets(area: Area, batch: PacketBatch, shards: NDArray[np.int64]) -> tuple[int, int]:
    """Put packets into an area, in the place of what it held; returns where they are, for `get_packets`.

    `shards`: that of each packet.
    """
    count = len(batch)
    clock = batch.time_ns if batch.clock is None else batch.clock
    # Batches are cut in parts that share a buffer: of it goes along what lies between a part's payloads.
    first = int(batch.offset.min()) if count else 0
    last = int((batch.offset + batch.length).max()) if count else 0
    facts = pickle.dumps(
        (count, last - first, batch.captures, batch.end_clock, batch.end_order, batch.packets, batch.notes)
    )
    columns = [batch.offset - first if name == "offset" else getattr(batch, name) for name in COLUMNS]
    columns += [clock, shards]
    size = _aligned(len(facts)) + sum(_aligned(column.nbytes) for column in columns) + last - first
    view = area.view(size, grow=True)
    view[: len(facts)] = facts
    at = _aligned(len(facts))
    for column in columns:
        view[at : at + column.nbytes] = column.tobytes()
        at += _aligned(column.nbytes)
    view[at : at + last - first] = memoryview(batch.buffer)[first:last]
    return len(facts), size


def get_packets(area: Area, place: tuple[int, int]) -> tuple[PacketBatch, NDArray[np.int64]]:
    """The packets that `put_packets` put there, and the shard of each.

    All of it refers to the area: `own_payloads` copies what stays.
    """
    view = area.view(place[1])
    count, length, captures, end_clock, end_order, packets, notes = pickle.loads(view[: place[0]])
    at = _aligned(place[0])
    columns: dict[str, Any] = {}
    for name, dtype in (*COLUMNS.items(), ("clock", np.int64), ("shards", np.int64)):
        columns[name] = np.frombuffer(view, dtype, count, at)
        at += _aligned(columns[name].nbytes)
    clock, shards = columns.pop("clock"), columns.pop("shards")
    batch = PacketBatch(
        columns,
        view[at : at + length],  # type: ignore[arg-type]  # a stand-in until the payloads are copied
        captures=captures,
        clock=clock,
        end_clock=end_clock,
        end_order=end_order,
        packets=packets,
        notes=notes,
    )
    return batch, shards


def own_payloads(batch: PacketBatch) -> PacketBatch:
    """The same packets; their payloads are this process's own, if they were an area's."""
    view: Any = batch.buffer
    if not isinstance(view, memoryview):
        return batch
    length = batch.length.astype(np.int64)
    if int(length.sum()) < LONG_PAYLOAD * np.count_nonzero(length):
        batch.buffer = bytes(view)
    else:
        # Of large ones a shard's are a part: fresh memory takes longer than the steps.
        pairs = zip(batch.offset.tolist(), length.tolist(), strict=True)
        batch.buffer = b"".join([view[start : start + size] for start, size in pairs])
        batch.offset = np.cumsum(length) - length
    return batch


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
