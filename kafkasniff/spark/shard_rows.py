"""Rows between the stages: staged rows of the tables as Arrow streams, steps of fetch sessions, ends of shards.

Spark handles every row one by one, in Java, and copies it several times. So there are few, and they are compressed: a
row has up to `BLOCK_BYTES` of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

from kafkasniff.runtime.threads import Task, Threads
from kafkasniff.tables.rows.staged import STAGED, StagedParts, place_name

__all__ = [
    "BATCH_ROWS",
    "END",
    "SHARD_ROWS",
    "STEP",
    "ZSTD_LEVEL",
    "ShardRows",
    "batch_of",
    "read_block",
    "values_of",
]

STEP: Final = "step"
END: Final = "end"

SHARD_ROWS: Final = {
    "kind": "string",
    "open": "boolean",
    "shard": "bigint",
    "number": "bigint",
    "in_session": "boolean",
    "connection_id": "bigint",
    "exchange_id": "bigint",
    "time_ns": "bigint",
    "broker": "string",
    "data": "binary",
}
"""Rows of stage 1, with their types in Spark.

`kind`: a table (`data` is a block of its staged rows), `step` (`data` is an `enrich.sessions.SessionStep`), `end` (of a
shard, `data` is a `connections.ShardEnd`). `open`: the exchanges were still open when the captures ended. `number`: of
the block in its shard, or of the block that has the step's exchange. `in_session`: exchanges that are in fetch
sessions. `connection_id`, `exchange_id`, `time_ns`, `broker`: of a step.
"""
_TYPES: Final = {"string": pa.string(), "boolean": pa.bool_(), "bigint": pa.int64(), "binary": pa.binary()}
_SCHEMA: Final = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in SHARD_ROWS.items()])

ZSTD_LEVEL: Final = -5
"""The level at which tasks compress what they hand to Spark. Level 1 writes a fifth less, but takes twice the time."""
BLOCK_BYTES: Final = 8 << 20
"""Approximate bytes of staged rows in a block, before compression."""
WAITING_BYTES: Final = 32 << 20
"""Bytes of rows, of blocks before compression, that wait until they are handed to Spark."""
BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 10_000
"""Maximum size of a batch handed to Spark."""
_NO_STEP: Final = (None,) * 4
"""What rows have in the columns of steps."""


class ShardRows:
    """Takes the staged rows of a shard (`exports.stager.Staged`), and hands them on as rows for Spark."""

    def __init__(self, shard: int, threads: Threads) -> None:
        """`threads` compress blocks: a connection that is most of the traffic is a single task, beside idle cores."""
        self._shard = shard
        self._threads = threads
        self._rows: list[tuple[Any, ...]] = []
        self._waiting = 0
        self._number = 0
        self.open = False
        """Whether the next rows are exchanges that are still open when the captures end."""
        self.bytes = 0
        """Total bytes of staged rows so far."""
        self.bytes_in_session = 0
        """The part of them with exchanges in fetch sessions."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take staged rows."""
        steps = _steps(batch) if table == "exchanges" else {}
        if steps:
            mask = np.zeros(len(batch), np.bool_)
            mask[list(steps)] = True
            self._blocks(table, batch.filter(pa.array(~mask)))
            self._blocks(table, batch.filter(pa.array(mask)), list(steps.values()))
        else:
            self._blocks(table, batch)

    def close(self) -> None:
        """After the last row; there is nothing left to do."""

    def add(self, kind: str, data: bytes) -> None:
        """Add a row that is not a block."""
        self._add(kind, data, len(data))

    def _add(
        self, kind: str, data: bytes | Task[bytes], size: int, *, session: bool = False, place: Sequence[Any] = _NO_STEP
    ) -> None:
        self._rows.append((kind, self.open, self._shard, self._number, session, *place, data))
        self._waiting += size

    def full(self) -> Iterator[pa.RecordBatch]:
        """The rows, once there are enough."""
        if len(self._rows) >= BATCH_ROWS or self._waiting >= WAITING_BYTES:
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of bounded size."""
        first = size = 0
        rows, self._rows, self._waiting = self._rows, [], 0
        rows = [(*row, data.result() if isinstance(data, Task) else data) for *row, data in rows]
        for number, row in enumerate(rows, 1):
            size += len(row[-1])
            if size >= BATCH_BYTES or number == len(rows):
                yield batch_of(rows[first:number])
                first, size = number, 0

    def _blocks(self, table: str, batch: pa.RecordBatch, steps: Sequence[tuple[Any, ...]] = ()) -> None:
        if not len(batch):
            return
        rows = max(1, len(batch) * BLOCK_BYTES // max(batch.nbytes, 1))
        for start in range(0, len(batch), rows):
            some = batch.slice(start, rows)
            self.bytes += some.nbytes
            self.bytes_in_session += some.nbytes if steps else 0
            block = self._threads.begin(partial(_block, table, some))
            self._add(table, block, some.nbytes, session=bool(steps))
            for *place, step in steps[start : start + rows]:
                self._add(STEP, step, len(step), session=True, place=place)
            self._number += 1


def _steps(batch: pa.RecordBatch) -> dict[int, tuple[Any, ...]]:
    """Rows of `exchanges` that are in fetch sessions: what their steps have in the columns of `SHARD_ROWS`."""
    rows = np.flatnonzero(batch.column("_pending").is_valid().to_numpy(zero_copy_only=False))
    wanted = ("connection_id", "exchange_id", "time_ns", "broker_ip", "broker_port", "_pending")
    some = [batch.column(name).take(pa.array(rows)).to_pylist() for name in wanted]
    found: dict[int, tuple[Any, ...]] = {}
    for row, *key, address, port, data in zip(rows.tolist(), *some, strict=True):
        step = msgspec.msgpack.decode(data, type=StagedParts).session
        if step is not None and address is not None:
            found[row] = (*key, place_name(address, port), msgspec.msgpack.encode(step))
    return found


def _block(table: str, batch: pa.RecordBatch, _thread: int) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, STAGED[table]) as writer:
        writer.write_batch(batch)
    # As a whole: Arrow would compress each of some hundred buffers with a context of its own, at a third more cost.
    return zstandard.compress(stream.getvalue(), ZSTD_LEVEL)


def read_block(data: pa.Buffer) -> pa.RecordBatch:
    """The staged rows of a block."""
    with pa.ipc.open_stream(pa.py_buffer(zstandard.decompress(data))) as stream:
        return stream.read_next_batch()


def values_of(column: pa.Array) -> Iterator[pa.Buffer]:
    """The values of a binary column without nulls, as views; scalars would have copies, made while threads wait."""
    if not len(column):
        return
    _, offsets, data = column.buffers()
    borders = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    for start, stop in pairwise(borders.tolist()):
        yield data.slice(start, stop - start) if stop > start else pa.py_buffer(b"")


def batch_of(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows in the order of `SHARD_ROWS` as a record batch."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
