"""The bytes of a few Kafka messages, written field by field from the protocol's tables, as whole frames. Nothing of
kafkasniff is used, so that its decoder is not tested against itself."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Sequence

import crc32c

API_VERSIONS = 18
FETCH = 1
METADATA = 3
PRODUCE = 0


int8, int16, int32, int64 = (struct.Struct(f">{form}").pack for form in "bhiq")


def string(value: str | None) -> bytes:
    if value is None:
        return int16(-1)
    data = value.encode()
    return int16(len(data)) + data


def array(items: Sequence[bytes]) -> bytes:
    return int32(len(items)) + b"".join(items)


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag, as in records."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_array(items: Sequence[bytes]) -> bytes:
    return unsigned_varint(len(items) + 1) + b"".join(items)


NO_TAGS = b"\0"


def frame(message: bytes) -> bytes:
    return int32(len(message)) + message


def request(
    api_key: int,
    version: int,
    correlation_id: int,
    body: bytes,
    *,
    client_id: str | None = "crafted",
    flexible: bool = False,
) -> bytes:
    header = int16(api_key) + int16(version) + int32(correlation_id) + string(client_id)
    return frame(header + (NO_TAGS if flexible else b"") + body)


def response(correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    return frame(int32(correlation_id) + (NO_TAGS if flexible else b"") + body)


def api_versions_request(correlation_id: int, version: int = 0, software: tuple[str, str] = ("craft", "1.0")) -> bytes:
    if version < 3:
        return request(API_VERSIONS, version, correlation_id, b"")
    body = compact_string(software[0]) + compact_string(software[1]) + NO_TAGS
    return request(API_VERSIONS, version, correlation_id, body, flexible=True)


def api_versions_response(
    correlation_id: int,
    version: int = 0,
    ranges: Sequence[tuple[int, int, int]] = ((0, 0, 9), (1, 0, 12), (3, 0, 9), (18, 0, 3)),
    error: int = 0,
) -> bytes:
    """`ranges`: (API key, lowest version, highest version). The header is version 0 in every version."""
    entries = [struct.pack(">hhh", *entry) for entry in ranges]
    if version < 3:
        throttle = int32(0) if version >= 1 else b""
        return response(correlation_id, int16(error) + array(entries) + throttle)
    body = int16(error) + compact_array([entry + NO_TAGS for entry in entries]) + int32(0) + NO_TAGS
    return response(correlation_id, body)


def metadata_request(correlation_id: int, topics: Sequence[str] | None) -> bytes:
    """Version 1."""
    body = int32(-1) if topics is None else array([string(topic) for topic in topics])
    return request(METADATA, 1, correlation_id, body)


def metadata_response(correlation_id: int, host: str, port: int, topics: Sequence[str], partitions: int = 1) -> bytes:
    """Version 1: one broker, number 0, that leads everything."""
    brokers = array([int32(0) + string(host) + int32(port) + string(None)])
    partition = [
        int16(0) + int32(index) + int32(0) + array([int32(0)]) + array([int32(0)]) for index in range(partitions)
    ]
    entries = [int16(0) + string(topic) + b"\0" + array(partition) for topic in topics]
    return response(correlation_id, brokers + int32(0) + array(entries))


def record(
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]] = (),
    timestamp_delta: int = 0,
) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = int8(0) + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value) + varint(len(headers))
    for name, data in headers:
        body += varint(len(name.encode())) + name.encode() + sized(data)
    return varint(len(body)) + body


def record_batch(
    records: Sequence[bytes],
    base_offset: int = 0,
    *,
    timestamp_ms: int = 1_781_000_000_000,
    compressed: bool = False,
    packed: bytes | None = None,
) -> bytes:
    """A record batch of magic 2; `compressed` with gzip; `packed`: its records as they claim to be compressed."""
    data = b"".join(records)
    compressed = compressed or packed is not None
    if compressed:
        data = gzip.compress(data, mtime=0) if packed is None else packed
    checked = struct.pack(
        ">hiqqqhii", int(compressed), len(records) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(records)
    )
    checked += data
    rest = int32(0) + int8(2) + struct.pack(">I", crc32c.crc32c(checked)) + checked
    return int64(base_offset) + int32(len(rest)) + rest


def produce_request(
    correlation_id: int, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 3
) -> bytes:
    """Versions 3 to 8, and 9 (flexible)."""
    if version < 9:
        body = string(None) + int16(acks) + int32(30_000)
        body += array([string(topic) + array([int32(partition) + int32(len(batch)) + batch])])
        return request(PRODUCE, version, correlation_id, body)
    body = compact_string(None) + int16(acks) + int32(30_000)
    data = int32(partition) + unsigned_varint(len(batch) + 1) + batch + NO_TAGS
    body += compact_array([compact_string(topic) + compact_array([data]) + NO_TAGS]) + NO_TAGS
    return request(PRODUCE, version, correlation_id, body, flexible=True)


def produce_response(
    correlation_id: int, topic: str, offset: int, *, partition: int = 0, error: int = 0, version: int = 3
) -> bytes:
    """Versions 3 and 4 (no log start offset), and 9 (flexible)."""
    entry = int32(partition) + int16(error) + int64(offset) + int64(-1)
    if version < 5:
        return response(correlation_id, array([string(topic) + array([entry])]) + int32(0))
    entry += int64(0) + compact_array([]) + compact_string(None) + NO_TAGS
    body = compact_array([compact_string(topic) + compact_array([entry]) + NO_TAGS]) + int32(0) + NO_TAGS
    return response(correlation_id, body, flexible=True)


def fetch_request(correlation_id: int, topic: str, offset: int, *, partition: int = 0) -> bytes:
    """Version 4."""
    body = int32(-1) + int32(500) + int32(1) + int32(52_428_800) + int8(0)
    body += array([string(topic) + array([int32(partition) + int64(offset) + int32(1_048_576)])])
    return request(FETCH, 4, correlation_id, body)


def fetch_response(
    correlation_id: int, topic: str, batch: bytes, high_watermark: int, *, partition: int = 0, error: int = 0
) -> bytes:
    """Version 4."""
    entry = int32(partition) + int16(error) + int64(high_watermark) * 2 + int32(-1) + int32(len(batch))
    return response(correlation_id, int32(0) + array([string(topic) + array([entry + batch])]))


# -- versions that name topics by id (KIP-516), all flexible; ids are 16 bytes

NO_ID = bytes(16)


def metadata_request_by_id(correlation_id: int, topics: Sequence[tuple[bytes, str | None]]) -> bytes:
    """Version 12; `topics`: (id, name), one of them missing (`NO_ID`, None)."""
    entries = [topic_id + compact_string(name) + NO_TAGS for topic_id, name in topics]
    return request(METADATA, 12, correlation_id, compact_array(entries) + b"\1\0" + NO_TAGS, flexible=True)


def metadata_response_with_ids(
    correlation_id: int, topics: Sequence[tuple[bytes, str | None]], brokers: Sequence[tuple[int, str, int]] = ()
) -> bytes:
    """Version 12; `brokers`: (number, host, port); each topic has one partition, led by broker 1."""
    rack = compact_string("rack-a") + NO_TAGS
    nodes = [int32(number) + compact_string(host) + int32(port) + rack for number, host, port in brokers]
    partition = int16(0) + int32(0) + int32(1) + int32(0) + compact_array([int32(1)]) * 2 + compact_array([]) + NO_TAGS
    rest = b"\0" + compact_array([partition]) + int32(-(2**31)) + NO_TAGS
    entries = [int16(100 if name is None else 0) + compact_string(name) + topic_id + rest for topic_id, name in topics]
    body = int32(0) + compact_array(nodes) + compact_string("crafted") + int32(1) + compact_array(entries) + NO_TAGS
    return response(correlation_id, body, flexible=True)


def _of_topics(topics: Iterable[tuple[bytes, Iterable[bytes]]]) -> bytes:
    """Ids of topics and their partitions."""
    return compact_array([topic_id + compact_array([*partitions]) + NO_TAGS for topic_id, partitions in topics])


def fetch_request_by_id(
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[int]]] = (),
    *,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = (),
) -> bytes:
    """Version 13; `topics`, `forgotten`: (id, partitions); `session`: id and epoch."""
    rest = int32(0) + int64(7) + int32(-1) + int64(-1) + int32(1_048_576) + NO_TAGS
    body = int32(-1) + int32(500) + int32(1) + int32(52_428_800) + int8(0) + int32(session[0]) + int32(session[1])
    body += _of_topics((one, [int32(number) + rest for number in numbers]) for one, numbers in topics)
    body += _of_topics((one, map(int32, numbers)) for one, numbers in forgotten) + compact_string("") + NO_TAGS
    return request(FETCH, 13, correlation_id, body, flexible=True)


def fetch_response_by_id(
    correlation_id: int,
    topics: Sequence[tuple[bytes, int, bytes]] = (),
    *,
    session: int = 0,
    error: int = 0,
    partition_error: int = 0,
) -> bytes:
    """Version 13; `topics`: (id, partition, records)."""

    def partition(number: int, records: bytes) -> bytes:
        head = int32(number) + int16(partition_error) + int64(9) * 2 + int64(0) + b"\0" + int32(-1)
        return head + unsigned_varint(len(records) + 1) + records + NO_TAGS

    body = int32(0) + int16(error) + int32(session)
    body += _of_topics((one, [partition(number, records)]) for one, number, records in topics) + NO_TAGS
    return response(correlation_id, body, flexible=True)
