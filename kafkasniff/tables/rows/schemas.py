"""The tables' Arrow schemas. Their columns are documented in `docs/tables.md`, which a test compares."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = [
    "CONNECTIONS",
    "EXCHANGES",
    "PARTITION",
    "PROBLEMS",
    "RECORDS",
    "SCHEMA_VERSION",
    "TABLES",
    "TABLE_NAMES",
]

SCHEMA_VERSION: Final = 1
"""Version of the tables. It rises when a column changes meaning or type or is removed, not when one is appended."""


def _array(item: pa.DataType) -> pa.DataType:
    # "element" is the name in Parquet and Spark; Arrow's default "item" would differ after a round trip.
    return pa.list_(pa.field("element", item))


PARTITION: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("error_code", pa.int32()),
        ("error", pa.string()),
        ("offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("record_count", pa.int64()),
        ("batch_count", pa.int32()),
        ("bytes", pa.int64()),
        ("uncompressed_bytes", pa.int64()),
        ("compression", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
    ]
)
"""One element of the column `partitions`."""

EXCHANGES: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("exchange_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_ns", pa.int64()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int32()),
        ("broker_id", pa.int32()),
        ("api_key", pa.int32()),
        ("api", pa.string()),
        ("api_version", pa.int32()),
        ("correlation_id", pa.int32()),
        ("client_id", pa.string()),
        ("software_name", pa.string()),
        ("software_version", pa.string()),
        ("status", pa.string()),
        ("request_size", pa.int64()),
        ("response_size", pa.int64()),
        ("latency_us", pa.int64()),
        ("duration_us", pa.int64()),
        ("throttle_time_ms", pa.int32()),
        ("error_code", pa.int32()),
        ("error", pa.string()),
        ("error_count", pa.int32()),
        ("group_id", pa.string()),
        ("member_id", pa.string()),
        ("transactional_id", pa.string()),
        ("acks", pa.int32()),
        ("record_count", pa.int64()),
        ("topics", _array(pa.string())),
        ("partitions", _array(PARTITION)),
        ("request_body", pa.string()),
        ("response_body", pa.string()),
        ("problems", _array(pa.string())),
        ("retransmits", pa.int32()),
        ("sender", pa.string()),
        ("behind_us", pa.int64()),
        ("muted_us", pa.int64()),
        ("wait_us", pa.int64()),
        ("waits_for", pa.string()),
    ]
)
"""Schema of the table `exchanges`, in the order of its columns."""

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
"""One element of the column `headers`."""

RECORDS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("exchange_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("api", pa.string()),
        ("direction", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _array(HEADER)),
        ("compression", pa.string()),
        ("magic", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.string()),
        ("trace_ids", _array(pa.string())),
    ]
)
"""Schema of the table `records`."""

CONNECTIONS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_ns", pa.int64()),
        ("end_time", pa.timestamp("us", tz="UTC")),
        ("end_time_ns", pa.int64()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int32()),
        ("broker_id", pa.int32()),
        ("software_name", pa.string()),
        ("software_version", pa.string()),
        ("client_ids", _array(pa.string())),
        ("verdict", pa.string()),
        ("ended", pa.string()),
        ("syn_seen", pa.bool_()),
        ("packets", pa.int64()),
        ("requests", pa.int64()),
        ("responses", pa.int64()),
        ("unanswered", pa.int64()),
        ("sasl_mechanism", pa.string()),
        ("client_bytes", pa.int64()),
        ("broker_bytes", pa.int64()),
        ("bytes_decoded", pa.int64()),
        ("bytes_skipped", pa.int64()),
        ("bytes_lost", pa.int64()),
        ("retransmits", pa.int64()),
        ("problems", pa.int64()),
        ("bytes_pending", pa.int64()),
        ("bytes_repeated", pa.int64()),
        ("bytes_ignored", pa.int64()),
        ("protocol", pa.string()),
        ("captured", pa.string()),
    ]
)
"""Schema of the table `connections`."""

PROBLEMS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("exchange_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_ns", pa.int64()),
        ("kind", pa.string()),
        ("detail", pa.string()),
        ("packet", pa.int64()),
        ("direction", pa.string()),
        ("bytes", pa.int64()),
        ("offset", pa.int64()),
    ]
)
"""Schema of the table `problems`."""

TABLES: Final = {"exchanges": EXCHANGES, "records": RECORDS, "connections": CONNECTIONS, "problems": PROBLEMS}
"""All tables, by name."""
TABLE_NAMES: Final = tuple(TABLES)
