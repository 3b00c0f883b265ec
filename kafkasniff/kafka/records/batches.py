"""Record batches of magic 2, and message sets: the formats before them, magic 0 and 1.

Magic 2: KIP-98; `org.apache.kafka.common.record.DefaultRecordBatch`. The header is decoded separately, so that records
can be decoded to another form (columns) from `batch_payload`.

Magic 0 and (as of 0.10, KIP-31 and KIP-32) magic 1: a message is int64 offset, int32 size, uint32 CRC-32 of the rest,
int8 magic, int8 attributes, in magic 1 int64 timestamp (ms), int32 length + key, int32 length + value (-1: null). A
compressed message (a wrapper) holds a message set as its value (`org.apache.kafka.common.record.LegacyRecord`,
`AbstractLegacyRecordBatch`).
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, Final

import msgspec
from isal import isal_zlib

from kafkasniff.kafka.records.compression import CODECS, MAX_RATIO, codec_name, decompress
from kafkasniff.kafka.records.record_list import (
    MAX_RECORD_RATE,
    control_record,
    decode_record_list,
    too_many_records,
    wrap64,
)
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import FORMATS
from kafkasniff.native.columns import count_messages
from kafkasniff.native.library import kernel

_EXTENSION = "crc32c._crc32c"


def _load() -> Callable[[bytes | memoryview], int]:
    package = importlib.util.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec(_EXTENSION, list(places))
    if found is None or found.loader is None:
        # Built differently from its wheels.
        import crc32c as front  # noqa: PLC0415 - only then

        function: Callable[[bytes | memoryview], int] = front.crc32c
        return function
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    function = module.crc32c
    return function


crc32c = _load()
"""The checksum of bytes."""


BATCH_FIELDS: Final = (
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
HEADER: Final = struct.Struct(">" + "".join(FORMATS[kind][0] for _, kind in BATCH_FIELDS))
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


MIN_SIZES: Final = (14, 22)
"""Minimum size of a message after its size field, by magic."""

MAX_NESTING: Final = 3
"""Nesting of wrappers: Kafka writes one level and refuses more; old clients were seen to compress twice."""

MESSAGE_FIELDS: Final = (
    ("offset", "int64"),
    ("message_size", "int32"),
    ("crc", "uint32"),
    ("magic", "int8"),
    ("attributes", "int8"),
)
"""The fields of both formats before the timestamp and the key, and their types."""
_HEAD: Final = struct.Struct(">" + "".join(FORMATS[kind][0] for _, kind in MESSAGE_FIELDS))
_HEAD_SIZE: Final = _HEAD.size
_ENTRY: Final = 12
"""Offset and size, which `size` does not count."""
_CRC_END: Final = 16


class _Message(msgspec.Struct, frozen=True):
    """One message on the wire."""

    position: int
    offset: int
    size: int
    crc: int
    crc_ok: bool
    magic: int
    attributes: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


class _Account:
    """Content of an outermost message on all levels together, and its bounds."""

    __slots__ = ("budget", "budget_given", "ceiling", "full", "held", "messages", "place", "records", "size")

    def __init__(self, place: int, size: int, budget: int, decompressed: int) -> None:
        self.records: list[dict[str, Any]] = []
        self.place = place
        """Position of the outermost message, for problems within decompressed bytes."""
        self.size = size
        """Its bytes on the wire."""
        self.budget = min(budget, MAX_RECORD_RATE * size)
        """Maximum number of messages in it, wrappers included."""
        self.budget_given = budget
        self.messages = 0
        """Number of messages decoded."""
        self.held: bytes | None = None
        """Instead of the records: a set of this many uncompressed `messages`."""
        self.ceiling = decompressed + MAX_RATIO * size
        """Bound of `DecodeContext.decompressed`: all levels share what the bytes on the wire may become.

        No codec of these formats produces more on one level; only zstd does, which came with magic 2.
        """
        self.full = False
        """A bound was reached: nothing more is decoded."""

    def report_bound(self, context: DecodeContext) -> None:
        """Report that the bound was exceeded."""
        self.full = True
        detail = too_many_records(context)
        if self.budget < self.budget_given:
            detail = f"more than {self.budget} messages in one of {self.size} bytes"
        context.problem("record-bound", detail, self.place)


def decode_message(
    data: bytes, position: int, end: int, context: DecodeContext, budget: int
) -> tuple[dict[str, Any], int]:
    """Decode the outermost message at `data[position:end]` (complete, of magic 0 or 1), including wrapped ones.

    Returns it as a batch by the contract's names, without fields that its magic lacks, and the rest of `budget`
    (records). `base_offset` is the offset field on the wire, which in a wrapper is that of the last message inside;
    `max_timestamp` is the message's timestamp field. `record_count` is counted, so wrappers are decompressed for it
    with `records == "batches"` too; it is None if that fails.
    """
    message = _read(data, position, end, context, None)
    codec = message.attributes & 7
    batch: dict[str, Any] = {
        "base_offset": message.offset,
        "batch_length": message.size,
        "magic": message.magic,
        "crc": message.crc,
        "crc_ok": message.crc_ok,
        "compression": codec_name(codec),
    }
    if message.magic == 1:
        batch["timestamp_type"] = "LogAppendTime" if message.attributes & LOG_APPEND_TIME else "CreateTime"
        batch["max_timestamp"] = message.timestamp
    _check_attributes(message, position, context)
    inside = _Account(position, end - position, budget, context.decompressed)
    complete = True
    if codec == 0 and budget > 0 and context.options.records == "columns":
        inside.held, inside.messages = data[position:end], 1
    else:
        complete = _expand(message, message.offset, None, inside, context, 0)
    count = len(inside.records) if inside.held is None else inside.messages
    batch["record_count"] = count if complete else None
    if context.options.records == "full":
        batch["records"] = inside.records
        context.interpretable = True
    elif context.options.records == "columns":
        batch = Batch(batch)
        if inside.held is None:
            batch.records = inside.records
        else:
            batch.held = HeldRecords(inside.held, position - context.base)
    return batch, budget - count


def decode_held_set(batch: Batch, held: HeldRecords) -> list[dict[str, Any]]:
    """The records of a message with a held set (`records.decode_held`)."""
    # Its problems were reported when it was decoded.
    context = DecodeContext(DecodeOptions())
    size = len(held.wire)
    inside = _Account(0, size, size, 0)
    messages, _ = _read_set(held.wire, batch["magic"], inside, context)
    base = 0
    append_timestamp = None
    if messages and batch["compression"] != "none" and batch["magic"] == 1:
        base = max(batch["base_offset"] - messages[-1].offset, 0)
        if batch["timestamp_type"] == "LogAppendTime":
            append_timestamp = batch["max_timestamp"]
    for message in messages:
        _expand(message, wrap64(base + message.offset), append_timestamp, inside, context, 1)
    return inside.records


def _expand(  # noqa: PLR0917 - a message, where it is, and what it adds to
    message: _Message, offset: int, append_timestamp: int | None, into: _Account, context: DecodeContext, depth: int
) -> bool:
    """Append the record of a message, or those that it wraps; False if some could not be decoded.

    `append_timestamp`: that of the wrapper if the broker set it, which applies to all messages inside.
    """
    codec = message.attributes & 7
    if codec == 0:
        if len(into.records) >= into.budget:
            into.report_bound(context)
            return False
        timestamp = message.timestamp
        if append_timestamp is not None and timestamp is not None:
            timestamp = append_timestamp
        into.records.append({"offset": offset, "timestamp": timestamp, "key": message.key, "value": message.value})
        return True
    if depth == MAX_NESTING:
        context.problem("message-nesting", f"more than {MAX_NESTING} nested compressed messages", into.place)
        return False
    if codec_name(codec) == f"unknown-{codec}":
        context.problem("compression-codec", f"unknown codec {codec}", into.place)
        return False
    if message.value is None:
        context.problem("message-malformed", "a compressed message has no value", into.place)
        return False
    if message.key is not None:
        context.problem(
            "message-wrapper-key", f"a compressed message has a key of {len(message.key)} bytes", into.place
        )
    limit = min(context.options.max_decompressed, into.ceiling) - context.decompressed
    result = decompress(codec, message.value, limit, magic=message.magic)
    context.decompressed += result.produced
    if result.failure is not None:
        context.problem(result.failure, result.detail, into.place)
        into.full = context.decompressed >= into.ceiling
        return False
    if result.detail:
        context.problem("decompression-trailing", result.detail, into.place)
    if depth == 0 and _hold(result.data, message.magic, into, context):
        return True
    messages, complete = _read_set(result.data, message.magic, into, context)
    if not messages:
        if complete:
            context.problem("message-malformed", "a compressed message holds no messages", into.place)
        return False
    base = 0
    if message.magic == 1:
        # KIP-31: offsets inside count from 0 (compaction leaves holes), and the wrapper has the absolute offset of the
        # last. Producers may leave the wrapper's at 0 (librdkafka did): then the inner offsets count.
        base = max(offset - messages[-1].offset, 0)
    if message.magic == 1 and message.attributes & LOG_APPEND_TIME and append_timestamp is None:
        append_timestamp = message.timestamp
    for inner in messages:
        if into.full and inner.attributes & 7:
            break
        at = wrap64(base + inner.offset)
        complete = _expand(inner, at, append_timestamp, into, context, depth + 1) and complete
    return complete


def _hold(data: bytes, magic: int, into: _Account, context: DecodeContext) -> bool:
    """Leave a decompressed set to the kernel, if its records are wanted as columns and it has no problems."""
    if context.options.records != "columns":
        return False
    count = count_messages(kernel(), data, magic, into.budget)
    if count == 0:
        return False
    into.held, into.messages = data, count
    return True


def _read_set(data: bytes, magic: int, into: _Account, context: DecodeContext) -> tuple[list[_Message], bool]:
    """The messages of a decompressed set, and whether it was decoded to its end."""
    messages: list[_Message] = []
    position = 0
    end = len(data)
    mixed = False
    while position < end:
        if into.messages >= into.budget:
            into.report_bound(context)
            return messages, False
        if end - position < _HEAD_SIZE:
            context.problem("message-malformed", f"a set ends with {end - position} bytes of a message", into.place)
            return messages, False
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        inner_magic = data[position + 16]
        if inner_magic > 1 or size < MIN_SIZES[inner_magic] or size > end - position - _ENTRY:
            context.problem(
                "message-malformed",
                f"the message at byte {position} of {end} decompressed has the size {size} and magic {inner_magic}",
                into.place,
            )
            return messages, False
        message = _read(data, position, position + _ENTRY + size, context, into.place)
        messages.append(message)
        into.messages += 1
        mixed = mixed or inner_magic != magic
        position += _ENTRY + size
    if mixed:
        context.problem("message-magic", f"a compressed message of magic {magic} holds messages of another", into.place)
    return messages, True


def _read(data: bytes, position: int, end: int, context: DecodeContext, place: int | None) -> _Message:
    """The message at `data[position:end]`; `place`: position for problems if `data` was decompressed."""
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, position)
    at = position if place is None else place
    inside = "" if place is None else f" (at byte {position} of the decompressed set)"
    found = isal_zlib.crc32(memoryview(data)[position + _CRC_END : end])
    if found != crc:
        context.problem(
            "crc-mismatch", f"the message's CRC-32 is {crc:#010x}, its bytes have {found:#010x}{inside}", at
        )
    cursor = position + _HEAD_SIZE
    timestamp = None
    if magic == 1:
        timestamp = int.from_bytes(data[cursor : cursor + 8], "big", signed=True)
        cursor += 8
    key, cursor = _field(data, cursor, end)
    if cursor < 0:
        context.problem("message-malformed", "the key runs past the end of its message" + inside, at)
        return _Message(position, offset, size, crc, found == crc, magic, attributes, timestamp, None, None)
    value, cursor = _field(data, cursor, end)
    if cursor != end:
        detail = "the value runs past the end of" if cursor < 0 else f"{end - cursor} surplus bytes in"
        context.problem("message-malformed", f"{detail} its message{inside}", at)
    return _Message(position, offset, size, crc, found == crc, magic, attributes, timestamp, key, value)


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """A key or value and the position after it; -1 if it does not fit."""
    start = position + 4
    if start > end:
        return None, -1
    length = int.from_bytes(data[position:start], "big", signed=True)
    if length < 0:
        return None, start if length == -1 else -1
    if length > end - start:
        return None, -1
    return data[start : start + length], start + length


def _check_attributes(message: _Message, position: int, context: DecodeContext) -> None:
    known = 0x07 if message.magic == 0 else 0x07 | LOG_APPEND_TIME
    if message.attributes & ~known & 0xFF:
        context.problem(
            "batch-attributes", f"unknown bits in the attributes {message.attributes & 0xFF:#04x}", position + 17
        )
