"""Arrow arrays of records, over the columns that the kernel wrote or from records decoded one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.engine.record_values import inflate, read_batches
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.record_facts import TRACE_HEADERS, add_trace_id
from kafkasniff.kafka.records.batches import Batch
from kafkasniff.kafka.records.record_list import MAX_HEADER_RATE, MAX_RECORD_RATE
from kafkasniff.kafka.records.record_sets import decode_held
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS, redacted_content
from kafkasniff.model import Exchange, Message
from kafkasniff.native.columns import BATCH, Binary, ColumnReader, ExchangeColumns, RecordColumns, buffer_address
from kafkasniff.native.library import Kernel
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.rows.exchanges import capture_name
from kafkasniff.tables.rows.schemas import HEADER
from kafkasniff.tables.rows.staged import STAGED

NO_TIMESTAMP: Final = -1
"""`org.apache.kafka.common.record.RecordBatch.NO_TIMESTAMP`."""
FIRST_TIME: Final = -62_135_596_800_000
LAST_TIME: Final = 253_402_300_799_999
"""Milliseconds of the first and the last moment that has a date in Python and Spark (years 1 to 9999)."""
NO_SEQUENCE: Final = -1

_SCHEMA: Final = STAGED["records"]
Numbers = NDArray[np.int64]


class RecordsField(msgspec.Struct, eq=False, gc=False):
    """Location of one `records` field."""

    exchange: Exchange
    message: Message
    context: DecodeContext
    """Shared by all fields of the message: problems, decompressed size and number of records."""
    topic: str | None
    topic_id: str | None
    partition: int | None


class BatchPiece:
    """One batch from which rows are made."""

    __slots__ = ("batch", "data", "field", "rows")

    def __init__(self, field: RecordsField, batch: dict[str, Any]) -> None:
        self.field = field
        self.batch = batch
        self.rows: list[dict[str, Any]] | None = None
        """Its records, if they are read one by one."""
        self.data: memoryview | None = None
        """Otherwise the decompressed bytes of its records."""

    def decode(self) -> None:
        """Decode the records of a `Batch` one by one; problems are reported to the field's context."""
        assert isinstance(self.batch, Batch)
        context = self.field.context
        most = context.options.max_records
        self.rows, left = decode_held(self.batch, context, most - context.records)
        context.records = most - left


def _timestamps(milliseconds: Numbers) -> pa.Array:
    """Timestamps of the wire; null if there is none or if it is out of range."""
    none = (milliseconds == NO_TIMESTAMP) | (milliseconds < FIRST_TIME) | (milliseconds > LAST_TIME)
    return pa.array(np.where(none, 0, milliseconds) * 1000, mask=none).cast(pa.timestamp("us", tz="UTC"))


def _binary(column: Binary, kind: pa.DataType) -> pa.Array:
    """Binary values, without copying their memory."""
    valid = pa.py_buffer(column.valid) if column.nulls else None
    buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column.offsets) - 1, buffers, column.nulls)


def columns_of(columns: RecordColumns, legacy: NDArray[np.bool_] | None, *, show_secrets: bool) -> dict[str, pa.Array]:
    """The columns that differ from row to row, from the kernel's output; `legacy`: which rows are of magic 0 or 1."""
    rows = len(columns.offset)
    times = [
        pa.py_buffer(columns.timestamp_valid) if columns.timestamp_nulls else None,
        pa.py_buffer(columns.timestamp),
    ]
    headers = pa.StructArray.from_arrays(
        [_binary(columns.header_key, pa.string()), _binary(columns.header_value, pa.binary())], fields=list(HEADER)
    )
    key, value = _binary(columns.key, pa.binary()), _binary(columns.value, pa.binary())
    trace_ids = pa.nulls(rows, _SCHEMA.field("trace_ids").type)
    if columns.listed:
        record_of = np.repeat(np.arange(rows), np.diff(columns.header_offsets))
        trace_ids = _trace_ids(record_of, headers, rows)
    return {
        "offset": pa.array(columns.offset),
        "timestamp": pa.Array.from_buffers(_SCHEMA.field("timestamp").type, rows, times, columns.timestamp_nulls),
        "key": key,
        "value": _without_secrets(key, value) if columns.marked and not show_secrets else value,
        "headers": pa.ListArray.from_arrays(
            pa.array(columns.header_offsets),
            headers,
            type=_SCHEMA.field("headers").type,
            mask=None if legacy is None else pa.array(legacy),
        ),
        "sequence": pa.array(columns.sequence, mask=legacy),
        "control": pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string())),
        "trace_ids": trace_ids,
    }


def _trace_ids(record_of: Numbers, headers: pa.StructArray, count: int) -> pa.Array:
    """Trace ids in the headers of `count` records, by the record of each header; null if there are none."""
    kind = _SCHEMA.field("trace_ids").type
    names = headers.field("key").dictionary_encode() if len(headers) else None
    # Headers have few names, and hardly ever one of these.
    wanted = [] if names is None else [name in TRACE_HEADERS for name in names.dictionary.to_pylist()]
    if names is None or not any(wanted):
        return pa.nulls(count, kind)
    found = np.flatnonzero(np.array(wanted)[names.indices.to_numpy()])
    traced: dict[int, dict[str, Any]] = {}
    for record, header in zip(record_of[found].tolist(), headers.take(pa.array(found)).to_pylist(), strict=True):
        add_trace_id(traced.setdefault(record, {}), header)
    return pa.array([traced[row].get("_trace_ids") if row in traced else None for row in range(count)], kind)


def _without_secrets(key: pa.Array, value: pa.Array) -> pa.Array:
    """The values, null if they hold a secret of Kafka Connect."""
    found = np.zeros(len(key), np.bool_)
    for start in CONNECT_KEYS:
        found |= pc.fill_null(pc.starts_with(key, start), False).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    some = pa.array(rows)
    pairs = zip(key.take(some).to_pylist(), value.take(some).to_pylist(), strict=True)
    secret = rows[[redacted_content(*pair) is not None for pair in pairs]] if len(rows) else rows
    if not len(secret):
        return value
    keep = np.ones(len(key), np.bool_)
    keep[secret] = False
    return pc.if_else(pa.array(keep), value, pa.scalar(None, value.type))


def without_payload(columns: dict[str, pa.Array], payload: Payload) -> dict[str, pa.Array]:
    """The columns with nulls or hashes instead of keys, values, and values of headers."""
    headers = columns["headers"]
    struct = headers.values
    hidden = pa.StructArray.from_arrays(
        [struct.field("key"), _hidden(struct.field("value"), payload)], fields=list(HEADER)
    )
    mask = headers.is_null() if headers.null_count else None
    return {
        **columns,
        "key": _hidden(columns["key"], payload),
        "value": _hidden(columns["value"], payload),
        "headers": pa.ListArray.from_arrays(headers.offsets, hidden, type=headers.type, mask=mask),
        # Trace ids come from values of headers.
        "trace_ids": pa.nulls(len(headers), columns["trace_ids"].type),
    }


def _hidden(values: pa.Array, payload: Payload) -> pa.Array:
    if payload.form == "dropped":
        return pa.nulls(len(values), values.type)
    return pa.array([None if value is None else payload.digest(value) for value in values.to_pylist()], values.type)


def plain_columns_of(
    pieces: list[BatchPiece], plain: list[int], *, show_secrets: bool
) -> tuple[Numbers, dict[str, pa.Array]]:
    """The same columns for records that are decoded one by one."""
    piece_of: list[int] = []
    offset: list[int] = []
    timestamp: list[int] = []
    key: list[bytes | None] = []
    value: list[bytes | None] = []
    headers: list[list[dict[str, Any]] | None] = []
    sequence: list[int | None] = []
    control: list[str | None] = []
    trace_ids: list[list[str] | None] = []
    for index in plain:
        batch, rows = pieces[index].batch, pieces[index].rows or []
        base = batch.get("base_sequence")
        for row in rows:
            piece_of.append(index)
            offset.append(row["offset"])
            timestamp.append(NO_TIMESTAMP if row["timestamp"] is None else row["timestamp"])
            key.append(_shown(row["key"]))
            value.append(_shown(row["value"]))
            if (
                not show_secrets
                and key[-1] is not None
                and key[-1].startswith(CONNECT_KEYS)
                and redacted_content(key[-1], value[-1]) is not None
            ):
                value[-1] = None
            named = row.get("headers")
            headers.append(
                None if named is None else [{"key": text(one["key"]), "value": one["value"]} for one in named]
            )
            sequence.append(None if base is None else _sequence(base, row["offset"] - batch["base_offset"]))
            control.append(_control(row) if batch.get("control") else None)
            trace_ids.append(row.get("_trace_ids"))
    return np.array(piece_of, np.int64), {
        "offset": pa.array(offset, pa.int64()),
        "timestamp": _timestamps(np.array(timestamp, np.int64)),
        "key": pa.array(key, pa.binary()),
        "value": pa.array(value, pa.binary()),
        "headers": pa.array(headers, _SCHEMA.field("headers").type),
        "sequence": pa.array(sequence, pa.int32()),
        "control": pa.array(control, pa.string()).dictionary_encode(),
        "trace_ids": pa.array(trace_ids, _SCHEMA.field("trace_ids").type),
    }


def _shown(value: Any) -> bytes | None:
    """A key or value; None also for the placeholder of one that may hold a secret."""
    return value if isinstance(value, bytes) else None


def _sequence(base: int, delta: int) -> int:
    return NO_SEQUENCE if base < 0 else (base + delta) & 0x7FFFFFFF


def _control(row: dict[str, Any]) -> str:
    """The type of a control record, as Kafka calls it."""
    control = row.get("_control")
    if control is None:
        return "unknown"
    return control["name"] or f"unknown-{control['type']}"


def shared_of(pieces: list[BatchPiece]) -> dict[str, pa.Array]:
    """The columns that all rows of a piece share, by piece."""
    fields = [piece.field for piece in pieces]
    messages = [field.message for field in fields]
    batches = [piece.batch for piece in pieces]

    def names(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).dictionary_encode()

    return {
        "capture": names([capture_name(message.capture) for message in messages]),
        "connection_id": pa.array([field.exchange.connection_id for field in fields], pa.int64()),
        "exchange_id": pa.array([field.exchange.exchange_id for field in fields], pa.int64()),
        "_time_ns": pa.array([message.time_ns for message in messages], pa.int64()),
        "api": names([message.api for message in messages]),
        "direction": names([message.type for message in messages]),
        "topic": names([field.topic for field in fields]),
        "topic_id": names([field.topic_id for field in fields]),
        "partition": pa.array([field.partition for field in fields], pa.int32()),
        "timestamp_type": names([batch.get("timestamp_type") for batch in batches]),
        "compression": names([batch.get("compression") for batch in batches]),
        "magic": pa.array([batch.get("magic") for batch in batches], pa.int32()),
        "producer_id": pa.array([batch.get("producer_id") for batch in batches], pa.int64()),
        "producer_epoch": pa.array([batch.get("producer_epoch") for batch in batches], pa.int32()),
        "transactional": pa.array([batch.get("transactional") for batch in batches], pa.bool_()),
    }


# -- records that the kernel reads -------------------------------------------------------------------------------------

Bools = NDArray[np.bool_]


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
        batch_pieces = [pieces[index] for index in numbers]
        batches = np.array([_batch(piece, self._limit) for piece in batch_pieces], BATCH)
        right = self._reader.measure(batches)
        most = np.where(right, np.maximum(batches["rows"], batches["headers"]), 0).tolist()
        right[list(_beyond_bound(batch_pieces, right, most))] = False
        _rebase(batch_pieces, batches)
        columns = self._reader.read(batches, right)
        if columns is None:
            right[:] = False
        for index in np.flatnonzero(~right).tolist():
            _decode_again(batch_pieces[index])
        for piece in batch_pieces:
            # Its records are in the columns now, which are sorted and written next.
            piece.data = None
        counts = batches["rows"].astype(np.int64)
        for index in np.flatnonzero(right).tolist():
            _check_count(batch_pieces[index], int(counts[index]))
        if columns is None or not len(columns.offset):
            return []
        piece_of = np.repeat(np.array(numbers, np.int64)[right], counts[right])
        legacy: NDArray[np.bool_] | None = np.repeat(batches["magic"][right] < 2, counts[right])
        if legacy is not None and not legacy.any():
            legacy = None
        return [(piece_of, columns_of(columns, legacy, show_secrets=self._show_secrets))]

    def inflate(self, columns: ExchangeColumns) -> tuple[list[bytes], Bools]:
        """Decompress the batches of exchanges (`engine.record_values.inflate`)."""
        return inflate(columns, self._most_decompressed)

    def read_batches(self, batches: NDArray[np.void], shared: NDArray[np.void], count: int) -> tuple[Batches, Bools]:
        """The records of batches of `count` exchanges, and a mask of the exchanges without errors.

        `shared`: as in `native.columns.ExchangeColumns`.
        """
        right = np.ones(count, bool)
        columns = read_batches(self._reader, batches, shared, right, self._limit)
        row = shared["row"].astype(np.int64)
        chosen = right[row]
        numbers = np.cumsum(right) - 1
        own = columns_of(columns, None, show_secrets=self._show_secrets)
        counts = batches["rows"].astype(np.int64)
        return Batches(shared.compress(chosen), numbers[row[chosen]], counts[chosen], own), right


class Batches(NamedTuple):
    """Records of batches that the kernel found in exchanges."""

    shared: NDArray[np.void]
    """`native.columns.SHARED`, by batch."""
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
        buffer_address(data),
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
