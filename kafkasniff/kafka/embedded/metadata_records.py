"""Records of KRaft's metadata log (KIP-500, KIP-595, KIP-630): those of its topic, and slices of snapshots.

Each gets a `_value` beside its `value`. The log holds SCRAM credentials and sensitive configuration, so bytes are shown
only where all of them were read and are no secret: a damaged or unknown record says nothing but its length.
"""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.kafka.cluster_metadata import TOPIC_NAME, metadata_records
from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.embedded.framed_records import read_framed
from kafkasniff.kafka.secrets import redacted
from kafkasniff.model import Body, Direction

__all__ = ["interpret_metadata", "read_topic"]

PROBLEM: Final = "internal-record"


def read_topic(api_key: int, direction: Direction, body: Body, _version: int, context: DecodeContext) -> None:
    """Read the metadata records of a message with records of topics; other topics are passed over. Hot."""
    for records in metadata_records(api_key, direction, body):
        if records is not None:
            interpret_metadata(records, context)


def interpret_metadata(records: dict[str, Any], context: DecodeContext) -> None:
    """Add `_value` to each record of a decoded `records` field: `{"type", "version", "value"}`, if it can be read.

    Fields that are marked `secret` are read so too (FetchSnapshot: there are snapshots of the metadata log only,
    KIP-630). What cannot be read is a problem. Secrets are redacted, in `value` and in `_value`, unless
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
    """Read one record; True where its value may not be shown."""
    value = record.get("value")
    if value is None:
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: it has no value")
        return False
    found = read_framed(value, "metadata", context.options)
    for detail in found.problems:
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: {detail}")
    if found.told is not None:
        record["_value"] = found.told
    return found.secret


def _withhold(record: dict[str, Any], context: DecodeContext, *, value: bool, others: bool) -> None:
    """Redact a record's value, and its key and headers: Kafka writes neither, so nothing tells what they are."""
    for name in ("value",) * value + ("key",) * others:
        if isinstance(record.get(name), bytes):
            record[name] = redacted(record[name])
    if others and record.get("headers"):
        detail = f"it has {len(record['headers'])} headers, which Kafka never writes: they are withheld"
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: {detail}")
        record["headers"] = []
        record.pop("_trace_ids", None)
