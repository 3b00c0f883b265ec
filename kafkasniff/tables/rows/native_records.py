"""Records that the native kernel reads: which batches it may read, and how its output becomes columns."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkasniff.kafka.record_facts import TRACE_HEADERS
from kafkasniff.kafka.records.batches import Batch
from kafkasniff.kafka.records.compression import decompress
from kafkasniff.kafka.records.record_list import MAX_HEADER_RATE, MAX_RECORD_RATE
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.native import Kernel
from kafkasniff.native.columns import BATCH, ColumnReader, address_of
from kafkasniff.native.exchanges import ExchangeColumns
from kafkasniff.tables.rows.record_arrays import FIRST_TIME, LAST_TIME, BatchPiece, Numbers, columns_of

__all__ = ["Batches", "NativeRecords"]

Bools = NDArray[np.bool_]
MAX_INFLATED: Final = 16 << 20
"""Bytes of decompressed batches of exchanges that are read at once. Exchanges beyond it are left to Python."""


class NativeRecords:
    """Reads the records of many batches at once. `limits`: bounds of each message."""

    def __init__(self, kernel: Kernel, limits: DecodeOptions, *, show_secrets: bool) -> None:
        self._reader = ColumnReader(
            kernel,
            marks=CONNECT_KEYS,
            headers=[name.encode() for name in TRACE_HEADERS],
            times=(FIRST_TIME, LAST_TIME),
            # Otherwise two pools hold memory that the other could use.
            allocate=pa.allocate_buffer,
        )
        self._limit = limits.max_records
        self._most_decompressed = limits.max_decompressed
        self._show_secrets = show_secrets

    def read(self, pieces: Sequence[BatchPiece]) -> list[tuple[Numbers, dict[str, pa.Array]]]:
        """The piece of each row, and the columns that differ from row to row, for pieces with `data`.

        Empty if there are no rows. Pieces with an error, or beyond a bound, get `rows` instead.
        """
        numbers = [index for index, piece in enumerate(pieces) if piece.data is not None]
        if not numbers:
            return []
        some = [pieces[index] for index in numbers]
        batches = np.array([_batch(piece, self._limit) for piece in some], BATCH)
        right = self._reader.measure(batches)
        most = np.where(right, np.maximum(batches["rows"], batches["headers"]), 0).tolist()
        right[list(_beyond_bound(some, right, most))] = False
        _rebase(some, batches)
        columns = self._reader.read(batches, right)
        if columns is None:
            right[:] = False
        for index in np.flatnonzero(~right).tolist():
            _decode_again(some[index])
        for piece in some:
            # Its records are in the columns now, which are sorted and written next.
            piece.data = None
        counts = batches["rows"].astype(np.int64)
        for index in np.flatnonzero(right).tolist():
            _check_count(some[index], int(counts[index]))
        if columns is None or not len(columns.offset):
            return []
        piece_of = np.repeat(np.array(numbers, np.int64)[right], counts[right])
        legacy: NDArray[np.bool_] | None = np.repeat(batches["magic"][right] < 2, counts[right])
        if legacy is not None and not legacy.any():
            legacy = None
        return [(piece_of, columns_of(columns, legacy, show_secrets=self._show_secrets))]

    def inflate(self, columns: ExchangeColumns) -> tuple[list[bytes], Bools]:
        """Decompress the batches of exchanges; returns the memory of their records, and a mask of exchanges.

        Those with a batch that cannot be decompressed, or is too large, are left to Python.
        """
        batches, shared = columns.batches, columns.shared
        right = np.ones(len(columns.rows), bool)
        kept: list[bytes] = []
        total = 0
        produced: dict[int, int] = {}
        packed = np.flatnonzero(shared["codec"])
        values = (shared["codec"], shared["row"], shared["place"], batches["records"], batches["size"])
        uncompressed = columns.partitions["uncompressed"]
        # Hot: lists, since reading a number of an array costs as much as reading a record.
        addresses: list[int] = []
        sizes: list[int] = []
        for codec, row, place, address, size in zip(*(column[packed].tolist() for column in values), strict=True):
            addresses.append(address)
            sizes.append(size)
            if not size:
                right[row] = False  # compaction can leave a header without records
            if not right[row]:
                continue
            limit = min(self._most_decompressed - produced.get(row, 0), MAX_INFLATED - total)
            result = decompress(codec, ctypes.string_at(address, size), limit)
            if result.failure is not None or result.detail:
                right[row] = False
                continue
            after = len(result.data)
            total += after
            produced[row] = produced.get(row, 0) + after
            kept.append(result.data)
            addresses[-1], sizes[-1] = address_of(result.data), after
            uncompressed[place] += after - size
        batches["records"][packed], batches["size"][packed] = addresses, sizes
        return kept, right

    def read_batches(self, batches: NDArray[np.void], shared: NDArray[np.void], count: int) -> tuple[Batches, Bools]:
        """The records of batches of `count` exchanges, and a mask of the exchanges without errors.

        `shared`: as in `native.exchanges.ExchangeColumns`. The other exchanges are left to Python, which reports the
        problems.
        """
        measured = self._reader.measure(batches)
        rows, headers = batches["rows"].astype(np.int64), batches["headers"].astype(np.int64)
        bad = ~measured | (rows != shared["count"])
        row = shared["row"].astype(np.int64)
        right = np.ones(count, bool)
        right[row[bad]] = False
        # The bound holds per message: only one message of an exchange has records.
        right &= np.bincount(row, np.where(bad, 0, np.maximum(rows, headers)), count) <= self._limit
        columns = self._reader.read(batches, right[row])
        if columns is None:
            right[row] = False
            columns = self._reader.read(batches, right[row])
            assert columns is not None
        chosen = right[row]
        numbers = np.cumsum(right) - 1
        own = columns_of(columns, None, show_secrets=self._show_secrets)
        return Batches(shared.compress(chosen), numbers[row[chosen]], rows[chosen], own), right


class Batches(NamedTuple):
    """Records of batches that the kernel found in exchanges."""

    shared: NDArray[np.void]
    """`native.exchanges.SHARED`, by batch."""
    row: Numbers
    """The exchange of each batch; batches of one exchange follow each other."""
    counts: Numbers
    """Number of records of each batch."""
    own: dict[str, pa.Array]
    """Columns that differ from record to record."""


def _batch(piece: BatchPiece, limit: int) -> tuple[Any, ...]:
    """A batch in the kernel's form (`BATCH`)."""
    batch, data = piece.batch, piece.data
    assert isinstance(batch, Batch)
    assert batch.held is not None
    assert data is not None
    wire = len(batch.held.wire)
    magic = batch["magic"]
    # A message that is not compressed has its own timestamp, whether client or broker set it.
    appended = batch.get("timestamp_type") == "LogAppendTime" and (magic == 2 or batch["compression"] != "none")
    own = (batch["base_offset"], batch["base_timestamp"]) if magic == 2 else (0, 0)
    return (
        address_of(data),
        len(data),
        *own,
        batch["max_timestamp"] if appended else 0,
        min(limit, MAX_RECORD_RATE * wire),
        min(limit, MAX_HEADER_RATE * wire),
        batch.get("base_sequence", 0),
        magic,
        appended,
        *(0,) * 10,
    )


def _rebase(pieces: Sequence[BatchPiece], batches: NDArray[np.void]) -> None:
    """Rebase offsets in compressed messages of magic 1: they are relative to the wrapper (`batches`)."""
    for index in np.flatnonzero(batches["magic"] == 1).tolist():
        batch = pieces[index].batch
        if batch["compression"] != "none":
            batches["base_offset"][index] = max(batch["base_offset"] - int(batches["last_offset"][index]), 0)


def _beyond_bound(pieces: Sequence[BatchPiece], right: NDArray[np.bool_], most: Sequence[int]) -> Iterator[int]:
    """The batches of messages that have more records or headers than a message may have.

    `most`: number of records or of headers of each batch, whichever is larger. Those of magic 0 and 1 were counted
    before.
    """
    totals: dict[int, int] = {}
    counted = [0 if piece.batch["magic"] < 2 else count for piece, count in zip(pieces, most, strict=True)]
    for piece, count in zip(pieces, counted, strict=True):
        context = piece.field.context
        totals[id(context)] = totals.get(id(context), 0) + count
    for index, (piece, count) in enumerate(zip(pieces, counted, strict=True)):
        context = piece.field.context
        if piece.batch["magic"] < 2:
            continue
        if context.records + totals[id(context)] > context.options.max_records:
            yield index
        elif right[index]:
            context.records += count
            totals[id(context)] -= count


def _decode_again(piece: BatchPiece) -> None:
    """Decode a batch record by record, which reports its problems."""
    context = piece.field.context
    # The second decompression does not count against the limit.
    decompressed, context.decompressed = context.decompressed, 0
    piece.decode()
    context.decompressed = decompressed


def _check_count(piece: BatchPiece, found: int) -> None:
    batch, stated = piece.batch, piece.batch["record_count"]
    if found != stated:
        assert isinstance(batch, Batch)
        assert batch.held is not None
        context = piece.field.context
        context.base = -batch.held.offset
        context.problem("record-count", f"the batch states {stated} records and holds {found}", 57)
