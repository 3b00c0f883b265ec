"""Fetch and FetchSnapshot responses around records of the metadata log, written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kafkasniff.kafka.messages.message import Decoded, decode_response
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.craft.kafka_bytes import NO_TAGS, compact_array, compact_string, unsigned_varint
from tests.kafka.records_craft import Record, batch_of

METADATA_ID = bytes(15) + b"\x01"
OTHER_ID = bytes(range(16))
NAME = "__cluster_metadata"


def framed(record_type: int, version: int, body: bytes) -> bytes:
    """A record's value: frame version 1, type, version, body."""
    return b"\x01" + unsigned_varint(record_type) + unsigned_varint(version) + body


def log(*values: bytes | None, codec: int = 0, attributes: int = 0) -> bytes:
    """A batch of records with these values, at offsets from 0."""
    records = [Record(offset, 0, None, value) for offset, value in enumerate(values)]
    return batch_of(records, codec, attributes=attributes)


def compact_bytes(data: bytes) -> bytes:
    return unsigned_varint(len(data) + 1) + data


def fetch_response(records: bytes, *, version: int = 17, topic: bytes | str = METADATA_ID) -> bytes:
    """Version 12 names the topic, 13 and up have its id."""
    partition = struct.pack(">ihqqq", 0, 0, 1, 1, 0) + b"\x00" + struct.pack(">i", -1) + compact_bytes(records)
    name = compact_string(topic) if isinstance(topic, str) else topic
    topics = compact_array([name + compact_array([partition + NO_TAGS]) + NO_TAGS])
    return struct.pack(">i", 7) + NO_TAGS + struct.pack(">ihi", 0, 0, 0) + topics + NO_TAGS


def snapshot_response(piece: bytes, *, position: int = 0) -> bytes:
    """Version 0."""
    partition = struct.pack(">ih", 0, 0) + struct.pack(">qi", 10, 3) + NO_TAGS
    partition += struct.pack(">qq", 1 << 20, position) + compact_bytes(piece) + NO_TAGS
    topics = compact_array([compact_string(NAME) + compact_array([partition]) + NO_TAGS])
    return struct.pack(">i", 7) + NO_TAGS + struct.pack(">ih", 0, 0) + topics + NO_TAGS


def fetched(
    data: bytes, version: int = 17, options: DecodeOptions | None = None, *, key: int = 1
) -> tuple[Decoded, dict[str, Any]]:
    """The decoded response, and the `records` value of its only partition."""
    decoded = decode_response(data, 0, len(data), key, version, options or DecodeOptions())
    assert decoded.body is not None
    if key == 1:
        return decoded, decoded.body["responses"][0]["partitions"][0]["records"]
    return decoded, decoded.body["topics"][0]["partitions"][0]["unaligned_records"]


def records_of(value: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [record for batch in value["batches"] for record in batch["records"]]
