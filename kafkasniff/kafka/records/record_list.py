"""The records of a batch of magic 2, one by one (`org.apache.kafka.common.record.DefaultRecord`).

The native kernel decodes flawless ones (`schema.packed`). All others are decoded here, with every step checked: this
is the specification.

Control batches have control records. The key is int16 version + int16 type
(`org.apache.kafka.common.record.ControlRecordType`); the value has a schema per type, in
`dissectors/records/control.txt`.

Up to 2.8 (KRaft's early access), LEADER_CHANGE was type 3, and its value had no version; from 3.0 on it is 2, and 3 is
SNAPSHOT_HEADER. The keys do not differ, so the value has to decide.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkasniff.kafka.schema.codes import enum_text
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.kafka.schema.packed import read_record_list, with_header_facts
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.native.caller import ControlType, Program
from kafkasniff.native.library import Base, Kernel

MAX_RECORD_RATE: Final = 4
"""Records per byte of their batch on the wire. Writers number the records of a batch, so no two are equal: empty ones
compress to 0.6 bytes each at best (zstd 3; gzip 1.4). A million equal records compress to a kilobyte, but no writer
makes them."""

MAX_HEADER_RATE: Final = 16
"""Headers of records per byte of their batch on the wire. They may all be equal: that allows nine for each record of
the smallest size."""

_ANY_WIRE: Final = 1 << 60
"""Size of an unknown batch."""


class MalformedError(ValueError):
    """A varint with more bytes than its type allows."""


class FlawError(Exception):
    """A malformed record."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(detail)
        self.position = position
        self.detail = detail


class _TooManyHeadersError(Exception):
    """A record with more headers than allowed; never leaves this module."""


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
    """Decode the records in `data[position:end]`.

    `append_timestamp` (ms) is that of all records if the broker set it. `batch_position` is the position for problems
    if `data` was decompressed. At most `budget` records and as many headers are decoded, and if the batch takes `wire`
    bytes on the wire, no more than these allow. Returns the records, whether they were decoded to the end (decoding
    stops at a malformed one), and the rest of the budget.
    """
    base = Base(
        base_offset,
        base_timestamp,
        append_timestamp or 0,
        append_timestamp is not None,
        _ANY_WIRE if wire is None else wire,
    )
    found = read_record_list(data, position, end, base, budget=budget, most=context.options.max_decompressed)
    if found is not None:
        records, count, may_report_more = found
        context.interpretable |= may_report_more
        return records, True, budget - count
    reader = _RecordDecoder(data, base, budget)
    place = reader.read(position, end)
    if reader.records and not context.interpretable:
        context.interpretable = _may_report_more(reader.records)
    _look_at_headers(reader.records, context, position if batch_position is None else batch_position)
    _report(reader, place, context, batch_position, wire)
    exhausted = reader.exceeded == budget
    left = 0 if exhausted else max(budget - max(len(reader.records), reader.headers), 0)
    return reader.records, reader.flaw is None and reader.exceeded is None, left


class _RecordDecoder:
    """Decodes records up to the first that is malformed, or beyond a bound."""

    def __init__(self, data: bytes, base: Base, budget: int) -> None:
        self.data = data
        self.base = base
        self.records: list[dict[str, Any]] = []
        self.headers = 0
        """Headers of all records, including those that were not decoded."""
        self.flaw: FlawError | None = None
        self.exceeded: int | None = None
        """The exceeded bound."""
        self.exceeds = "records"
        self.budget = budget
        self.most = min(budget, MAX_RECORD_RATE * base.wire)
        self.most_headers = min(budget, MAX_HEADER_RATE * base.wire)

    def read(self, position: int, end: int) -> int:
        """Decode `data[position:end]`; returns where the record begins at which decoding ended."""
        while position < end:
            if len(self.records) == self.most:
                self.exceeded = self.most
                break
            try:
                record, position = _read_record(self.data, position, end, self.headers_allowed)
            except FlawError as flaw:
                self.flaw = flaw
                break
            except _TooManyHeadersError:
                self.exceeded, self.exceeds = self.most_headers, "headers"
                break
            record["offset"] = wrap64(self.base.offset + record["offset"])
            timestamp = self.base.append if self.base.appends else self.base.timestamp + record["timestamp"]
            record["timestamp"] = wrap64(timestamp)
            self.records.append(record)
        return position

    def headers_allowed(self, count: int) -> bool:
        """Count headers; returns whether they are allowed."""
        self.headers += count
        return bool(self.headers <= self.most_headers)


def _report(
    reader: _RecordDecoder, place: int, context: DecodeContext, batch_position: int | None, wire: int | None
) -> None:
    """Report why decoding ended."""
    shown = place if batch_position is None else batch_position
    if reader.exceeded is not None:
        detail = too_many_records(context)
        if reader.exceeded < reader.budget:
            detail = f"more than {reader.exceeded} {reader.exceeds} in a batch of {wire} bytes"
        context.problem("record-bound", detail, shown)
    elif reader.flaw is not None:
        at, detail = reader.flaw.position, f"record {len(reader.records)} of the batch: {reader.flaw.detail}"
        if batch_position is None:
            shown = at
        else:
            detail += f" (at byte {at} of the decompressed records)"
        context.problem("record-malformed", detail, shown)


def read_varint(data: bytes, position: int, size: int) -> tuple[int, int]:
    """Unsigned varint of at most `size` bytes; raises IndexError past the end, MalformedError if it does not end."""
    value = shift = 0
    for index in range(position, position + size):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            # 5 bytes carry 35 bits and 10 carry 70: Java drops the excess bits.
            return value & (0xFFFFFFFF if size == 5 else 0xFFFFFFFFFFFFFFFF), index + 1
        shift += 7
    raise MalformedError


class RecordCursor:
    """Decodes the fields of one record, which ends at `stop`; raises FlawError."""

    def __init__(self, data: bytes, position: int, stop: int) -> None:
        self.data = data
        self.position = position
        self.stop = stop

    def number(self, name: str, size: int) -> int:
        """A zigzag varint of at most `size` bytes."""
        try:
            value, after = read_varint(self.data, self.position, size)
        except MalformedError:
            raise FlawError(self.position, f"{name} is a varint of more than {size} bytes") from None
        except IndexError:
            raise FlawError(self.position, f"{name} is truncated") from None
        if after > self.stop:
            raise FlawError(self.position, f"{name} is truncated")
        self.position = after
        return value >> 1 ^ -(value & 1)

    def field(self, name: str) -> bytes | None:
        """Bytes after their length; None for -1."""
        at = self.position
        length = self.number(f"the length of {name}", 5)
        if length < -1:
            raise FlawError(at, f"{name} has the length {length}")
        return None if length < 0 else self.take(name, length)

    def header_key(self, name: str) -> str | bytes:
        """A key of a header, which is never null; bytes if it is not UTF-8."""
        at = self.position
        length = self.number(f"the length of {name}", 5)
        if length < 0:
            raise FlawError(at, f"{name} has the length {length}")
        raw = self.take(name, length)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def take(self, name: str, length: int) -> bytes:
        """The next bytes."""
        left = self.stop - self.position
        if length > left:
            raise FlawError(self.position, f"{name} of {length} bytes, but {left} are left")
        begin, self.position = self.position, self.position + length
        return self.data[begin : self.position]


def _read_record(
    data: bytes, start: int, end: int, headers_allowed: Callable[[int], bool]
) -> tuple[dict[str, Any], int]:
    """The record at `start`, whose timestamp and offset are deltas, and the position after it.

    Raises FlawError, and _TooManyHeadersError if `headers_allowed` refuses its number of headers.
    """
    cursor = RecordCursor(data, start, end)
    length = cursor.number("its length", 5)
    if length < 0 or length > end - cursor.position:
        left = end - cursor.position
        raise FlawError(start, f"its length is {length}, but {left} bytes are left in the batch")
    cursor.stop = cursor.position + length
    if length == 0:
        raise FlawError(start, f"its length is {length}")
    cursor.position += 1  # attributes, none of which is defined
    timestamp = cursor.number("the timestamp delta", 10)
    offset = cursor.number("the offset delta", 5)
    key, value = cursor.field("the key"), cursor.field("the value")
    at = cursor.position
    count = cursor.number("the number of headers", 5)
    if count < 0 or count > (cursor.stop - cursor.position) // 2:
        raise FlawError(at, f"{count} headers, but {cursor.stop - cursor.position} bytes are left")
    if not headers_allowed(count):
        raise _TooManyHeadersError
    headers = [
        {"key": cursor.header_key(f"the key of header {index}"), "value": cursor.field(f"the value of header {index}")}
        for index in range(count)
    ]
    if cursor.position != cursor.stop:
        left = cursor.stop - cursor.position
        raise FlawError(cursor.position, f"{left} surplus bytes after its fields")
    record = {"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": headers}
    return record, cursor.position


def _look_at_headers(records: list[dict[str, Any]], context: DecodeContext, position: int) -> None:
    """Decode schema and trace ids in headers, and report keys that are not UTF-8."""
    for index, record in enumerate(records):
        with_header_facts(record)
        for header in record["headers"]:
            if isinstance(header["key"], bytes):
                detail = f"a header key of record {index} of the batch is not UTF-8"
                context.problem("string-not-utf8", detail, position)


def _may_report_more(records: list[dict[str, Any]]) -> bool:
    """Whether interpreters may add something to these records.

    That is so if the framing of a schema registry may precede the first or the last key or value, or if a key may
    begin like one of Kafka Connect's.
    """
    ends = [record[name] for record in (records[0], records[-1]) for name in ("key", "value")]
    keys = [record["key"] for record in records if record["key"]]
    return any(value and not value[0] for value in ends) or any(mark in key for key in keys for mark in CONNECT_KEYS)


def too_many_records(context: DecodeContext) -> str:
    """The problem text for a message with more records, or headers of them, than allowed."""
    return f"more than {context.options.max_records} records or headers in one message (see --memory)"


def wrap64(value: int) -> int:
    """`value` as Java's long holds it: sums of hostile fields must stay 64-bit integers in every output."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


_END_TXN_MARKER: Final = "EndTxnMarker"
VALUE_SCHEMAS: Final = {
    0: _END_TXN_MARKER,
    1: _END_TXN_MARKER,
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
"""Names of the schemas of the values, by type."""

_LEADER_CHANGE: Final = 2
_SNAPSHOT_HEADER: Final = 3
_NO_VERSION: Final = bytes(2)

_KEY: Final = struct.Struct(">hh")


def control_record(
    key: bytes | None, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """The content of a control record: `{"version", "type", "name", "value"}`; None if the key is too short.

    `version` and `type` are the key's; `name` is None for an unknown type; `value` is None if it cannot be decoded (the
    record's own `value` has its bytes). Fields that a newer version appends to the key are ignored, as in Kafka's
    `ControlRecordType.parseTypeId`. Problems go to `context`, at `position`.
    """
    if key is None or len(key) < _KEY.size:
        context.problem("control-record", f"a control record with a key of {len(key or b'')} bytes", position)
        return None
    version, control_type = _KEY.unpack_from(key)
    meant, read = control_type, None
    if control_type == _SNAPSHOT_HEADER and value is not None:
        read = _early_leader_change(value, context)
        meant = control_type if read is None else _LEADER_CHANGE
    return {
        "version": version,
        "type": control_type,
        "name": enum_text("control_record_type", meant),
        "value": control_value(control_type, value, context, position) if read is None else read,
    }


def _early_leader_change(value: bytes, context: DecodeContext) -> dict[str, Any] | None:
    """Fields of a value of type 3 that is exactly a LEADER_CHANGE of 2.8, and not a SNAPSHOT_HEADER; else None.

    Without the version the two differ in length and in the following fields: a header has 11 bytes, unless it has tags
    that do not exist yet.
    """
    early, later = DecodeContext(context.options), DecodeContext(context.options)
    read = control_value(_LEADER_CHANGE, _NO_VERSION + value, early, 0)
    if read is None or early.problems:
        return None
    if control_value(_SNAPSHOT_HEADER, value, later, 0) is not None and not later.problems:
        return None
    del read["version"]  # it is not on the wire
    return read


def control_value(
    control_type: int, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """Fields of a control record's value by the schema of its type, `version` first; None if it cannot be decoded.

    All begin with an int16 version: EndTxnMarker before its fields, the others as their first field. A newer
    EndTxnMarker is decoded as version 0, whose field it must keep (`EndTransactionMarker.deserialize`).
    """
    name = VALUE_SCHEMAS.get(control_type)
    if name is None or value is None:
        return None
    version = int.from_bytes(value[:2], "big", signed=True)
    schema = data_schema(name, 0 if name == _END_TXN_MARKER else version)
    if schema is None:
        context.problem("control-record", f"unknown version {version} of {name}", position)
        return None
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(context.options)
    start = 2 if name == _END_TXN_MARKER else 0
    read = schema.read(value, start, len(value), inside)
    for problem in inside.problems:
        context.problem("control-record", f"{name}: {problem.detail}", position)
    if not read.complete:
        return None
    if read.position < len(value) and (start == 0 or version == 0):
        left = len(value) - read.position
        context.problem("control-record", f"{left} surplus bytes after a {name}", position)
    return {"version": version, **read.body}


@functools.cache
def control_types(kernel: Kernel) -> Sequence[ControlType]:
    """What the kernel reads control records by; Python reads unknown types, and reports what is wrong."""
    found: list[ControlType] = []
    for number, name in VALUE_SCHEMAS.items():
        fronted = name == _END_TXN_MARKER
        text = enum_text("control_record_type", number)
        assert text is not None
        versions = data_definitions()[name].message.versions
        for version in (0,) if fronted else range(versions.low, versions.high + 1):
            schema = data_schema(name, version)
            assert schema is not None
            found.append(ControlType(number, version, fronted, text.encode(), Program(kernel, program_of(schema.root))))
    return found
