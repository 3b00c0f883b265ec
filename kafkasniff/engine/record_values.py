"""Records of many exchanges at once, from the batches that the kernel found in their bodies.

`inflate` and `read_batches` are common to exports and filters; `RecordValues` has the fields of records that filters
ask for (`filters.record_paths`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.filters.columns import ByteStrings, FieldColumn
from kafkasniff.filters.record_paths import RecordPath, members, record_path
from kafkasniff.kafka.record_facts import TRACE_HEADERS
from kafkasniff.kafka.records.compression import decompress
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.native.columns import (
    LISTED,
    MARKS,
    Binary,
    ColumnReader,
    ExchangeColumns,
    RecordColumns,
    buffer_address,
)
from kafkasniff.native.library import DONE, Kernel

MAX_INFLATED: Final = 16 << 20
"""Bytes of decompressed batches of exchanges that are read at once. Exchanges beyond it are left to Python."""
READ_BYTES: Final = 2 << 20
"""Bytes of batches, as on the wire, whose records are read at once for a filter."""
_TIMES: Final = (-(1 << 52), 1 << 52)
"""Milliseconds that are int64 as microseconds."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def is_record_field(name: str) -> bool:
    """Whether a field of filters is about decoded records."""
    return name in {"record", "trace_id"} or name.startswith("record.")


def inflate(columns: ExchangeColumns, most: int) -> tuple[list[bytes], Bools]:
    """Decompress the batches of exchanges; returns the memory of their records, and a mask of exchanges.

    `most`: bytes of each exchange. Those with a batch that cannot be decompressed, or is too large, are left to Python.
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
        limit = min(most - produced.get(row, 0), MAX_INFLATED - total)
        result = decompress(codec, ctypes.string_at(address, size), limit)
        if result.failure is not None or result.detail:
            right[row] = False
            continue
        after = len(result.data)
        total += after
        produced[row] = produced.get(row, 0) + after
        kept.append(result.data)
        addresses[-1], sizes[-1] = buffer_address(result.data), after
        uncompressed[place] += after - size
    batches["records"][packed], batches["size"][packed] = addresses, sizes
    return kept, right


def read_batches(
    reader: ColumnReader,
    batches: NDArray[np.void],
    shared: NDArray[np.void],
    right: Bools,
    most: int,
    *,
    without: int = 0,
) -> RecordColumns:
    """The records of batches of exchanges; `right`, a mask of exchanges, is cleared for those with errors.

    `shared`: as in `native.columns.ExchangeColumns`; `most`: records of a message; `without`: also cleared for those
    with one of these flags. Other exchanges are left to Python, which reports the problems.
    """
    measured = reader.measure(batches)
    rows, headers = batches["rows"].astype(np.int64), batches["headers"].astype(np.int64)
    bad = ~measured | (rows != shared["count"]) | (batches["found"] & without > 0)
    row = shared["row"].astype(np.int64)
    right[row[bad]] = False
    # The bound holds per message: only one message of an exchange has records.
    right &= np.bincount(row, np.where(bad, 0, np.maximum(rows, headers)), len(right)) <= most
    columns = reader.read(batches, right[row])
    if columns is None:
        right[row] = False
        columns = reader.read(batches, right[row])
        assert columns is not None
    return columns


# -- fields of records -------------------------------------------------------------------------------------------------


class _Records(NamedTuple):
    """Records of some exchanges."""

    columns: RecordColumns
    rows: Ints
    """The exchange of each."""


class RecordValues:
    """The values of fields of records. `options`: returns how messages are decoded now."""

    def __init__(self, kernel: Kernel, options: Callable[[], DecodeOptions]) -> None:
        self._reader = ColumnReader(
            kernel,
            marks=() if options().show_secrets else CONNECT_KEYS,
            headers=[name.encode() for name in TRACE_HEADERS],
            times=_TIMES,
        )
        self._options = options

    @property
    def are_decoded(self) -> bool:
        """Whether messages have their records."""
        return self._options().records == "full"

    def of(self, field: str, exchange_columns: ExchangeColumns, known: Bools, *, ended: bool) -> Iterator[FieldColumn]:
        """The values of a field, whose rows are those of `found`; clears `known` for rows that are left to Python.

        `ended`: of both messages, else of requests.
        """
        path = record_path(field) if field.startswith("record.") else RecordPath(field, None, None)
        # A secret is shown as a placeholder.
        without = MARKS | LISTED if path.part == "trace_id" else MARKS
        for records in self._each(exchange_columns, known, without, ended=ended):
            yield from _values(path, records, known)

    def _each(
        self, exchange_columns: ExchangeColumns, known: Bools, without: int, *, ended: bool
    ) -> Iterator[_Records]:
        shared, batches = exchange_columns.shared, exchange_columns.batches
        if not ended:
            asked = shared["is_request"] > 0
            shared, batches = shared.compress(asked), batches.compress(asked)
        options = self._options()
        row = shared["row"].astype(np.int64)
        total = np.cumsum(batches["size"], dtype=np.int64)
        first = 0
        while first < len(row):
            before = int(total[first - 1]) if first else 0
            last = max(int(np.searchsorted(total, before + READ_BYTES)), first + 1)
            # All batches of an exchange.
            last = int(np.searchsorted(row, row[last - 1], side="right"))
            part = exchange_columns._replace(batches=batches[first:last].copy(), shared=shared[first:last])
            first = last
            kept, plain = inflate(part, options.max_decompressed)
            own = part.shared["row"]
            right = plain & known
            columns = read_batches(self._reader, part.batches, part.shared, right, options.max_records, without=without)
            del kept
            known[own[~right[own]]] = False
            taken = part.batches["status"] == DONE
            rows = np.repeat(own[taken].astype(np.int64), part.batches["rows"][taken].astype(np.int64))
            yield _Records(columns, rows)


def _values(path: RecordPath, records: _Records, known: Bools) -> Iterator[FieldColumn]:
    columns, rows = records
    count = len(rows)
    match path.part:
        case "record":
            yield FieldColumn([True], np.zeros(count, np.int64), rows)
        case "trace_id":
            pass  # none has a header for it
        case "offset":
            yield FieldColumn(columns.offset, None, rows)
        case "timestamp":
            if columns.timestamp_nulls:
                known[rows] = False
            else:
                yield FieldColumn(columns.timestamp // 1000, None, rows)
        case "key":
            yield from _bytes(path, columns.key, rows)
        case "value":
            yield from _bytes(path, columns.value, rows)
        case "header" if path.header is not None:
            named = _named(columns.header_key, path.header.encode("utf-8", "surrogatepass"))
            of = np.repeat(rows, np.diff(columns.header_offsets))
            yield from _bytes(path, columns.header_value, of, named)
        case _:
            # Names of topics, and offsets that responses give.
            known[rows] = False


def _named(keys: Binary, name: bytes) -> Bools:
    """Which headers have this key."""
    borders = keys.offsets.astype(np.int64)
    found: Bools = np.diff(borders) == len(name)
    data, starts = keys.data, borders[:-1]
    for at, byte in enumerate(name):
        places = np.flatnonzero(found)
        found[places[data[starts[places] + at] != byte]] = False
    return found


def _bytes(path: RecordPath, column: Binary, rows: Ints, chosen: Bools | None = None) -> Iterator[FieldColumn]:
    """Values that are not null, or their members at the path; `chosen`: only of some."""
    count = len(rows)
    has = np.unpackbits(column.valid, count=count, bitorder="little") > 0
    if chosen is not None:
        has &= chosen
    values = ByteStrings(column.data.tobytes(), column.offsets)
    if path.json is None:
        yield FieldColumn(values, np.where(has, np.arange(count), -1), rows)
        return
    found: list[Any] = []
    of: list[int] = []
    for index in np.flatnonzero(has).tolist():
        inside = members(values[index], path.json)
        found += inside
        of += [int(rows[index])] * len(inside)
    yield FieldColumn(found, np.arange(len(found)), np.array(of, np.int64))
