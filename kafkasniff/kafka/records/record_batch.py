"""Record batches of magic 2 (KIP-98; `org.apache.kafka.common.record.DefaultRecordBatch`, `DefaultRecord`).

The header is decoded separately, so that records can be decoded to another form (columns) from `batch_payload`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from kafkasniff.kafka.records.checksum import crc32c
from kafkasniff.kafka.records.compression import CODECS, codec_name, decompress
from kafkasniff.kafka.records.control_records import control_record
from kafkasniff.kafka.records.record_list import decode_record_list
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.layout import FORMATS

__all__ = [
    "CONTROL",
    "CRC_START",
    "DELETE_HORIZON",
    "FIELDS",
    "HEADER",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "TRANSACTIONAL",
    "Batch",
    "HeldRecords",
    "batch_payload",
    "decode_batch",
    "decode_held_batch",
]

FIELDS: Final = (
    ("base_offset", "int64"),
    ("batch_length", "int32"),
    ("partition_leader_epoch", "int32"),
    ("magic", "int8"),
    ("crc", "uint32"),
    ("attributes", "int16"),
    ("last_offset_delta", "int32"),
    ("base_timestamp", "int64"),
    ("max_timestamp", "int64"),
    ("producer_id", "int64"),
    ("producer_epoch", "int16"),
    ("base_sequence", "int32"),
    ("record_count", "int32"),
)
"""The fields of the header and their types."""
HEADER: Final = struct.Struct(">" + "".join(FORMATS[kind][0] for _, kind in FIELDS))
HEADER_SIZE: Final = HEADER.size
"""61 bytes; `batch_length` counts from byte 12."""

# Bits of the attributes (int16); bits 0-2 are the codec.
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_UNKNOWN_BITS: Final = 0xFF80

CRC_START: Final = 21
"""Position of the attributes, where the range of the CRC begins."""
_COPIED: Final = 2048
"""Fewer bytes are copied faster than a view of them is made."""
_ATTRIBUTES: Final = struct.Struct(">h")
_MEANINGS: Final = tuple(
    (
        codec_name(bits & 7),
        "LogAppendTime" if bits & LOG_APPEND_TIME else "CreateTime",
        bits & TRANSACTIONAL != 0,
        bits & CONTROL != 0,
    )
    for bits in range(DELETE_HORIZON)
)
"""Decoded attributes, looked up for each batch: compression, timestamp_type, transactional, control."""


class HeldRecords(msgspec.Struct, gc=False):
    """The bytes of a batch whose records are decoded later, by `records.decode_held` or as columns."""

    wire: bytes
    """For magic 2: the batch as on the wire, with its header. Else a set of uncompressed messages: the message itself,
    or those that it wraps."""
    offset: int
    """Position of the batch within its message, for problems."""


class Batch(dict[str, Any]):
    """A batch by the contract's names, with facts about its records.

    With option "columns" all batches are of this class, with "full" the compressed ones of magic 2; others are dicts.
    """

    # Class defaults and no `__init__`, since one is made for each batch.
    held: HeldRecords | None = None
    records: list[dict[str, Any]] | None = None
    """For a legacy message that is not held: its records, or those that it wraps."""
    uncompressed: int | None = None
    """Uncompressed size of a compressed batch of magic 2; None until its records were decompressed."""


def decode_batch(
    data: bytes, position: int, end: int, context: DecodeContext, budget: int
) -> tuple[dict[str, Any], int]:
    """Decode the batch at `data[position:end]` (complete, 61 bytes or more); at most `budget` records and headers.

    Returns the batch by the contract's names and the rest of the budget. The CRC-32C (Castagnoli) covers everything
    from the attributes to the end.
    """
    (
        base_offset,
        batch_length,
        partition_leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(data, position)
    seen = data if end - position <= _COPIED else memoryview(data)
    crc_found = crc32c(seen[position + CRC_START : end])
    if crc_found != crc:
        context.problem(
            "crc-mismatch", f"the batch's CRC-32C is {crc:#010x}, its bytes have {crc_found:#010x}", position
        )
    if attributes & _UNKNOWN_BITS:
        context.problem("batch-attributes", f"unknown bits in the attributes {attributes & 0xFFFF:#06x}", position + 21)
    compression, timestamp_type, transactional, control = _MEANINGS[attributes & (DELETE_HORIZON - 1)]
    batch: dict[str, Any] = {
        "base_offset": base_offset,
        "batch_length": batch_length,
        "partition_leader_epoch": partition_leader_epoch,
        "magic": magic,
        "crc": crc,
        "crc_ok": crc_found == crc,
        "compression": compression,
        "timestamp_type": timestamp_type,
        "transactional": transactional,
        "control": control,
        "last_offset_delta": last_offset_delta,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "record_count": record_count,
    }
    if attributes & DELETE_HORIZON:
        # The bit turns the base timestamp into the time at which compaction may drop the batch's tombstones and
        # markers (KIP-534); the deltas still count from it.
        batch["_delete_horizon"] = base_timestamp
    wanted = context.options.records
    if wanted == "full":
        if attributes & 7:
            batch = Batch(batch)
        batch["records"], budget = _batch_records(batch, data, position, end, attributes, context, budget)
        return batch, budget
    if wanted == "columns":
        kept = Batch(batch)
        kept.held = HeldRecords(data[position:end], position - context.base)
        return kept, budget
    if attributes & 7 >= len(CODECS):
        context.problem("compression-codec", f"unknown codec {attributes & 7}", position + 22)
    return batch, budget


def decode_held_batch(
    batch: Batch, held: HeldRecords, context: DecodeContext, budget: int
) -> tuple[list[dict[str, Any]], int]:
    """The records of a held batch of magic 2 (`records.decode_held`)."""
    context.base = -held.offset
    (attributes,) = _ATTRIBUTES.unpack_from(held.wire, CRC_START)
    return _batch_records(batch, held.wire, 0, len(held.wire), attributes, context, budget)


def _batch_records(  # noqa: PLR0917 - called for each batch, where keywords would cost
    batch: dict[str, Any], data: bytes, position: int, end: int, attributes: int, context: DecodeContext, budget: int
) -> tuple[list[dict[str, Any]], int]:
    """The records of the batch at `data[position:end]`, whose header is `batch`."""
    record_count: int = batch["record_count"]
    body, start, stop = data, position + HEADER_SIZE, end
    if attributes & 7:
        payload = batch_payload(data, position, end, codec=attributes & 7, record_count=record_count, context=context)
        if payload is None:
            return [], budget
        body, start, stop = payload
        assert isinstance(batch, Batch)
        batch.uncompressed = HEADER_SIZE + stop - start
    records, complete, budget = decode_record_list(
        body,
        start,
        stop,
        batch["base_offset"],
        batch["base_timestamp"],
        batch["max_timestamp"] if attributes & LOG_APPEND_TIME else None,
        context,
        None if body is data else position,
        budget,
        end - position,
    )
    if complete and len(records) != record_count:
        context.problem(
            "record-count", f"the batch states {record_count} records and holds {len(records)}", position + 57
        )
    if attributes & CONTROL:
        for record in records:
            record["_control"] = control_record(record["key"], record["value"], context, position)
    return records, budget


def batch_payload(
    data: bytes, position: int, end: int, *, codec: int, record_count: int, context: DecodeContext
) -> tuple[bytes, int, int] | None:
    """The records of the batch at `data[position:end]`: (bytes, start, end); None if they are not available.

    Uncompressed records stay in `data` itself.
    """
    start = position + HEADER_SIZE
    if codec == 0:
        return data, start, end
    if start == end and record_count == 0:
        return b"", 0, 0  # compaction can leave a header without records, so there is nothing to decompress
    if codec_name(codec) == f"unknown-{codec}":
        context.problem("compression-codec", f"unknown codec {codec}", position + 22)
        return None
    limit = context.options.max_decompressed - context.decompressed
    result = decompress(codec, data[start:end], limit)
    context.decompressed += result.produced
    if result.failure is not None:
        context.problem(result.failure, result.detail, position)
        return None
    if result.detail:
        context.problem("decompression-trailing", result.detail, position)
    return result.data, 0, len(result.data)
