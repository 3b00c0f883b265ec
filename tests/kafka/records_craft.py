"""An encoder of batches and message sets, from the formats and independent of the decoder, and a call of that one."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import cramjam
import crc32c
import lz4.frame
import zstandard

from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import MAX_RECORDS, DecodeContext, DecodeOptions
from tests.craft.kafka_bytes import varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TIME = 1_781_000_000_000
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def xerial(data: bytes, block: int = 32 << 10) -> bytes:
    out = XERIAL_HEADER
    for start in range(0, len(data), block):
        piece = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        out += struct.pack(">i", len(piece)) + piece
    return out


def zstd(data: bytes) -> bytes:
    """As zstd-jni's stream writes it: without the content size."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: lambda data: gzip.compress(data, mtime=0),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    LZ4: lz4.frame.compress,
    ZSTD: zstd,
}


class Record(NamedTuple):
    offset: int
    """Delta."""
    timestamp: int
    """Delta."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(record: Record) -> bytes:
    body = b"\0" + varint(record.timestamp) + varint(record.offset) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers))
    return body + b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)


def record(record: Record) -> bytes:
    body = record_body(record)
    return varint(len(body)) + body


def batch(
    payload: bytes,
    count: int,
    *,
    attributes: int = 0,
    base_offset: int = 0,
    base_timestamp: int = TIME,
    max_timestamp: int = TIME,
    last_offset_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    epoch: int = 0,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """A batch of magic 2 around records as they are (the codec bits in `attributes` do not compress)."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    checked = struct.pack(">hiqqqhii", attributes, last, base_timestamp, max_timestamp, *producer, count) + payload
    found = crc32c.crc32c(checked) if crc is None else crc
    rest = struct.pack(">ibI", epoch, 2, found) + checked
    return struct.pack(">qi", base_offset, len(rest) if length is None else length) + rest


def batch_of(records: Sequence[Record], codec: int = NONE, *, attributes: int = 0, base_offset: int = 0) -> bytes:
    payload = COMPRESSORS[codec](b"".join(map(record, records)))
    return batch(payload, len(records), attributes=attributes | codec, base_offset=base_offset)


def int32_sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = TIME,
    crc: int | None = None,
) -> bytes:
    checked = struct.pack(">bB", magic, attributes)
    if magic == 1:
        checked += struct.pack(">q", timestamp)
    checked += int32_sized(key) + int32_sized(value)
    found = zlib.crc32(checked) if crc is None else crc
    return struct.pack(">qiI", offset, len(checked) + 4, found) + checked


def wrapper(
    offset: int,
    inner: Iterable[bytes],
    codec: int = GZIP,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = TIME,
) -> bytes:
    value = COMPRESSORS[codec](b"".join(inner))
    return message(offset, None, value, magic=magic, attributes=attributes | codec, timestamp=timestamp)


def context(
    records: str = "full", *, max_decompressed: int = 16 << 20, max_records: int = MAX_RECORDS, base: int = 0
) -> DecodeContext:
    options = DecodeOptions(records=records, max_decompressed=max_decompressed, max_records=max_records)
    return DecodeContext(options, base)


def decode(data: bytes, **options: Any) -> tuple[dict[str, Any], DecodeContext]:
    """The decoder's result for a whole field, and the context with its problems."""
    where = context(**options)
    return decode_records(data, 0, len(data), where), where


def kinds(where: DecodeContext) -> list[str]:
    return [problem.kind for problem in where.problems]
