"""`records` fields: framing is kept, and keys, values and header values if they may be shown.

The decoded field decides: whatever is `{"redacted": N}` there is blank here. Bytes of a compressed batch cannot be
separated, so it is kept or blanked as a whole. After the last whole batch only the beginning of a header is shown.

A checksum reveals something about its data. So if anything is blanked, a right checksum is recomputed, and a wrong one
stays wrong: 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from isal import isal_zlib

from kafkasniff.kafka.records.checksum import crc32c
from kafkasniff.kafka.records.record_batch import HEADER_SIZE, Batch
from kafkasniff.kafka.records.record_list import MalformedError, read_varint
from kafkasniff.kafka.records.record_sets import find_batches
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.redact.copied import Copied

__all__ = ["keep_records"]

_ENTRY: Final = 12
"""Bytes before those that a batch's length counts: offset and length."""
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_COMMON_SIZE: Final = 17
"""Up to the magic all formats are alike."""
_CRC_AT: Final = 17
_CRC_START: Final = 21
_ATTRIBUTES_AT: Final = 21
_OLD_CRC_AT: Final = 12
_OLD_CRC_START: Final = 16
_OLD_HEADS: Final = (18, 26)
"""Bytes of a message in front of its key, by magic."""
_CODEC: Final = 7


class _Hidden(NamedTuple):
    """The parts of a record that may not be shown."""

    key: bool
    value: bool
    headers: bool

    @property
    def any(self) -> bool:
        return self.key or self.value or self.headers


def keep_records(copied: Copied, start: int, end: int, field: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """Keep the visible parts of the `records` field `copied.data[start:end]`.

    `field` is the decoded field with its records; `payload`: that may be shown. `sure`: Kafka's own records were
    interpreted to the last byte; otherwise they are ordinary payload, and compressed ones are not shown at all.
    """
    first = start + field.get("leading_bytes", 0)
    flaws = DecodeContext(DecodeOptions(records="skip"))
    places, left = find_batches(copied.data, first, end, flaws)
    batches = field["batches"]
    if len(places) != len(batches):
        return
    for (position, stop, magic), batch in zip(places, batches, strict=True):
        if magic == 2:
            _batch(copied, position, stop, batch, payload=payload, sure=sure)
        else:
            _message(copied, position, stop, batch, payload=payload, sure=sure)
    _tail(copied, end - left, end, whole=not flaws.problems)


def _tail(copied: Copied, start: int, end: int, *, whole: bool) -> None:
    """The bytes after the last whole batch; `whole`: the beginning of another one, otherwise anything."""
    size, data = end - start, copied.data
    if size < _COMMON_SIZE or not whole:
        # Enough to cause the same problem, or none, again.
        if size >= _ENTRY:
            copied.keep(start + _LENGTH_AT, start + _ENTRY)
        if size >= _COMMON_SIZE:
            copied.keep(start + _MAGIC_AT, start + _COMMON_SIZE)
        return
    magic = data[start + _MAGIC_AT]
    head = HEADER_SIZE if magic == 2 else _OLD_HEADS[magic]
    copied.keep(start, min(start + head, end))
    crc = start + (_CRC_AT if magic == 2 else _OLD_CRC_AT)
    copied.hide(min(crc, end), min(crc + 4, end), 0)


def _batch(copied: Copied, position: int, stop: int, batch: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """A batch of magic 2."""
    data, start = copied.data, position + HEADER_SIZE
    copied.keep(position, start)
    records = batch.get("records") or []
    hidden = [_hidden(record, batch, payload=payload, sure=sure) for record in records]
    if data[position + _ATTRIBUTES_AT + 1] & _CODEC:
        read = isinstance(batch, Batch) and batch.uncompressed is not None and len(records) == batch["record_count"]
        if read and sure and not any(one.any for one in hidden):
            copied.keep(start, stop)
    else:
        for record, one in zip(records, hidden, strict=True):
            after = _record(copied, start, stop, record, one)
            if after is None:
                break
            start = after
    if copied.differs(position, stop):
        crc = crc32c(copied.part(position + _CRC_START, stop))
        copied.put(position + _CRC_AT, _checksum(crc, right=batch["crc_ok"]))


def _message(copied: Copied, position: int, stop: int, batch: dict[str, Any], *, payload: bool, sure: bool) -> None:
    """An outermost message of magic 0 or 1."""
    data, magic = copied.data, copied.data[position + _MAGIC_AT]
    cursor = position + _OLD_HEADS[magic]
    copied.keep(position, min(cursor, stop))
    records = batch.get("records") or []
    hidden = [_hidden(record, batch, payload=payload, sure=sure) for record in records]
    if data[position + _CRC_AT] & _CODEC:
        shown = bool(records) and batch["record_count"] is not None and not any(one.any for one in hidden)
        shows = (shown and sure,) * 2
    else:
        shows = (not hidden[0].key, not hidden[0].value) if len(hidden) == 1 else (False, False)
    for show in shows:
        if cursor + 4 > stop:
            break
        length = int.from_bytes(data[cursor : cursor + 4], "big", signed=True)
        copied.keep(cursor, cursor + 4)
        cursor += 4
        if length > stop - cursor or length < -1:
            break
        field_end = cursor + max(length, 0)
        if show:
            copied.keep(cursor, field_end)
        cursor = field_end
    if copied.differs(position, stop):
        crc = isal_zlib.crc32(copied.part(position + _OLD_CRC_START, stop))
        copied.put(position + _OLD_CRC_AT, _checksum(crc, right=batch["crc_ok"]))


def _checksum(crc: int, *, right: bool) -> bytes:
    """A right checksum, or a wrong one."""
    return (crc if right else int(crc == 0)).to_bytes(4, "big")


def _hidden(record: dict[str, Any], batch: dict[str, Any], *, payload: bool, sure: bool) -> _Hidden:
    """The parts of a record that may not be shown. Kafka's own records are not payload, if they could be read."""
    key, value = isinstance(record["key"], dict), isinstance(record["value"], dict)
    if not payload:
        control = record.get("_control")
        if not (batch.get("control") and control is not None and control["value"] is not None):
            key = key or not sure or "type" not in (record.get("_key") or ())
            value = value or not sure or "type" not in (record.get("_value") or ())
        return _Hidden(key, value, True)
    return _Hidden(key, value, False)


def _record(copied: Copied, start: int, end: int, record: dict[str, Any], hidden: _Hidden) -> int | None:
    """Keep the visible parts of the record at `start`; returns the position after it, None if it cannot be read."""
    try:
        stop, fields = _fields(copied.data, start)
    except (IndexError, MalformedError):
        return None
    if stop > end:
        return None
    (key, value), headers = fields[:2], fields[2:]
    withheld = len(headers) != 2 * len(record.get("headers") or ())
    copied.keep(start, stop)
    if hidden.key:
        copied.hide(*key)
    if hidden.value:
        copied.hide(*value)
    for number, place in enumerate(headers):
        if withheld or (hidden.headers and number % 2):
            copied.hide(*place)
    return stop


def _fields(data: bytes, start: int) -> tuple[int, list[tuple[int, int]]]:
    """The end of the record at `start`, and the places of its key, its value, and key and value of each header.

    Null is an empty place. Raises IndexError and MalformedError if invalid.
    """
    length, position = _number(data, start, 5)
    stop = position + length
    position += 1
    for size in (10, 5):
        _, position = _number(data, position, size)
    places: list[tuple[int, int]] = []

    def field() -> None:
        nonlocal position
        length, begin = _number(data, position, 5)
        position = begin + max(length, 0)
        if position > stop:
            raise MalformedError
        places.append((begin, position))

    field()
    field()
    count, position = _number(data, position, 5)
    for _ in _counted(count, stop - position):
        field()
        field()
    if position != stop:
        raise MalformedError
    return stop, places


def _counted(count: int, room: int) -> Iterator[int]:
    # A header takes at least two bytes.
    if not 0 <= count <= room // 2:
        raise MalformedError
    return iter(range(count))


def _number(data: bytes, position: int, size: int) -> tuple[int, int]:
    value, position = read_varint(data, position, size)
    return value >> 1 ^ -(value & 1), position
