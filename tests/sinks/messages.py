"""Messages made by hand, as the inspector would yield them."""

from __future__ import annotations

from typing import Any

from kafkasniff.model import Endpoint, Message

CLIENT = Endpoint("10.0.0.5", 51334)
BROKER = Endpoint("10.0.0.9", 9092)
TIME_NS = 1_795_233_600_123_456_789
"""2026-11-21T04:00:00.123456789Z"""

BATCH = {
    **{"base_offset": 1042, "batch_length": 3088, "partition_leader_epoch": 0, "magic": 2, "crc": 1, "crc_ok": True},
    **{"compression": "lz4", "timestamp_type": "CreateTime", "transactional": False, "control": False},
    **{"last_offset_delta": 11, "base_timestamp": 1_700_000_000_000, "max_timestamp": 1_700_000_016_000},
    **{"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "record_count": 12},
}
PRODUCE: dict[str, Any] = {
    "transactional_id": None,
    "acks": -1,
    "timeout_ms": 30000,
    "topic_data": [
        {"name": "orders", "partition_data": [{"index": 0, "records": {"batches": [BATCH], "truncated_bytes": 0}}]}
    ],
}
_STORED = {"index": 0, "error_code": 0, "base_offset": 1042, "log_append_time_ms": -1, "log_start_offset": 0}
PRODUCED: dict[str, Any] = {"responses": [{"name": "orders", "partition_responses": [_STORED]}], "throttle_time_ms": 0}


def message(kind: Any = "request", **fields: Any) -> Message:
    """A Produce request (or its response) with some fields of its own."""
    values: dict[str, Any] = {
        **{"size": 512, "correlation_id": 5, "api_key": 0, "api": "Produce", "api_version": 9, "client_id": "rdkafka"},
        **{"header": {}, "body": PRODUCE if kind == "request" else PRODUCED, "exchange": 17, "connection": 3},
        **{"capture": "a.pcap", "time_ns": TIME_NS, "client": CLIENT, "broker": BROKER},
        **{"first_packet": 120, "last_packet": 121},
    }
    if kind == "response":
        values |= {"time_ns": TIME_NS + 1_234_000, "latency_ns": 1_234_000, "duration_ns": 1_400_000, "size": 80}
    return Message(kind, **{**values, **fields})
