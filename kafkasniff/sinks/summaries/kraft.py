"""Summaries of what brokers and controllers tell each other: snapshots, forwarded requests, records of own topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from kafkasniff.kafka.cluster_metadata import TOPIC_ID
from kafkasniff.model import Body, Message
from kafkasniff.sinks.names import nested_field
from kafkasniff.sinks.paint import Paint
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.phrases import (
    Summarise,
    amount,
    error_phrase,
    few,
    partitions,
    records_phrase,
    rows,
)

__all__ = ["INTERNAL", "REQUESTS", "RESPONSES", "envelope", "record_types"]

TYPES_SHOWN: Final = 4
"""Types of records that a line shows."""
_DULL: Final = "NoOpRecord"
"""A controller writes one every half a second."""

INTERNAL: Final = ("__", TOPIC_ID)
"""How the names begin of the topics whose records have types."""


def record_types(topic: str, records: object) -> str:
    """`TopicRecord, 2 PartitionRecord` for records of Kafka's own topics; "" for others."""
    if not topic.startswith(INTERNAL) or not isinstance(records, dict):
        return ""
    types: Counter[str] = Counter()
    for batch in rows(records.get("batches")):
        for record in rows(batch.get("records")):
            control = record.get("_control")
            # What deletes has no value.
            read = record.get("_value") or record.get("_key") or {}
            name = control.get("name") if isinstance(control, dict) else read.get("type")
            if isinstance(name, str):
                types[name] += 1
    if len(types) > 1:
        del types[_DULL]
    return few([f"{number} {name}" if number > 1 else name for name, number in types.items()], shown=TYPES_SHOWN)


def _snapshot(item: Body) -> str:
    snapshot = item.get("snapshot_id")
    if not isinstance(snapshot, dict):
        return "snapshot"
    return f"snapshot {snapshot.get('end_offset')}-{snapshot.get('epoch')}"


def _fetch_snapshot_request(body: Body) -> str:
    found = partitions(body.get("topics"), "partitions", "partition")
    parts = [few([f"{name} {_snapshot(item)} from byte {item.get('position')}" for name, item in found], "; ")]
    replica = body.get("replica_id")
    if isinstance(replica, int) and replica >= 0:
        parts.append(f"replica {replica}")
    return ", ".join(parts)


def _fetch_snapshot_response(body: Body) -> str:
    phrases = []
    for name, item in partitions(body.get("topics"), "partitions", "index"):
        if item.get("error_code"):
            continue
        told = f"{name} {_snapshot(item)}, from byte {item.get('position')} of {item.get('size')}"
        records = item.get("unaligned_records")
        if isinstance(records, dict):
            types = record_types(name, records)
            told += f": {records_phrase(records)}{f' ({types})' if types else ''}"
            cut = records.get("leading_bytes", 0) + records.get("truncated_bytes", 0)
            if cut:
                told += f" and {amount(cut)} of cut batches"
        phrases.append(told)
    return few(phrases, "; ")


def envelope(message: Message, paint: Paint, summary: Callable[[Message, Paint], str]) -> str:
    """The message in an Envelope, as `summary` tells it, with its API in front; in a request, whose it is."""
    body = message.body or {}
    outer = [error for error in message.errors if not error.path.startswith("_response.")]
    told = error_phrase(msgspec.structs.replace(message, errors=tuple(outer)), paint) if outer else ""
    request = message.type == "request"
    inside = body.get("_request" if request else "_response")
    if isinstance(inside, dict) and inside.get("api_key") is not None:
        text = _inside(message, inside, paint, summary)
        return f"{told}; {text}" if told else text
    value = body.get(nested_field(message) or "")
    if isinstance(value, dict) and "redacted" in value:
        return told or f"{amount(value['redacted'])}, redacted"
    return told or (amount(len(value)) if isinstance(value, bytes) else "")


def _inside(message: Message, inside: Body, paint: Paint, summary: Callable[[Message, Paint], str]) -> str:
    api = inside.get("api")
    name = f"API {inside.get('api_key')}" if api is None else word(api)
    head = f"{paint.api}{name} v{inside.get('api_version')}{paint.reset}"
    below = "_response.body."
    inner = Message(
        message.type,
        0,
        api_key=inside.get("api_key"),
        api=api,
        api_version=inside.get("api_version"),
        body=inside.get("body"),
        body_version=inside.get("body_version"),
        errors=tuple(
            msgspec.structs.replace(error, path=error.path.removeprefix(below))
            for error in message.errors
            if error.path.startswith(below)
        ),
    )
    if message.type == "request":
        head += f" corr {inside.get('correlation_id')} of {_sender(message.body or {}, inside)}"
    told = summary(inner, paint)
    return f"{head}: {told}" if told else head


def _sender(body: Body, inside: Body) -> str:
    """The client id, and as whom and from where it sent the request."""
    parts = []
    principal = body.get("_request_principal")
    if isinstance(principal, dict):
        value = principal["value"]
        parts.append(f"{word(value.get('type'))}:{word(value.get('name'))}")
    address = body.get("_client_host_address")
    if address is not None:
        parts.append(f"at {word(address)}")
    client = word(inside.get("client_id"))
    return f"{client} ({' '.join(parts)})" if parts else client


REQUESTS: Final[dict[int, Summarise]] = {59: _fetch_snapshot_request}
"""By API key."""

RESPONSES: Final[dict[int, Summarise]] = {59: _fetch_snapshot_response}
