"""Records of the topics in which brokers keep their state, and what is added to records of any API.

Fetch and Produce may name a topic only by its id, so `interpret_topic(name, records, problems)` is called by the stage
that resolves names, after the merge. KRaft's metadata log has a fixed id and holds secrets: `read_records` decodes
it together with the messages.

Keys and values of coordinators (`org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde`): a key is int16
type + body, a value int16 version + body, a null value deletes. Each topic has its own types. Up to Kafka 4.0 the type
was called the key's version; the bytes are the same. Data of members of classic groups (ConsumerProtocol and the like)
is embedded in values, and is decoded as in the messages that carry it.

Values of the metadata log and of the topic of tiered storage carry their type: unsigned varints of frame version (1),
type and version, then the body (`org.apache.kafka.server.common.serialization.AbstractApiMessageSerde`, since 3.0).

Each record of the metadata log (KIP-500, KIP-595, KIP-630) gets a `_value` next to its `value`. The log holds SCRAM
credentials and sensitive configuration, so bytes are shown only if all of them were decoded and none is secret: of a
damaged or unknown record only the length is shown.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import msgspec

from kafkasniff.kafka.apis.cluster_metadata import TOPIC_NAME, metadata_records
from kafkasniff.kafka.apis.entities import each_records, record_fields
from kafkasniff.kafka.embedded import group_protocol
from kafkasniff.kafka.record_facts import add_schema_ids
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions, GroupProtocol, Odd, varint_rest
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.schema import data_definition, data_schema
from kafkasniff.kafka.schema.secrets import redacted, withhold_secrets
from kafkasniff.model import Body, Direction, Problem

FRAME_VERSION: Final = 1


class FramedRecord(msgspec.Struct, frozen=True):
    """A decoded value."""

    value: dict[str, Any] | None
    """`{"type", "version", "value"}`: Kafka's name of the record, its version and its fields; None if it cannot be
    decoded."""
    secret: bool
    """The bytes hold a secret, or could not be decoded to their end and may hold one."""
    problems: tuple[str, ...] = ()
    """Its problems."""


def read_framed(value: bytes, kind: Literal["metadata", "remote-log"], options: DecodeOptions) -> FramedRecord:
    """Decode a record's value by the definitions of `kind`. Never raises for bad bytes."""
    try:
        frame_version, position = _varint(value, 0)
        number, position = _varint(value, position)
        version, position = _varint(value, position)
    except (Odd, IndexError):
        return FramedRecord(None, True, ("its value does not begin with the varints of a frame, a type and a version",))
    if frame_version != FRAME_VERSION:
        return FramedRecord(None, True, (f"unknown frame version {frame_version}",))
    definition = data_definition(kind, number)
    if definition is None:
        return FramedRecord(None, True, (f"unknown record type {number}",))
    name = definition.message.name
    schema = data_schema(name, version)
    if schema is None:
        return FramedRecord(None, True, (f"unknown version {version} of {name}",))
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(options)
    read = schema.read(value, position, len(value), inside)
    problems = tuple(f"{name}: {problem.detail}" for problem in inside.problems)
    if not read.complete:
        return FramedRecord(None, True, problems)
    left = len(value) - read.position
    if left:
        problems += (f"{left} surplus bytes after a {name}",)
    number_of_quota = read.body.get("value")
    if isinstance(number_of_quota, float) and not math.isfinite(number_of_quota):
        # As everywhere in JSON; done here, so that nobody has to search for the one record with a float64.
        read.body["value"] = "NaN" if math.isnan(number_of_quota) else f"{'-' * (number_of_quota < 0)}Infinity"
    fields = {"type": name, "version": version, "value": read.body}
    return FramedRecord(fields, bool(left) or (schema.has_secrets and _is_redacted(read.body)), problems)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    return varint_rest(data, position + 1, value) if value > 0x7F else (value, position + 1)


def _is_redacted(value: object) -> bool:
    """Whether something in a decoded value was redacted."""
    if isinstance(value, dict):
        return "redacted" in value or any(map(_is_redacted, value.values()))
    return isinstance(value, list) and any(map(_is_redacted, value))


PROBLEM: Final = "internal-record"

REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
_FILES: Final = {
    "__consumer_offsets": "group_coordinator",
    "__transaction_state": "transaction_coordinator",
    "__share_group_state": "share_coordinator",
}
"""By topic, the file in `dissectors/records` that defines its records."""

INTERNAL_TOPICS: Final = frozenset({*_FILES, REMOTE_LOG_METADATA})
"""The topics whose records `interpret_topic` decodes."""

_OFFSET_COMMIT: Final = 1
"""Type of an offset's records; 0 is its older one, with the same key and values (GroupCoordinatorRecordSerde)."""
_OPTIONS: Final = DecodeOptions()


def interpret_topic(name: str, records: dict[str, Any], problems: list[Problem]) -> None:
    """Add `_key` and `_value` to the records of a decoded `records` field of the topic `name`.

    Both are `{"type", "version", "value"}`: Kafka's name of the schema, the leading int16 (in a key: its type) and the
    fields. `_value` is None if the record deletes. Data that cannot be decoded gets no `_…`, and `problems` gets an
    `internal-record`, up to `MAX_PROBLEMS` per call. Topics that are not in `INTERNAL_TOPICS`, control batches, and
    `records` of which only the batches were decoded are left alone. Never raises for bad bytes.
    """
    if name not in INTERNAL_TOPICS:
        return
    noted = 0
    for batch in records["batches"]:
        if batch.get("control"):
            continue
        for record in batch.get("records", ()):
            # Guesses from before the name was known.
            record.pop("_key", None)
            record.pop("_value", None)
            if name == REMOTE_LOG_METADATA:
                found = _remote_log(record)
            else:
                found = _coordinator(record, _FILES[name])
            for detail in found:
                noted += 1
                if noted <= MAX_PROBLEMS:
                    problems.append(Problem(PROBLEM, f"record {record['offset']} of {name}: {detail}"))
    if noted > MAX_PROBLEMS:
        problems.append(Problem("more-problems", f"{noted - MAX_PROBLEMS} more problems in the records of {name}"))


def _remote_log(record: dict[str, Any]) -> list[str]:
    """Decode a record of tiered storage, whose key is unused; returns its problems."""
    value = record.get("value")
    if not isinstance(value, bytes):
        return ["it has no value"]
    framed_record = read_framed(value, "remote-log", _OPTIONS)
    if framed_record.value is not None:
        record["_value"] = framed_record.value
    return list(framed_record.problems)


def _coordinator(record: dict[str, Any], file: str) -> list[str]:
    """Decode a record of a coordinator's topic; returns its problems."""
    problems: list[str] = []
    key, value = record.get("key"), record.get("value")
    if not isinstance(key, bytes) or len(key) < 2:
        return [f"a key of {len(key)} bytes" if isinstance(key, bytes) else "it has no key"]
    number = int.from_bytes(key[:2], "big", signed=True)
    of_key = data_definition("coordinator-key", number, file)
    if of_key is None:
        return [f"unknown key type {number}"]
    # A definition of a key has one version, whose number is not on the wire: the type takes its place.
    decoded = _read(key, of_key, of_key.message.versions.low, problems)
    if decoded is not None:
        record["_key"] = {"type": of_key.message.name, "version": number, "value": decoded}
    if value is None:
        record["_value"] = None
        return problems
    if not isinstance(value, bytes) or len(value) < 2:
        return [*problems, f"a value of {len(value)} bytes"]
    version = int.from_bytes(value[:2], "big", signed=True)
    if file == "group_coordinator" and number < _OFFSET_COMMIT:
        number = _OFFSET_COMMIT
    of_value = data_definition("coordinator-value", number, file)
    if of_value is None:
        return [*problems, f"unknown value type {number}"]
    decoded = _read(value, of_value, version, problems)
    if decoded is not None:
        record["_value"] = {"type": of_value.message.name, "version": version, "value": decoded}
    return problems


def _read(data: bytes, definition: DataDefinition, version: int, problems: list[str]) -> dict[str, Any] | None:
    """The fields after the leading int16 of `data`; None if they cannot be decoded."""
    name = definition.message.name
    schema = data_schema(name, version)
    if schema is None:
        problems.append(f"unknown version {version} of {name}")
        return None
    inside = DecodeContext(_OPTIONS)
    read = schema.read(data, 2, len(data), inside)
    if read.complete:
        _add_protocol_data(name, read.body, inside)
    problems += [f"{name}: {problem.detail}" for problem in inside.problems]
    if not read.complete:
        return None
    if read.position < len(data):
        problems.append(f"{len(data) - read.position} surplus bytes after a {name}")
    return read.body


def _add_protocol_data(name: str, body: Body, context: DecodeContext) -> None:
    """Decode data of members of classic groups, as in JoinGroup and SyncGroup."""
    if name == "GroupMetadataValue":
        kind, assignor = body["protocol_type"], body["protocol"]
        protocol = GroupProtocol(kind, assignor if isinstance(assignor, str) else None)
        if not kind or not isinstance(kind, str):
            return
        for member in body["members"] or ():
            for field, read in (("subscription", group_protocol.metadata), ("assignment", group_protocol.assignment)):
                data = member[field]
                decoded = read(data, protocol, context, field) if isinstance(data, bytes) else None
                if decoded is not None:
                    member[f"_{field}"] = decoded
    elif name == "ConsumerGroupMemberMetadataValue":
        # A member that speaks the classic protocol in a group of the newer one (KIP-848).
        for offered in (body.get("classic_member_metadata") or {}).get("supported_protocols") or ():
            protocol = GroupProtocol("consumer", offered["name"] if isinstance(offered["name"], str) else None)
            data = offered["metadata"]
            decoded = group_protocol.metadata(data, protocol, context, "metadata") if isinstance(data, bytes) else None
            if decoded is not None:
                offered["_metadata"] = decoded


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
    framed_record = read_framed(value, "metadata", context.options)
    for detail in framed_record.problems:
        context.problem(PROBLEM, f"record {record['offset']} of {TOPIC_NAME}: {detail}")
    if framed_record.value is not None:
        record["_value"] = framed_record.value
    return framed_record.secret


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


def read_records(api_key: int, direction: Direction, body: Body, version: int, context: DecodeContext) -> None:
    """Interpret the decoded records of a body, and withhold secrets in them. Hot."""
    fields = record_fields(api_key, version, direction)
    if fields is None:
        return
    for records, topic in each_records(fields, body):
        withhold_secrets(records, context)
        add_schema_ids(records, topic)
    for records, _ in each_records(fields, body, secret=True):
        interpret_metadata(records, context)
