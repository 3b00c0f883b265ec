"""Rows of the table `records`: columns made from the bytes of many batches at once.

Messages decoded with `records="columns"` keep their batches' bytes (`records.batches.Batch`). These are
decompressed here, and the native kernel reads their records into Arrow's buffers. Some records are read one by one:
batches with errors, control batches, and records that were decoded already (KRaft's metadata log, whose secrets are
redacted; `records="full"`). Both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkasniff.kafka.apis.dissectors import message_of
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.records.batches import CRC_START, HEADER_SIZE, Batch, HeldRecords, batch_payload
from kafkasniff.kafka.schema.codes import ZERO_UUID
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import NO_TIME, Direction, Exchange, Message, Problem
from kafkasniff.native.library import kernel
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY, in_proportion
from kafkasniff.tables.rows.record_arrays import (
    BatchPiece,
    NativeRecords,
    Numbers,
    RecordsField,
    plain_columns_of,
    shared_of,
    without_payload,
)
from kafkasniff.tables.rows.staged import STAGED

JOINED_BYTES: Final = 16 << 20
"""Bytes of decompressed batches that are read together; one batch alone may have more (`MAX_DECOMPRESSED`). Columns
take about as much again, and up to 20 times as much if records are empty. Proportionally smaller with a memory
budget below 1 GiB."""
MAX_PLAIN: Final = 500_000
"""Rows that wait as Python objects, some 500 bytes each, before they become columns: those of control batches and of
odd batches."""

_DEFAULT: Final = DecodeOptions()
_SCHEMA: Final = STAGED["records"]


class _RecordsPath(NamedTuple):
    """Where a message names its topics and where it has their records."""

    topics: str
    name: str | None
    topic_id: str | None
    partitions: str
    number: str
    records: str


@lru_cache(maxsize=1024)  # keys come from the wire
def _place(api_key: int, direction: Direction) -> _RecordsPath | None:
    """Derived from the definitions: Produce requests, Fetch, ShareFetch and FetchSnapshot responses have records."""
    message = message_of(api_key, direction)
    if message is None:
        return None
    for topics in message.fields:
        for partitions in topics.fields:
            records = _first(partitions.fields, type="records")
            index = _first(partitions.fields, name="index") or _first(partitions.fields, name="partition_index")
            index = index or _first(partitions.fields, name="partition")
            if records is not None and index is not None:
                named, topic_id = _first(topics.fields, entity="topic_name"), _first(topics.fields, name="topic_id")
                return _RecordsPath(
                    topics.name,
                    None if named is None else named.name,
                    None if topic_id is None else topic_id.name,
                    partitions.name,
                    index.name,
                    records.name,
                )
    return None


def _first(fields: Sequence[FieldDefinition], **wanted: str) -> FieldDefinition | None:
    return next((field for field in fields if all(getattr(field, key) == value for key, value in wanted.items())), None)


class RecordRows:
    """Rows of `records` that wait to become record batches.

    `full`: called whenever rows were added, so that those of many messages need not wait together; it may `take` them.
    `memory`: the process's budget in bytes; `limits`: bounds of each message.
    """

    def __init__(
        self,
        *,
        show_secrets: bool = False,
        payload: Payload = SHOWN,
        full: Callable[[], None] | None = None,
        memory: int = DEFAULT_MEMORY,
        limits: DecodeOptions = _DEFAULT,
    ) -> None:
        self._full = full
        self._options = limits
        self._most_joined = in_proportion(JOINED_BYTES, memory)
        self._most_plain = in_proportion(MAX_PLAIN, memory)
        self._show_secrets = show_secrets
        self._payload = payload
        self._native = NativeRecords(kernel(), limits, show_secrets=show_secrets)
        self._pieces: list[BatchPiece] = []
        self._read: dict[int, tuple[bytes, memoryview]] = {}
        """Waiting compressed batches by their CRC: the bytes that the CRC covers, and their records."""
        self._joined = 0
        self._plain = 0
        self._batches: list[pa.RecordBatch] = []
        self._positions: tuple[tuple[int, int], int] = ((0, 0), 0)
        """The exchange of the last rows, and its number of rows so far."""
        self.size = 0
        """Bytes of the waiting record batches."""
        self.rows = 0

    def feed(self, exchanges: Sequence[Exchange]) -> dict[int, list[tuple[Message, Problem]]]:
        """Take exchanges, in order; returns the problems of their records, by number of the exchange.

        Problems of records that were decoded before are in the messages already.
        """
        found: dict[int, list[tuple[Message, Problem]]] = {}
        contexts: list[tuple[Exchange, Message, DecodeContext]] = []
        for exchange in exchanges:
            for message in (exchange.request, exchange.response):
                if message is None or message.body is None or message.api_key is None:
                    continue
                place = _place(message.api_key, message.type)
                if place is not None:
                    context = DecodeContext(self._options)
                    contexts.append((exchange, message, context))
                    for field, batches in _fields(exchange, message, place, context):
                        self._field(field, batches)
        self._flush()
        for exchange, message, context in contexts:
            if context.problems_dropped:
                context.problem(
                    "more-problems", f"{context.problems_dropped} more problems in its records", always=True
                )
            if context.problems:
                # In the order of the message, whichever way they were found.
                context.problems.sort(key=lambda problem: -1 if problem.offset is None else problem.offset)
                found.setdefault(exchange.exchange, []).extend((message, problem) for problem in context.problems)
        return found

    def take(self) -> list[pa.RecordBatch]:
        """Return the rows so far, as record batches of the staged schema, and forget them."""
        batches, self._batches, self.size, self.rows = self._batches, [], 0, 0
        return batches

    # -- collecting -------------------------------------------------------------------------------------------------

    def _field(self, field: RecordsField, batches: list[dict[str, Any]]) -> None:
        for batch in batches:
            piece = BatchPiece(field, batch)
            if isinstance(batch, Batch) and "records" not in batch:
                if batch.held is None or batch.get("control"):
                    piece.decode()
                    self._joined += batch.uncompressed or (0 if batch.held is None else len(batch.held.wire))
                elif not self._hold(piece, batch):
                    continue
            else:
                piece.rows = batch.get("records") or []
            self._pieces.append(piece)
            if piece.rows is not None:
                self._plain += len(piece.rows)
            if self._joined >= self._most_joined or self._plain >= self._most_plain:
                self._flush()

    def _hold(self, piece: BatchPiece, batch: Batch) -> bool:
        """Decompress a batch and keep its records' bytes; returns False after a problem, which is reported."""
        held = batch.held
        assert held is not None
        if batch["magic"] < 2:
            # A set of messages, decompressed already.
            piece.data = memoryview(held.wire)
        else:
            data = self._decompressed(held, batch, piece.field.context)
            if data is None:
                return False
            batch.uncompressed = HEADER_SIZE + len(data)
            piece.data = data
        self._joined += len(piece.data)
        return True

    def _decompressed(self, held: HeldRecords, batch: Batch, context: DecodeContext) -> memoryview | None:
        """The bytes of the records of a batch of magic 2; None after a problem, which is reported.

        A produced batch is soon fetched by replicas and consumers, with the same bytes after its CRC. It is
        decompressed once.
        """
        wire, before = held.wire, len(context.problems)
        # The codec's bits: low byte of the attributes.
        codec = wire[22] & 7
        if codec and batch["crc"] in self._read:
            checked, data = self._read[batch["crc"]]
            room = context.options.max_decompressed - context.decompressed
            if len(data) <= room and len(checked) == len(wire) - CRC_START and wire.endswith(checked):
                context.decompressed += len(data)
                return data
        context.base = -held.offset
        payload = batch_payload(wire, 0, len(wire), codec=codec, record_count=batch["record_count"], context=context)
        if payload is None:
            return None
        found, start, end = payload
        data = memoryview(found)[start:end]
        if codec and len(context.problems) == before and not context.problems_dropped:
            self._read[batch["crc"]] = wire[CRC_START:], data
        return data

    # -- rows -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Make rows of all pieces."""
        if not self._pieces:
            return
        pieces, last = self._in_order()
        parts = self._native.read(pieces)
        plain = [index for index, piece in enumerate(pieces) if piece.rows]
        if plain:
            parts.append(plain_columns_of(pieces, plain, show_secrets=self._show_secrets))
        if self._payload.hides:
            parts = [(numbers, without_payload(own, self._payload)) for numbers, own in parts]
        if parts:
            self._stage(pieces, parts, last)
        if self._full is not None:
            self._full()

    def _in_order(self) -> tuple[list[BatchPiece], int]:
        """Pieces in the order of the table, and the index of the one that was added last. They are removed.

        Sorting pieces costs next to nothing; sorting their rows costs as much as making them.
        """
        waiting = self._pieces
        order = sorted(range(len(waiting)), key=lambda index: _sort_key(waiting[index].field))
        self._pieces, self._read = [], {}
        self._joined = self._plain = 0
        return [waiting[index] for index in order], order.index(len(order) - 1)

    def _stage(self, pieces: list[BatchPiece], parts: list[tuple[Numbers, dict[str, pa.Array]]], last: int) -> None:
        """Concatenate the parts in the order of the pieces, and add the columns that all rows of a piece share."""
        piece_of, own = parts[0]
        if len(parts) > 1:
            piece_of = np.concatenate([numbers for numbers, _ in parts])
            order = np.argsort(piece_of, kind="stable")
            piece_of = piece_of[order]
            index = pa.array(order)
            own = {name: pa.concat_arrays([part[name] for _, part in parts]).take(index) for name in own}
        if not len(piece_of):
            return
        shared = shared_of(pieces)
        rows = pa.array(piece_of)
        own.update({name: array.take(rows) for name, array in shared.items()})
        own["_position"] = pa.array(self._count(pieces, piece_of, last))
        batch = pa.RecordBatch.from_arrays([own[name] for name in _SCHEMA.names], schema=_SCHEMA)
        self._batches.append(batch)
        self.size += batch.nbytes
        self.rows += batch.num_rows

    def _count(self, pieces: list[BatchPiece], piece_of: Numbers, last: int) -> Numbers:
        """Ordinal of each row within its exchange, which an earlier flush may have begun.

        `last`: the piece that was added last, whose exchange may continue.
        """
        exchanges = [(piece.field.exchange.connection_id, piece.field.exchange.exchange_id) for piece in pieces]
        number = np.zeros(len(pieces), np.int64)
        for index in range(1, len(pieces)):
            number[index] = number[index - 1] + (exchanges[index] != exchanges[index - 1])
        of_row = number[piece_of]
        # Rows of one exchange follow each other.
        starts = np.flatnonzero(np.append(True, of_row[1:] != of_row[:-1]))
        position: Numbers = np.arange(len(piece_of)) - np.repeat(starts, np.diff(np.append(starts, len(piece_of))))
        begun, so_far = self._positions
        if begun in exchanges:
            position[of_row == number[exchanges.index(begun)]] += so_far
        rest = int(np.count_nonzero(of_row == number[last]))
        self._positions = exchanges[last], rest + (so_far if exchanges[last] == begun else 0)
        return position


def _sort_key(field: RecordsField) -> tuple[str, int, int, int]:
    """The sort key of a field's rows (`rows.staged.SORT_KEYS`), null first."""
    time_ns, exchange = field.message.time_ns, field.exchange
    return (
        field.message.api or "",
        NO_TIME if time_ns is None else time_ns,
        exchange.connection_id,
        exchange.exchange_id,
    )


def _fields(
    exchange: Exchange, message: Message, place: _RecordsPath, context: DecodeContext
) -> Iterator[tuple[RecordsField, list[dict[str, Any]]]]:
    body = message.body or {}
    for topic in body.get(place.topics) or ():
        name = text(topic.get("_topic_name") if place.name is None else topic.get(place.name, topic.get("_topic_name")))
        topic_id = None if place.topic_id is None else topic.get(place.topic_id)
        for partition in topic.get(place.partitions) or ():
            records = partition.get(place.records)
            if isinstance(records, dict) and records["batches"]:
                number = partition.get(place.number)
                known = topic_id if topic_id != ZERO_UUID else None
                yield RecordsField(exchange, message, context, name, known, number), records["batches"]
