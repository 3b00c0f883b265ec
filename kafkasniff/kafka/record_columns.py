"""Records of magic 2 as columns: no Python object for a record, its key, its value or its headers.

Where each record begins is found one record after the other, since each says how long it is; all that lies inside is
then read for all records at once. A batch that is not right in every byte is left to `record_batch`, whose loop says
what is wrong with it: `parse_records` names such batches and has no rows for them.

Positions and lengths are int64 and count bytes of the buffer that was parsed; a length of -1 is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.record_list import MAX_HEADER_RATE, MAX_RECORD_RATE

__all__ = ["MAX_COLUMN_HEADERS", "RecordColumns", "parse_records"]

MAX_COLUMN_HEADERS: Final = 64
"""Headers of one record that are read by columns: each costs a step over all records. A batch with more is read by
`record_batch`."""

Positions = NDArray[np.int64]

_INT32_BYTES: Final = 5
_INT64_BYTES: Final = 10


class RecordColumns(NamedTuple):
    """One row per record, in the order of the batches; headers have rows of their own."""

    batch: Positions
    """Index of the record's batch in what was given to `parse_records`."""
    timestamp_delta: Positions
    offset_delta: Positions
    key_start: Positions
    key_length: Positions
    value_start: Positions
    value_length: Positions
    header_record: Positions
    """Row of the record that the header belongs to; ascending."""
    header_key_start: Positions
    header_key_length: Positions
    header_value_start: Positions
    header_value_length: Positions


def parse_records(
    data: bytes, spans: Sequence[tuple[int, int]], limit: int | None = None, wire: Sequence[int] | None = None
) -> tuple[RecordColumns, list[int]]:
    """Parse the records of the batches whose records lie in `data[start:end]`, for each (start, end) of `spans`.

    Spans ascend and do not overlap. Returns the columns, and the indexes of the batches that have no rows here because
    they are malformed or go beyond a bound: `limit` records and headers of one batch, `MAX_COLUMN_HEADERS` of a record,
    and what so many bytes may hold as the batch takes on the `wire`.
    """
    starts: list[int] = []
    counts: list[int] = []
    for index, (start, end) in enumerate(spans):
        before = len(starts)
        # One more than there can be, or than are allowed, by which too many are noticed.
        most = (len(data) if limit is None else limit) + 1
        if wire is not None:
            most = min(most, MAX_RECORD_RATE * wire[index] + 1)
        if _scan(data, start, end, starts, most) != end or len(starts) - before == most:
            del starts[before:]
            counts.append(-1)
        else:
            counts.append(len(starts) - before)
    refused = [index for index, count in enumerate(counts) if count < 0]
    batch = np.repeat(np.arange(len(counts)), np.maximum(np.array(counts, np.int64), 0))
    columns, flawed = _Parser(data, np.array(starts, np.int64), batch).parse()
    if limit is not None and len(columns.header_record):
        totals = np.bincount(columns.batch[columns.header_record], minlength=len(counts)) + np.maximum(counts, 0)
        flawed |= (totals > limit)[batch]
    if wire is not None and len(columns.header_record):
        headers = np.bincount(columns.batch[columns.header_record], minlength=len(counts))
        flawed |= (headers > MAX_HEADER_RATE * np.array(wire, np.int64))[batch]
    if flawed.any():
        bad = set(batch[flawed].tolist())
        keep = [index for index in range(len(spans)) if index not in bad and counts[index] >= 0]
        sizes = None if wire is None else [wire[index] for index in keep]
        columns, _ = parse_records(data, [spans[index] for index in keep], limit, sizes)
        columns = columns._replace(batch=np.array(keep, np.int64)[columns.batch])
        refused = sorted({*refused, *bad})
    return columns, refused


def _scan(data: bytes, position: int, end: int, starts: list[int], most: int) -> int:
    """Note where each of at most `most` records starts; the position behind the last one, -1 past the data. Hot.

    Lengths are taken as if they were not negative: the parser finds those that are. Whatever they are, each step goes
    on by a byte or more.
    """
    append = starts.append
    try:
        for _ in range(most):
            if position >= end:
                break
            append(position)
            byte = data[position]
            if byte < 128:
                position += 1 + (byte >> 1)
                continue
            high = data[position + 1]
            if high < 128:
                position += 2 + ((byte + (high << 7) - 128) >> 1)
                continue
            # A record of 8 KiB or more.
            byte += (high << 7) - 128 - (1 << 14)
            position += 2
            for shift in (14, 21, 28):
                high = data[position]
                position += 1
                byte |= (high & 0x7F) << shift
                if high < 128:
                    break
            else:
                return -1
            position += byte >> 1
    except IndexError:
        return -1
    return position


class _Parser:
    """Reads field after field of all records; `_flawed` collects the rows of those that do not add up.

    Invariant: positions never decrease, since no length below -1 is let through, and a record is right only if its last
    position is its stop. So one comparison at the end bounds all reads of a row; reads beyond the buffer on the way
    there are clipped to its last byte.
    """

    def __init__(self, data: bytes, starts: Positions, batch: Positions) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        self._starts = starts
        self._batch = batch
        self._flawed = np.zeros(len(starts), np.bool_)

    def parse(self) -> tuple[RecordColumns, NDArray[np.bool_]]:
        """The columns, and which rows are flawed (their values mean nothing)."""
        rows = slice(None)
        length, at = self._number(self._starts, _INT32_BYTES, rows)
        stops = at + length
        self._flawed |= length <= 0
        at += 1  # attributes, of which none is defined
        timestamp_delta, at = self._number(at, _INT64_BYTES, rows)
        offset_delta, at = self._number(at, _INT32_BYTES, rows)
        key_start, key_length, at = self._field(at, rows, nullable=True)
        value_start, value_length, at = self._field(at, rows, nullable=True)
        count, at = self._number(at, _INT32_BYTES, rows)
        self._flawed |= (count < 0) | (count > (stops - at) >> 1) | (count > MAX_COLUMN_HEADERS)
        headers, at = self._headers(np.where(self._flawed, 0, count), at)
        self._flawed |= at != stops
        columns = RecordColumns(
            self._batch, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, *headers
        )
        return columns, self._flawed

    def _headers(self, count: Positions, at: Positions) -> tuple[tuple[Positions, ...], Positions]:
        """The columns of the headers, record by record, and the positions behind them."""
        found: list[tuple[Positions, ...]] = []
        rows = np.flatnonzero(count)
        place = at[rows]
        number = 0
        while len(rows):
            key_start, key_length, place = self._field(place, rows, nullable=False)
            value_start, value_length, place = self._field(place, rows, nullable=True)
            found.append((rows, key_start, key_length, value_start, value_length))
            number += 1
            done = count[rows] == number
            at[rows[done]] = place[done]
            rows, place = rows[~done], place[~done]
        if not found:
            empty = np.empty(0, np.int64)
            return (empty, empty, empty, empty, empty), at
        together = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        # Found by their number within the record; a stable sort by record keeps that order.
        order = np.argsort(together[0], kind="stable")
        record, key_start, key_length, value_start, value_length = (column[order] for column in together)
        return (record, key_start, key_length, value_start, value_length), at

    def _field(
        self, at: Positions, rows: Positions | slice, *, nullable: bool
    ) -> tuple[Positions, Positions, Positions]:
        """Start and length of a field of bytes, and the position behind it."""
        length, start = self._number(at, _INT32_BYTES, rows)
        bad = length < (-1 if nullable else 0)
        if bad.any():
            self._flawed[rows] |= bad
            length = np.where(bad, 0, length)
        return start, length, start + np.maximum(length, 0)

    def _number(self, at: Positions, size: int, rows: Positions | slice) -> tuple[Positions, Positions]:
        """Zigzag varints of at most `size` bytes at these positions, and the positions behind them."""
        value = self._bytes.take(at, mode="clip").astype(np.uint64) if len(self._bytes) else np.empty(0, np.uint64)
        after = at + 1
        longer = np.flatnonzero(value > 127)
        if len(longer):
            value[longer] &= 0x7F
            for index in range(1, size):
                byte = self._bytes.take(after[longer], mode="clip").astype(np.uint64)
                # Bits beyond the type are dropped, as Java does.
                value[longer] |= (byte & 0x7F) << np.uint64(7 * index)
                after[longer] += 1
                longer = longer[byte > 127]
                if not len(longer):
                    break
            else:
                endless = np.zeros(len(at), np.bool_)
                endless[longer] = True
                self._flawed[rows] |= endless
        if size == _INT32_BYTES:
            value &= np.uint64(0xFFFFFFFF)
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after
