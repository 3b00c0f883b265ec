"""The records of a batch of magic 2, one after the other (`org.apache.kafka.common.record.DefaultRecord`)."""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.embedded.connect_configs import CONNECT_KEYS
from kafkasniff.kafka.embedded.schema_registry import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.embedded.schema_registry import add_from_header
from kafkasniff.kafka.embedded.trace_ids import TRACE_HEADERS, add_trace_id
from kafkasniff.kafka.packed_records import read_record_list
from kafkasniff.kafka.record_flaw import MalformedError, find_flaw, read_varint
from kafkasniff.native.calls import Base

__all__ = ["MAX_HEADER_RATE", "MAX_RECORD_RATE", "decode_record_list", "too_many_records", "wrap64"]

MAX_RECORD_RATE: Final = 4
"""Records for each byte that their batch takes on the wire. Writers number the records of a batch, so that no two are
alike: empty ones compress to 0.6 bytes each at best (zstd 3; gzip 1.4). A million records that are all alike compress
to a kilobyte, and no writer makes them."""

MAX_HEADER_RATE: Final = 16
"""Headers of records for each byte that their batch takes on the wire. They may all be alike: nine to each record come
to it where records take the least."""

_NO_WRAP: Final = 1 << 62
_MALFORMED: Final = -1
"""A position that no record has."""
_key: Final = itemgetter("key")
_ZIGZAG: Final = tuple(number >> 1 ^ -(number & 1) for number in range(128))
"""Numbers that varints of one byte stand for."""


def decode_record_list(  # noqa: PLR0917 - called for each batch, where keywords would cost
    data: bytes,
    position: int,
    end: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    context: DecodeContext,
    batch_position: int | None,
    budget: int,
    wire: int | None = None,
) -> tuple[list[dict[str, Any]], bool, int]:
    """Decode the records in `data[position:end]`; hot, see below.

    `append_timestamp` (ms) is that of all records where the broker set it. `batch_position` is the place for problems
    where `data` was decompressed and has no places of its own. At most `budget` records and as many headers are read,
    and where the batch takes `wire` bytes on the wire, no more than so many may hold. Returns the records, whether they
    were read to the end (after a malformed one nothing is read), and what is left of the budget.

    Hot: one pass in one function, varints of one and two bytes inline, and no bounds checked on the way. A malformed
    record shows at its end at the latest, where the position is not the one that its length gave, or past the end
    (slices never raise, an index beyond `data` does); only then `find_flaw` reads it again, carefully, to say what is
    wrong. Positions are doubled where a length comes in, since a zigzag varint is twice the number that it stands for:
    an odd one, a negative length, then equals no position.
    """
    most_wire = 1 << 60 if wire is None else wire
    base = Base(base_offset, base_timestamp, append_timestamp or 0, append_timestamp is not None, most_wire)
    found = read_record_list(data, position, end, base, budget)
    if found is not None:
        if found[2]:
            context.telling = True
        return found[0], True, budget - found[1]
    records: list[dict[str, Any]] = []
    append = records.append
    zigzag = _ZIGZAG
    most, most_headers = budget, budget
    if wire is not None:
        most, most_headers = min(budget, MAX_RECORD_RATE * wire), min(budget, MAX_HEADER_RATE * wire)
    headers_left = most_headers
    begin = start = position
    try:
        for _ in repeat(None, most):
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
    if records and not context.telling:
        context.telling = _may_tell(records)
    if (
        position == end
        and headers_left == most_headers
        and append_timestamp is None
        and 0 <= base_offset | base_timestamp < _NO_WRAP
    ):
        # As nearly always: what follows would change nothing.
        return records, True, budget - len(records)
    if position > end:
        records.pop()
        position = _MALFORMED
    if headers_left != most_headers:
        _look_at_headers(records, context, begin if batch_position is None else batch_position)
    if append_timestamp is not None:
        for record in records:
            record["timestamp"] = append_timestamp
    if base_offset > _NO_WRAP or base_offset < -_NO_WRAP or base_timestamp > _NO_WRAP or base_timestamp < -_NO_WRAP:
        for record in records:
            record["offset"] = wrap64(record["offset"])
            record["timestamp"] = wrap64(record["timestamp"])
    place = start if batch_position is None else batch_position
    left = max(budget - max(len(records), most_headers - headers_left), 0)
    if headers_left < 0 or 0 <= position < end:
        reached = most_headers if headers_left < 0 else most
        if reached < budget:
            detail = f"more than {reached} {'headers' if headers_left < 0 else 'records'} in a batch of {wire} bytes"
            context.problem("record-bound", detail, place)
            return records, False, left
        context.problem("record-bound", too_many_records(context), place)
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
    """Tell of keys of headers that are not UTF-8, which the loop leaves as bytes, and of schema and trace ids there."""
    for index, record in enumerate(records):
        for header in record["headers"]:
            if header["key"] in SCHEMA_HEADERS:
                add_from_header(record, header)
            elif header["key"] in TRACE_HEADERS:
                add_trace_id(record, header)
            elif isinstance(header["key"], bytes):
                context.problem(
                    "string-not-utf8", f"a header key of record {index} of the batch is not UTF-8", position
                )


def _may_tell(records: list[dict[str, Any]]) -> bool:
    """Whether interpreters may add something to these records.

    That is so where the framing of a schema registry may be in front of the first or the last key or value, and where a
    key may begin like one of Kafka Connect's. Hot: most records are looked at here and nowhere else.
    """
    first = records[0]
    key, value = first["key"], first["value"]
    if (key and not key[0]) or (value and not value[0]):
        return True
    if len(records) > 1:
        last = records[-1]
        key, value = last["key"], last["value"]
        if (key and not key[0]) or (value and not value[0]):
            return True
        # Searching all keys at once takes half of the time that looking at each does. They are a part of the batch.
        key = b"".join(filter(None, map(_key, records)))
    if key:
        for mark in CONNECT_KEYS:
            if mark in key:
                return True
    return False


def too_many_records(context: DecodeContext) -> str:
    """What to say where a message has more records, or headers of them, than may be."""
    return f"more than {context.options.max_records} records or headers in one message (see --memory)"


def wrap64(value: int) -> int:
    """`value` as Java's long holds it: sums of hostile fields must stay 64-bit integers in every output."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
