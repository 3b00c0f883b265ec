"""Records of KRaft's metadata log (KIP-500, KIP-595, KIP-630): those of its topic, and slices of snapshots.

Each gets a `_value` next to its `value`. The log holds SCRAM credentials and sensitive configuration, so bytes are
shown only if all of them were decoded and none is secret: of a damaged or unknown record only the length is shown.
"""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.kafka.apis.cluster_metadata import TOPIC_NAME, metadata_records
from kafkasniff.kafka.embedded.framed_records import read_framed
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.secrets import redacted
from kafkasniff.model import Body, Direction

__all__ = ["interpret_metadata", "read_topic"]

PROBLEM: Final = "internal-record"


def read_topic(api_key: int, direction: Direction, body: Body, _version: int, context: DecodeContext) -> None:
    """Decode the metadata records of a message with records of topics; other topics are skipped. Hot."""
    for records in metadata_records(api_key, direction, body):
        if records is not None:
            interpret_metadata(records, context)


def interpret_metadata(records: dict[str, Any], context: DecodeContext) -> None:
    """Add `_value` to each record of a decoded `records` field: `{"type", "version", "value"}`, if it can be decoded.

    This includes fields that are marked `secret` (FetchSnapshot: only the metadata log has snapshots, KIP-630). Data
    that cannot be decoded is a problem. Secrets are redacted, in `value` and in `_value`, unless
    `context.options.show_secrets`.
    """
    for batch in records["batches"]:
        for record in batch.get("records", ()):
            if batch.get("control"):
                control = record["_control"]
                unread = control is None or control["value"] is None
            else:
                unread = _interpret(record, context)
            if not context.options.show_secrets:
                _withhold(record, context, value=unread, others=unread or not batch.get("control"))


def _interpret(record: dict[str, Any], context: DecodeContext) -> bool:
    """Decode one record; True if its value may not be shown."""
    value = record.get("value")
    if value is None:
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: it has no value")
        return False
    found = read_framed(value, "metadata", context.options)
    for detail in found.problems:
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: {detail}")
    if found.value is not None:
        record["_value"] = found.value
    return found.secret


def _withhold(record: dict[str, Any], context: DecodeContext, *, value: bool, others: bool) -> None:
    """Redact a record's value, and its key and headers: Kafka writes neither, so their content is unknown."""
    for name in ("value",) * value + ("key",) * others:
        if isinstance(record.get(name), bytes):
            record[name] = redacted(record[name])
    if others and record.get("headers"):
        detail = f"it has {len(record['headers'])} headers, which Kafka never writes: they are withheld"
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: {detail}")
        record["headers"] = []
        record.pop("_trace_ids", None)
