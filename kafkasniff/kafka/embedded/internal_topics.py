"""Records of the topics in which brokers keep their state, decoded once the topic's name is known.

Fetch and Produce may name a topic only by its id, so `interpret_topic(name, records, problems)` is called by the stage
that resolves names, after the merge. KRaft's metadata log has a fixed id and holds secrets: `metadata_records` decodes
it together with the messages.

Keys and values of coordinators (`org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde`): a key is int16
type + body, a value int16 version + body, a null value deletes. Each topic has its own types. Up to Kafka 4.0 the type
was called the key's version; the bytes are the same. Data of members of classic groups (ConsumerProtocol and the like)
is embedded in values, and is decoded as in the messages that carry it.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from kafkasniff.kafka.embedded import group_protocol
from kafkasniff.kafka.embedded.framed_records import read_framed
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.data_schemas import data_definition, data_schema
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.memory import GroupProtocol
from kafkasniff.model import Body, Problem

__all__ = ["INTERNAL_TOPICS", "interpret_topic"]

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
    found = read_framed(value, "remote-log", _OPTIONS)
    if found.value is not None:
        record["_value"] = found.value
    return list(found.problems)


def _coordinator(record: dict[str, Any], file: str) -> list[str]:
    """Decode a record of a coordinator's topic; returns its problems."""
    problems: list[str] = []
    key, value = record.get("key"), record.get("value")
    if not isinstance(key, bytes) or len(key) < 2:
        return [f"a key of {len(key)} bytes" if isinstance(key, bytes) else "it has no key"]
    number = int.from_bytes(key[:2], "big", signed=True)
    of_key = _definition("coordinator-key", number, file)
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
    of_value = _definition("coordinator-value", number, file)
    if of_value is None:
        return [*problems, f"unknown value type {number}"]
    decoded = _read(value, of_value, version, problems)
    if decoded is not None:
        record["_value"] = {"type": of_value.message.name, "version": version, "value": decoded}
    return problems


@functools.lru_cache(maxsize=1024)  # more than there are; types that do not exist come from the wire
def _definition(kind: str, number: int, file: str) -> DataDefinition | None:
    return data_definition(kind, number, file)


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
