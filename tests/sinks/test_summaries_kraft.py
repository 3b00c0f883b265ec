"""Lines about snapshots, the metadata log, envelopes and pushed metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff import read
from kafkasniff.model import ErrorCode, Message
from kafkasniff.sinks.names import layout_inside
from kafkasniff.sinks.summaries import summary
from kafkasniff.sinks.summaries.functions import record_types
from kafkasniff.sinks.tree import body_tree
from kafkasniff.text.paint import PLAIN
from tests.sinks.messages import BATCH, message

CAPTURES = Path(__file__).parents[2] / "captures"


def reported(key: int, body: dict[str, Any], *errors: ErrorCode, kind: str = "request") -> str:
    return summary(message(kind, api_key=key, api_version=0, body=body, errors=errors), PLAIN)


def records(*types: str | None) -> dict[str, Any]:
    entries = [{"_value": {"type": name}} if name else {} for name in types]
    return {"batches": [{**BATCH, "record_count": len(entries), "compression": "none", "records": entries}]}


def test_types_of_records() -> None:
    types = ["NoOpRecord", "TopicRecord", "PartitionRecord", "PartitionRecord", None]
    assert record_types("__cluster_metadata-0", records(*types)) == "TopicRecord, 2 PartitionRecord"
    assert record_types("AAAAAAAAAAAAAAAAAAAAAQ-0", records("NoOpRecord", "NoOpRecord")) == "2 NoOpRecord"
    assert record_types("orders-0", records("TopicRecord")) == ""
    assert record_types("__x-0", records(*"abcdef")) == "a, b, c, d, +2 more"
    deleted = {"batches": [{"records": [{"_key": {"type": "OffsetCommitKey"}, "_value": None}]}]}
    assert record_types("__consumer_offsets-3", deleted) == "OffsetCommitKey"
    marker = {"batches": [{"records": [{"_control": {"name": "COMMIT"}}, {"_control": None}]}]}
    assert record_types("__consumer_offsets-3", marker) == "COMMIT"
    for nothing in (None, {}, {"batches": []}, {"batches": [{}]}):
        assert record_types("__consumer_offsets-3", nothing) == ""


def test_fetch_of_the_metadata_log() -> None:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "records": records("TopicRecord")}
    body = {"responses": [{"topic": "__cluster_metadata", "partitions": [partition]}]}
    line = "__cluster_metadata-0 1 record 3.1 kB from 1042 (TopicRecord), high watermark 9"
    assert reported(1, body, kind="response") == line


SNAPSHOT = {"end_offset": 141, "epoch": 3}


def test_snapshots() -> None:
    item = {"partition": 0, "snapshot_id": SNAPSHOT, "position": 4096}
    body = {"replica_id": 3, "topics": [{"name": "__cluster_metadata", "partitions": [item]}]}
    assert reported(59, body) == "__cluster_metadata-0 snapshot 141-3 from byte 4096, replica 3"
    slice_ = {"leading_bytes": 100, **records("TopicRecord", "ConfigRecord"), "truncated_bytes": 28}
    item = {"index": 0, "snapshot_id": SNAPSHOT, "size": 9000, "position": 4096, "unaligned_records": slice_}
    body = {"topics": [{"name": "__cluster_metadata", "partitions": [item]}]}
    line = "__cluster_metadata-0 snapshot 141-3, from byte 4096 of 9000: 2 records 3.1 kB (TopicRecord, ConfigRecord)"
    assert reported(59, body, kind="response") == f"{line} and 128 B of cut batches"
    for piece in ({}, {"snapshot_id": None}, {"unaligned_records": None}):
        assert reported(59, {"topics": [{"name": "m", "partitions": [piece]}]}, kind="response").startswith(
            "m-? snapshot"
        )


INSIDE = {"api_key": 20, "api": "DeleteTopics", "api_version": 5, "correlation_id": 4, "client_id": "admin"}
PRINCIPAL = {"type": "DefaultPrincipalData", "version": 0, "value": {"type": "User", "name": "alice"}}


def test_envelopes() -> None:
    inside = {**INSIDE, "body": {"topic_names": ["orders"]}}
    body = {"_request": inside, "_request_principal": PRINCIPAL, "_client_host_address": "10.0.0.5"}
    assert reported(58, body) == "DeleteTopics v5 corr 4 of admin (User:alice at 10.0.0.5): orders"
    assert reported(58, {"_request": inside}) == "DeleteTopics v5 corr 4 of admin: orders"
    unknown = {**INSIDE, "api_key": 999, "api": None, "body": None}
    assert reported(58, {"_request": unknown}) == "API 999 v5 corr 4 of admin"
    assert reported(58, {"request_data": {"redacted": 1200}}) == "1.2 kB, redacted"
    assert reported(58, {"request_data": b"12"}) == "2 B"


def test_answers_in_envelopes() -> None:
    inside = {**INSIDE, "body": {"responses": [{"name": "orders", "error_code": 3}, {"name": "b", "error_code": 0}]}}
    del inside["client_id"]
    body = {"response_data": {"redacted": 9}, "error_code": 0, "_response": inside}
    error = ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "_response.body.responses[0].error_code")
    assert reported(58, body, error, kind="response") == "DeleteTopics v5: orders UNKNOWN_TOPIC_OR_PARTITION; b"
    refused = ErrorCode(41, "NOT_CONTROLLER", "error_code")
    assert reported(58, {"response_data": None, "error_code": 41}, refused, kind="response") == "NOT_CONTROLLER"
    both = reported(58, body, refused, error, kind="response")
    assert both == "NOT_CONTROLLER; DeleteTopics v5: orders UNKNOWN_TOPIC_OR_PARTITION; b"


def test_pushed_metrics() -> None:
    metrics = [{"name": name, "points": []} for name in ("a", "b", "a", "c")]
    body = {"subscription_id": 7, "terminating": True, "compression_type": 4, "metrics": b"x" * 325}
    assert reported(72, body) == "subscription 7, 325 B zstd, terminating"
    read_too = {**body, "_metrics": {"resources": [{"metrics": metrics}]}}
    assert reported(72, read_too) == "subscription 7, 4 metrics (a, b, +1 more), 325 B zstd, terminating"
    none = {"subscription_id": 7, "compression_type": 0, "metrics": b"", "_metrics": {"resources": []}}
    assert reported(72, none) == "subscription 7, 0 metrics, 0 B"


def test_real_ones_have_a_line_and_a_tree() -> None:
    lines = []
    for name in ("kraft-two-brokers.pcap", "java-telemetry.pcap"):
        for exchange in read([CAPTURES / name]):
            for one in (exchange.request, exchange.response):
                if isinstance(one, Message) and one.api in {"Envelope", "PushTelemetry", "Fetch"}:
                    lines.append(summary(one, PLAIN))
                    lines += body_tree(one, PLAIN, records=True)
    text = "\n".join(lines)
    sender = "cluster-admin (User:ANONYMOUS at 127.0.0.1)"
    assert f"AlterUserScramCredentials v0 corr 4 of {sender}: upsertions carol" in text
    # Names of codes are shown inside, too.
    assert text.count("mechanism: 1 (SCRAM-SHA-256)") == 2


@pytest.mark.parametrize(
    "expected",
    [
        {"type": ["x"], "value": {}},
        {"type": "NoSuch", "version": 0, "value": {}},
        {"type": "TopicRecord", "version": 9, "value": {}},
        {"type": "TopicRecord", "version": "0", "value": {}},
        {"api_key": [1], "api_version": 0, "body": {}},
        {"api_key": 999, "api_version": 0, "body": {}},
        {"api_key": 1, "api_version": None, "body": {}},
        {"value": {}, "body": {}},
    ],
)
def test_structs_that_only_look_as_if_they_had_a_layout(expected: dict[str, Any]) -> None:
    assert layout_inside(expected) is None
