"""Record batches of magic 2 (KIP-98; `org.apache.kafka.common.record.DefaultRecordBatch`, `DefaultRecord`).

The header is read apart from the records, so that records can be had in another form (columns) from `batch_payload`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
from crc32c import crc32c

from kafkasniff.kafka.compression import codec_name, decompress
from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.control_records import control_record
from kafkasniff.kafka.embedded.schema_registry import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.embedded.schema_registry import add_from_header
from kafkasniff.kafka.record_flaw import MalformedError, find_flaw, read_varint

__all__ = [
    "CONTROL",
    "DELETE_HORIZON",
    "HEADER",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "MAX_RECORDS",
    "TRANSACTIONAL",
    "Batch",
    "HeldRecords",
    "batch_payload",
    "decode_batch",
    "decode_held",
    "decode_record_list",
    "wrap64",
]

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
max_timestamp, producer_id, producer_epoch, base_sequence, record count."""
HEADER_SIZE: Final = HEADER.size
"""61 bytes; `batch_length` counts from byte 12."""

MAX_RECORDS: Final = 2_000_000
"""Records, with their headers counted too, of one `records` field: an empty one takes 7 bytes on the wire, which
compress to next to nothing, and some 400 bytes as a dict."""

# Bits of the attributes (int16); bits 0-2 are the codec.
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_UNKNOWN_BITS: Final = 0xFF80

_CRC_START: Final = 21
_ATTRIBUTES: Final = struct.Struct(">h")
_NO_WRAP: Final = 1 << 62
_MALFORMED: Final = -1
"""A position that no record has."""
_ZIGZAG: Final = tuple(number >> 1 ^ -(number & 1) for number in range(128))
"""Numbers that varints of one byte stand for."""


class HeldRecords(msgspec.Struct, gc=False):
    """The bytes of a batch whose records are read later, by `decode_held` or as columns."""

    wire: bytes
    """The batch as on the wire, its header included."""
    offset: int
    """Of the batch within its message, for problems."""


class Batch(dict[str, Any]):
    """A batch by the contract's names, with what its records are had from besides (option `records="columns"`)."""

    __slots__ = ("held", "records")

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.held: HeldRecords | None = None
        """Of a batch of magic 2: the bytes."""
        self.records: list[dict[str, Any]] | None = None
        """Of a legacy message: its records, or those that it wraps."""

    def __reduce__(self) -> Any:
        # Python's own way to pickle a subclass of dict with slots sets items first, on what `__init__` has not made.
        return Batch, (dict(self),), (None, {"held": self.held, "records": self.records})


def decode_batch(
    data: bytes, position: int, end: int, context: DecodeContext, budget: int
) -> tuple[dict[str, Any], int]:
    """Decode the batch at `data[position:end]` (complete, 61 bytes or more); at most `budget` records and headers.

    Returns the batch by the contract's names and what is left of the budget. The CRC-32C (Castagnoli) covers everything
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
    crc_found = crc32c(memoryview(data)[position + _CRC_START : end])
    if crc_found != crc:
        context.problem(
            "crc-mismatch", f"the batch's CRC-32C is {crc:#010x}, its bytes have {crc_found:#010x}", position
        )
    if attributes & _UNKNOWN_BITS:
        context.problem("batch-attributes", f"unknown bits in the attributes {attributes & 0xFFFF:#06x}", position + 21)
    codec = attributes & 7
    batch: dict[str, Any] = {
        "base_offset": base_offset,
        "batch_length": batch_length,
        "partition_leader_epoch": partition_leader_epoch,
        "magic": magic,
        "crc": crc,
        "crc_ok": crc_found == crc,
        "compression": codec_name(codec),
        "timestamp_type": "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime",
        "transactional": bool(attributes & TRANSACTIONAL),
        "control": bool(attributes & CONTROL),
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
    if context.options.records == "columns":
        kept = Batch(batch)
        kept.held = HeldRecords(data[position:end], position - context.base)
        return kept, budget
    if context.options.records != "full":
        if codec_name(codec) == f"unknown-{codec}":
            context.problem("compression-codec", f"codec {codec} is not known", position + 22)
        return batch, budget
    batch["records"], budget = _batch_records(
        batch, data, position, end, attributes=attributes, context=context, budget=budget
    )
    return batch, budget


def decode_held(batch: Batch, context: DecodeContext, budget: int) -> tuple[list[dict[str, Any]], int]:
    """The records of a batch that was decoded with `records="columns"`, and what is left of the budget.

    `context` is one for the same message; problems go there, and what is decompressed counts there.
    """
    held = batch.held
    if held is None:
        return batch.records or [], budget
    context.base = -held.offset
    (attributes,) = _ATTRIBUTES.unpack_from(held.wire, _CRC_START)
    return _batch_records(batch, held.wire, 0, len(held.wire), attributes=attributes, context=context, budget=budget)


def _batch_records(
    batch: dict[str, Any],
    data: bytes,
    position: int,
    end: int,
    *,
    attributes: int,
    context: DecodeContext,
    budget: int,
) -> tuple[list[dict[str, Any]], int]:
    """The records of the batch at `data[position:end]`, whose header is `batch`."""
    record_count: int = batch["record_count"]
    payload = batch_payload(data, position, end, codec=attributes & 7, record_count=record_count, context=context)
    if payload is None:
        return [], budget
    body, start, stop = payload
    records, complete, budget = decode_record_list(
        body,
        start,
        stop,
        base_offset=batch["base_offset"],
        base_timestamp=batch["base_timestamp"],
        append_timestamp=batch["max_timestamp"] if attributes & LOG_APPEND_TIME else None,
        context=context,
        batch_position=None if body is data else position,
        budget=budget,
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
    """Where the records of the batch at `data[position:end]` are: (bytes, start, end); None if they cannot be had.

    Uncompressed records stay where they are, in `data` itself.
    """
    start = position + HEADER_SIZE
    if codec == 0:
        return data, start, end
    if start == end and record_count == 0:
        return b"", 0, 0  # compaction can leave a header without records, where there is nothing to decompress
    if codec_name(codec) == f"unknown-{codec}":
        context.problem("compression-codec", f"codec {codec} is not known", position + 22)
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


def decode_record_list(
    data: bytes,
    position: int,
    end: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    context: DecodeContext,
    batch_position: int | None,
    budget: int,
) -> tuple[list[dict[str, Any]], bool, int]:
    """Decode the records in `data[position:end]`; hot, see below.

    `append_timestamp` (ms) is that of all records where the broker set it. `batch_position` is the place for problems
    where `data` was decompressed and has no places of its own. Returns the records, whether they were read to the end
    (after a malformed one nothing is read), and what is left of the budget.

    Hot: one pass in one function, varints of one and two bytes inline, and no bounds checked on the way. A malformed
    record shows at its end at the latest, where the position is not the one that its length gave, or past the end
    (slices never raise, an index beyond `data` does); only then `find_flaw` reads it again, carefully, to say what is
    wrong. Positions are doubled where a length comes in, since a zigzag varint is twice the number that it stands for:
    an odd one, a negative length, then equals no position.
    """
    records: list[dict[str, Any]] = []
    append = records.append
    zigzag = _ZIGZAG
    headers_left = budget
    begin = start = position
    try:
        for _ in range(budget):
            if position >= end:
                break
            start = position
            byte = data[position]
            position += 1
            if byte > 127:
                high = data[position]
                if high < 128:
                    byte += (high << 7) - 128
                    position += 1
                else:
                    byte, position = read_varint(data, position - 1, 5)
            twice_stop = position + position + byte

            # One byte of attributes comes first, of which none is defined.
            byte = data[position + 1]
            position += 2
            if byte < 128:
                timestamp = base_timestamp + zigzag[byte]
            else:
                high = data[position]
                if high < 128:
                    byte += (high << 7) - 128
                    position += 1
                else:
                    byte, position = read_varint(data, position - 1, 10)
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                if byte > 0xFFFFFFFF:
                    timestamp = wrap64(timestamp)

            byte = data[position]
            position += 1
            if byte < 128:
                offset = base_offset + zigzag[byte]
            else:
                high = data[position]
                if high < 128:
                    byte += (high << 7) - 128
                    position += 1
                else:
                    byte, position = read_varint(data, position - 1, 5)
                offset = base_offset + ((byte >> 1) ^ -(byte & 1))

            byte = data[position]
            position += 1
            if byte > 127:
                high = data[position]
                if high < 128:
                    byte += (high << 7) - 128
                    position += 1
                else:
                    byte, position = read_varint(data, position - 1, 5)
            if byte & 1:
                if byte != 1:
                    position = _MALFORMED
                    break
                key = None
                byte = data[position]
                position += 1
            else:
                field_end = position + (byte >> 1)
                key = data[position:field_end]
                byte = data[field_end]
                position = field_end + 1

            if byte > 127:
                high = data[position]
                if high < 128:
                    byte += (high << 7) - 128
                    position += 1
                else:
                    byte, position = read_varint(data, position - 1, 5)
            if byte & 1:
                if byte != 1:
                    position = _MALFORMED
                    break
                value = None
            else:
                field_end = position + (byte >> 1)
                value = data[position:field_end]
                position = field_end

            byte = data[position]
            position += 1
            headers: list[dict[str, Any]] = []
            if byte:
                if byte > 127:
                    byte, position = read_varint(data, position - 1, 5)
                # Each header takes two bytes or more, so that the count cannot make the loop run on.
                if byte & 1 or byte > (twice_stop >> 1) - position or byte > end - position:
                    position = _MALFORMED
                    break
                headers_left -= byte >> 1
                if headers_left < 0:
                    position = _MALFORMED
                    break
                for _ in range(byte >> 1):
                    byte = data[position]
                    position += 1
                    if byte > 127:
                        byte, position = read_varint(data, position - 1, 5)
                    if byte & 1:
                        raise MalformedError
                    field_end = position + (byte >> 1)
                    name_bytes = data[position:field_end]
                    byte = data[field_end]
                    position = field_end + 1
                    try:
                        name: str | bytes = str(name_bytes, "utf-8")
                    except UnicodeDecodeError:
                        name = name_bytes
                    if byte > 127:
                        byte, position = read_varint(data, position - 1, 5)
                    if byte & 1:
                        if byte != 1:
                            raise MalformedError
                        headers.append({"key": name, "value": None})
                        continue
                    field_end = position + (byte >> 1)
                    headers.append({"key": name, "value": data[position:field_end]})
                    position = field_end
            if position + position != twice_stop:
                position = _MALFORMED
                break
            append({"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": headers})
    except (IndexError, MalformedError):
        position = _MALFORMED
    if position > end:
        records.pop()
        position = _MALFORMED
    if headers_left != budget:
        _look_at_headers(records, context, begin if batch_position is None else batch_position)
    if append_timestamp is not None:
        for record in records:
            record["timestamp"] = append_timestamp
    if base_offset > _NO_WRAP or base_offset < -_NO_WRAP or base_timestamp > _NO_WRAP or base_timestamp < -_NO_WRAP:
        for record in records:
            record["offset"] = wrap64(record["offset"])
            record["timestamp"] = wrap64(record["timestamp"])
    place = start if batch_position is None else batch_position
    left = min(budget - len(records), headers_left)
    if headers_left < 0 or 0 <= position < end:
        context.problem("record-bound", f"more than {MAX_RECORDS} records and headers in one field", place)
        return records, False, 0
    if position == _MALFORMED:
        at, detail = find_flaw(data, start, end)
        detail = f"record {len(records)} of the batch: {detail}"
        if batch_position is None:
            place = at
        else:
            detail += f" (at byte {at} of the decompressed records)"
        context.problem("record-malformed", detail, place)
        return records, False, left
    return records, True, left


def _look_at_headers(records: list[dict[str, Any]], context: DecodeContext, position: int) -> None:
    """Tell of header keys that are not UTF-8, which the loop leaves as bytes, and of schema ids in headers."""
    for index, record in enumerate(records):
        for header in record["headers"]:
            if header["key"] in SCHEMA_HEADERS:
                add_from_header(record, header)
            elif isinstance(header["key"], bytes):
                context.problem(
                    "string-not-utf8", f"a header key of record {index} of the batch is not UTF-8", position
                )


def wrap64(value: int) -> int:
    """`value` as Java's long holds it: sums of hostile fields must stay 64-bit integers in every output."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
