"""`records` fields: any number of consecutive record batches (magic 2) and messages (magic 0, 1).

The first 17 bytes have the same layout in all three formats: int64 offset, int32 length of the rest, four bytes (leader
epoch or CRC), int8 magic. So batches are first located (`find_batches`) and then decoded by their magic.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Final

from kafkasniff.kafka.record_facts import add_schema_ids
from kafkasniff.kafka.records.batches import (
    HEADER,
    HEADER_SIZE,
    MIN_SIZES,
    Batch,
    HeldRecords,
    crc32c,
    decode_batch,
    decode_held_batch,
    decode_held_set,
    decode_message,
)
from kafkasniff.kafka.schema.context import DecodeContext, RenderedRecords, RenderingOptions

MAX_BATCHES: Final = 500_000
"""Batches and outermost messages of one `records` field: one of 26 bytes on the wire takes some 700 as a dict."""

MAX_BATCH_LENGTH: Final = 1 << 30
"""A batch that states more bytes counts as damaged: above any limit on messages and requests in use."""

MAX_SEARCH: Final = 16 << 20
"""Bytes of an unaligned slice in which the first whole batch is searched, and the bytes whose CRC is computed for that,
divided by four: twice the maximum of KRaft's batches, 8 MiB (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`)."""

_COMMON: Final = struct.Struct(">qi4xb")
_COMMON_SIZE: Final = _COMMON.size
_length: Final = struct.Struct(">i").unpack_from
_ENTRY: Final = 12
"""Bytes before the range of a batch's length."""
_CRC_START: Final = 21
_SMALLEST: Final = _ENTRY + MIN_SIZES[0]
"""Size of a message of magic 0 without key and value."""
_MIN_LENGTHS: Final = (*MIN_SIZES, HEADER_SIZE - _ENTRY)

_CANDIDATE: Final = re.compile(rb"(?=\x02.{4}\x00[\x00-\x7f][\x00-\x7f])", re.DOTALL)
"""A magic 2, the CRC, attributes without unknown bits, and a last offset delta that is not negative."""


BatchSpan = tuple[int, int, int]
"""Location of a batch: its position, its end, its magic."""


def decode_records(data: bytes, start: int, end: int, context: DecodeContext) -> dict[str, Any] | RenderedRecords:
    """Decode the `records` field in `data[start:end]`: `{"batches": […], "truncated_bytes": n}`.

    Keys, values and header values are `bytes` or None, header keys `str` (`bytes` if not UTF-8), timestamps ms since
    the epoch. `truncated_bytes` are those at the end that are not a whole batch: a Fetch response may end in the middle
    of one, which is not a problem; otherwise a problem is reported. So the batches and these bytes together are always
    `end - start`. With `context.options.records` other than "full" the batches have no `records`. Never raises for bad
    bytes.

    With `RenderingOptions`, a field that is only needed as JSON may be rendered.
    """
    options = context.options
    if isinstance(options, RenderingOptions) and end - start >= _SMALLEST and options.records == "full":
        rendered = None if options.renderer is None else options.renderer.records(data, start, end, context)
        if rendered is not None:
            if rendered.truncated:
                context.truncated = True
            return rendered
    return _decode(data, start, end, context)


def held_batch(batch: dict[str, Any], wire: bytes, offset: int) -> Batch:
    """A batch of magic 2 whose records are decoded later (`decode_held`): its header, its bytes, its offset."""
    held = Batch(batch)
    held.held = HeldRecords(wire, offset)
    return held


def rendered_records(  # noqa: PLR0917 - what is known of a field, and where it is
    json: bytes, truncated: int, data: bytes, start: int, end: int, options: RenderingOptions
) -> RenderedRecords:
    """The JSON of the field `data[start:end]`, which keeps the bytes."""
    raw, plain = data[start:end], options.decoding()

    def decode() -> dict[str, Any]:
        records = _decode(raw, 0, len(raw), DecodeContext(plain))
        add_schema_ids(records)
        return records

    return RenderedRecords(json, truncated, decode)


def _decode(data: bytes, start: int, end: int, context: DecodeContext) -> dict[str, Any]:
    size = end - start
    if (
        HEADER_SIZE <= size <= MAX_BATCH_LENGTH
        and data[start + 16] == 2
        and _length(data, start + 8)[0] == size - _ENTRY
    ):
        # One batch fills the field, as nearly always if messages are small.
        most = context.options.max_records
        batch, budget = decode_batch(data, start, end, context, most - context.records)
        context.records = most - budget
        return {"batches": [batch], "truncated_bytes": 0}
    spans, truncated = find_batches(data, start, end, context)
    batches: list[dict[str, Any]] = []
    budget = context.options.max_records - context.records
    for position, batch_end, magic in spans:
        if magic == 2:
            batch, budget = decode_batch(data, position, batch_end, context, budget)
        else:
            batch, budget = decode_message(data, position, batch_end, context, budget)
        batches.append(batch)
    context.records = context.options.max_records - budget
    if truncated:
        context.truncated = True
    return {"batches": batches, "truncated_bytes": truncated}


def decode_unaligned(data: bytes, start: int, end: int, context: DecodeContext) -> dict[str, Any]:
    """Decode a slice of a log in `data[start:end]` that may start within a batch (FetchSnapshot's UnalignedRecords).

    Like `decode_records`, with `"leading_bytes"` in front: those before the first batch of magic 2 that is whole and
    has a right CRC. It is searched within `MAX_SEARCH`; if there is none, bytes that look like a batch truncated by the
    end may be at the start.
    """
    first = start
    if end > start and not _is_whole_batch(data, start, end):
        first = _search(data, start, end, context)
        if first == end and _is_cut_batch(data, start, end):
            first = start
    return {"leading_bytes": first - start, **_decode(data, first, end, context)}


def decode_held(batch: Batch, context: DecodeContext, budget: int) -> tuple[list[dict[str, Any]], int]:
    """The records of a batch that was decoded with `records="columns"`, and the rest of the budget.

    `context` is one for the same message; it gets the problems and the count of decompressed bytes.
    """
    if batch.held is None:
        return batch.records or [], budget
    if batch["magic"] < 2:
        # They were counted, and their problems reported, when the message was decoded.
        return decode_held_set(batch, batch.held), budget
    return decode_held_batch(batch, batch.held, context, budget)


def find_batches(data: bytes, start: int, end: int, context: DecodeContext) -> tuple[list[BatchSpan], int]:
    """The whole batches in `data[start:end]` and the number of bytes after them. Only checks lengths and magics."""
    spans: list[BatchSpan] = []
    position = start
    while end - position >= _COMMON_SIZE:
        _, length, magic = _COMMON.unpack_from(data, position)
        if not 0 <= magic <= 2:
            context.problem("record-magic", f"a batch of magic {magic}", position + 16)
            return spans, end - position
        if length < _MIN_LENGTHS[magic] or length > MAX_BATCH_LENGTH:
            context.problem("batch-length", f"a batch of magic {magic} of {length} bytes", position + 8)
            return spans, end - position
        batch_end = position + _ENTRY + length
        if batch_end > end:
            break
        if len(spans) == MAX_BATCHES:
            context.problem("record-bound", f"more than {MAX_BATCHES} batches in one field", position)
            return spans, end - position
        spans.append((position, batch_end, magic))
        position = batch_end
    if _ENTRY <= end - position < _COMMON_SIZE:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not MIN_SIZES[0] <= length <= MAX_BATCH_LENGTH:
            context.problem("batch-length", f"a batch of {length} bytes", position + 8)
    return spans, end - position


def _is_whole_batch(data: bytes, position: int, end: int) -> bool:
    """Whether a batch of magic 2 with a right CRC is at `position`."""
    if end - position < HEADER_SIZE:
        return False
    _, length, _, magic, crc, *_ = HEADER.unpack_from(data, position)
    batch_end = position + _ENTRY + length
    if magic != 2 or length < _MIN_LENGTHS[2] or batch_end > end:
        return False
    return bool(crc32c(memoryview(data)[position + _CRC_START : batch_end]) == crc)


def _is_cut_batch(data: bytes, position: int, end: int) -> bool:
    """Whether the header at `position` can be that of a batch of magic 2 that ends after `end`."""
    if end - position < HEADER_SIZE:
        return False
    _, length, _, magic, _, attributes, last_offset_delta, *_, count = HEADER.unpack_from(data, position)
    if magic != 2 or attributes & 0xFF80 or last_offset_delta < 0 or count < 0:
        return False
    return bool(end - position - _ENTRY < length <= MAX_BATCH_LENGTH)


def _search(data: bytes, start: int, end: int, context: DecodeContext) -> int:
    """Position of the first whole batch of magic 2 with a right CRC after `start`; `end` if there is none."""
    allowance = 4 * MAX_SEARCH
    limit = min(end, start + MAX_SEARCH)
    for match in _CANDIDATE.finditer(data, start + 1 + 16, limit):
        position = match.start() - 16
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not _MIN_LENGTHS[2] <= length <= end - position - _ENTRY:
            continue
        allowance -= length
        if allowance < 0:
            break
        if _is_whole_batch(data, position, end):
            return position
    if allowance < 0 or limit < end:
        context.problem(
            "record-search", f"no batch found in the first {limit - start} bytes of an unaligned slice", start
        )
    return end
