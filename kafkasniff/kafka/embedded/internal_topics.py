"""What clients and brokers keep in bytes: data of members of classic groups, and records of the brokers' own topics.

Data of members (JoinGroup, SyncGroup, DescribeGroups) is opaque to the broker; the group's protocol type determines its
format: `consumer` (also Kafka Streams), `connect`. For other types nothing is added. The type comes from the message,
its request, or an earlier message of a member on this connection, in this order. If it is unknown (SyncGroup before v5
on a connection whose JoinGroup is not in the capture), bytes are only decoded if they are exactly a consumer's data
about topics with legal names.

- `consumer`: `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`; user data as written by `StickyAssignor`,
  `CooperativeStickyAssignor` and, for Kafka Streams, `SubscriptionInfo` and `AssignmentInfo`. Anyone may use an
  assignor's name: data that is not exactly what the assignor of that name writes is left undecoded. A version does not
  determine which fields follow, since members only talk to each other: kafka-go and @platformatic/kafka write version 1
  of a subscription without `owned_partitions`, pykafka an assignment without `user_data`, faust version 4 with the
  fields of version 0. Bytes that end after a field are decoded up to that field.
- `connect`: `org.apache.kafka.connect.runtime.distributed`: ConnectProtocol (version 0, eager) and
  IncrementalCooperativeConnectProtocol (versions 1, KIP-415, and 2, KIP-507, which differ only in the version number).

Fetch and Produce may name a topic only by its id, so `interpret_topic(name, records, problems)` is called by the stage
that resolves names, after the merge. KRaft's metadata log has a fixed id and holds secrets: `read_records` decodes
it together with the messages.

Keys and values of coordinators (`org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde`): a key is int16
type + body, a value int16 version + body, a null value deletes. Each topic has its own types. Up to Kafka 4.0 the type
was called the key's version; the bytes are the same.

Values of the metadata log and of the topic of tiered storage carry their type: unsigned varints of frame version (1),
type and version, then the body (`org.apache.kafka.server.common.serialization.AbstractApiMessageSerde`, since 3.0).

Each record of the metadata log (KIP-500, KIP-595, KIP-630) gets a `_value` next to its `value`. The log holds SCRAM
credentials and sensitive configuration, so bytes are shown only if all of them were decoded and none is secret: of a
damaged or unknown record only the length is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kafkasniff.kafka.apis.entities import METADATA_TOPIC, each_records, metadata_records, record_fields
from kafkasniff.kafka.record_facts import add_schema_ids
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions, GroupProtocol, Odd, varint_rest
from kafkasniff.kafka.schema.definition import DataDefinition, Struct
from kafkasniff.kafka.schema.schema import data_definition, data_definitions, data_schema
from kafkasniff.kafka.schema.secrets import redacted, withhold_secrets
from kafkasniff.kafka.schema.walker import Walk, walk
from kafkasniff.model import Body, Direction, Problem

_VERSION_SIZE: Final = 2


def read_versioned(
    data: bytes, name: str, form: str, context: DecodeContext, place: str, *, may_lack: bool = False
) -> Body | None:
    """Read an int16 version and the `data` block `name` in it: `{"format": form, "version", "value"}`.

    A version above the known ones is decoded as the newest, whose fields it must keep, and more bytes may follow, as in
    `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`. If the bytes do not add up, a problem with `place`
    is reported, and `value` has the fields before it; None if there is not even a version. `may_lack`: bytes that end
    after any field are not a problem, and `value` has the fields that are present.
    """
    versions = data_definitions()[name].message.versions
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if len(data) < _VERSION_SIZE or version < versions.low:
        given = f"version {version}" if len(data) >= _VERSION_SIZE else f"{len(data)} bytes"
        context.problem("group-protocol", f"{place}: {given} where {name} should be")
        return None
    schema = data_schema(name, min(version, versions.high))
    assert schema is not None
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(context.options)
    found = schema.read(data, _VERSION_SIZE, len(data), inside)
    if may_lack and not found.complete:
        first_fields = _first_fields(schema.root, data, context)
        if first_fields is not None:
            return {"format": form, "version": version, "value": first_fields.body}
    for problem in inside.problems:
        context.problem("group-protocol", f"{place}: {problem.detail}")
    left = len(data) - found.position
    if found.complete and left and version <= versions.high:
        context.problem("group-protocol", f"{place}: {left} surplus bytes after {name} version {version}")
    return {"format": form, "version": version, "value": found.body}


def _first_fields(root: Struct, data: bytes, context: DecodeContext) -> Walk | None:
    """Decode the bytes after the version as the first fields of `root`; None if they do not end after a field."""
    for count in range(len(root.fields)):
        inside = DecodeContext(context.options)
        found = walk(msgspec.structs.replace(root, fields=root.fields[:count]), data, _VERSION_SIZE, len(data), inside)
        if found.complete and found.position == len(data) and not inside.problems:
            return found
    return None


def exact(data: bytes, name: str, version: int, context: DecodeContext, *, more: bool = False) -> Body | None:
    """The `data` block `name` in a version, if the bytes are exactly that (`more`: or begin with it); else None."""
    schema = data_schema(name, version)
    assert schema is not None
    inside = DecodeContext(context.options)
    found = schema.read(data, 0, len(data), inside)
    if not found.complete or inside.problems or (found.position != len(data) and not more):
        return None
    return found.body


NEWEST: Final = 3
"""The newest known version of both."""


def subscription(data: bytes, assignor: str | None, context: DecodeContext, place: str) -> Body | None:
    """A ConsumerProtocolSubscription with its version, in the form of `read_versioned`."""
    found = read_versioned(data, "ConsumerProtocolSubscription", "consumer", context, place, may_lack=True)
    if found is not None:
        _add_user_data(found["value"], assignor, "SubscriptionInfoData", context)
    return found


def consumer_assignment(data: bytes, assignor: str | None, context: DecodeContext, place: str) -> Body | None:
    """A ConsumerProtocolAssignment, likewise."""
    found = read_versioned(data, "ConsumerProtocolAssignment", "consumer", context, place, may_lack=True)
    if found is not None:
        _add_user_data(found["value"], assignor, "AssignmentInfo", context)
    return found


def _add_user_data(value: Body, assignor: str | None, streams: str, context: DecodeContext) -> None:
    """Add `_user_data`; `streams`: the format of Kafka Streams applications at this place."""
    data = value.get("user_data")
    if not isinstance(data, bytes) or not data:
        return
    found: Body | None = None
    if assignor == "stream":
        found = _streams(data, streams, context)
    elif streams == "SubscriptionInfoData":
        # The other assignors send user data when they join, and none with an assignment.
        if assignor == "sticky":
            found = _sticky(data, context)
        elif assignor == "cooperative-sticky":
            generation = exact(data, "CooperativeStickyAssignorUserData", 0, context)
            found = None if generation is None else {"format": assignor, "version": 0, "value": generation}
    if found is not None:
        value["_user_data"] = found


def _sticky(data: bytes, context: DecodeContext) -> Body | None:
    """The bytes have no version: as in the assignor, the newer one is tried first."""
    for version in (1, 0):
        value = exact(data, "StickyAssignorUserData", version, context)
        if value is not None:
            return {"format": "sticky", "version": version, "value": value}
    return None


def _streams(data: bytes, name: str, context: DecodeContext) -> Body | None:
    """The version is the first field; a newer one is decoded as the newest known if that fits, else only named."""
    versions = data_definitions()[name].message.versions
    version = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or version < versions.low:
        return None
    value = exact(data, name, min(version, versions.high), context, more=version > versions.high)
    if value is None and version <= versions.high:
        return None
    return {"format": "stream", "version": version, "value": value}


def worker_state(data: bytes, context: DecodeContext, place: str) -> Body | None:
    """State that a worker sends when it joins: its REST address, its position in the configuration, its tasks.

    The latter, `allocation`, is an assignment as bytes, with its own version: `_allocation` is its decoded form.
    """
    found = read_versioned(data, "ConnectWorkerState", "connect", context, place)
    if found is not None:
        value = found["value"]
        allocation = value.get("allocation")
        if isinstance(allocation, bytes) and allocation:
            read = connect_assignment(allocation, context, f"{place}.allocation")
            if read is not None:
                value["_allocation"] = read
    return found


def connect_assignment(data: bytes, context: DecodeContext, place: str) -> Body | None:
    """What a worker has to run, and to stop; task -1 is the connector itself."""
    return read_versioned(data, "ConnectAssignment", "connect", context, place)


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""`org.apache.kafka.common.internals.Topic.LEGAL_CHARS` and MAX_NAME_LENGTH."""

_TRIAL: Final = DecodeOptions()

Reader = Callable[[bytes, GroupProtocol | None, DecodeContext, str], Body | None]


class _Said(NamedTuple):
    """The formats of one field, by protocol type."""

    consumer: Callable[[bytes, str | None, DecodeContext, str], Body | None]
    topics: str
    """The field of `consumer`'s format that names topics."""
    connect: Callable[[bytes, DecodeContext, str], Body | None]

    def read(self, data: bytes, protocol: GroupProtocol | None, context: DecodeContext, place: str) -> Body | None:
        """`{"format", "version", "value"}`; None if there is nothing, or the protocol is unknown."""
        if not data:
            return None
        if protocol is None:
            return self._guess(data)
        if protocol.type == "consumer":
            return self.consumer(data, protocol.name, context, place)
        if protocol.type == "connect":
            return self.connect(data, context, place)
        return None

    def _guess(self, data: bytes) -> Body | None:
        """The data decoded as a consumer's, if it is exactly that in a known version, with legal names of topics."""
        trial = DecodeContext(_TRIAL)
        found = self.consumer(data, None, trial, "")
        if found is None or trial.problems or found["version"] > NEWEST:
            return None
        if "user_data" not in found["value"]:
            return None
        topics = [item["topic"] if isinstance(item, dict) else item for item in found["value"][self.topics]]
        legal = all(isinstance(topic, str) and _TOPIC.fullmatch(topic) for topic in topics)
        return found if topics and legal else None


_METADATA: Final = _Said(subscription, "topics", worker_state)
_ASSIGNMENT: Final = _Said(consumer_assignment, "assigned_partitions", connect_assignment)


def metadata(data: bytes, protocol: GroupProtocol | None, context: DecodeContext, place: str) -> Body | None:
    """Data that a member sends when it joins: `{"format", "version", "value"}`; None if unknown.

    `place` names the field in problems.
    """
    return _METADATA.read(data, protocol, context, place)


def assignment(data: bytes, protocol: GroupProtocol | None, context: DecodeContext, place: str) -> Body | None:
    """The leader's assignment for a member, in the same form as `metadata`."""
    return _ASSIGNMENT.read(data, protocol, context, place)


def join_group_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_metadata` to `protocols`; remember the protocol type."""
    group, kind = body.get("group_id"), body.get("protocol_type")
    if not isinstance(kind, str):
        return
    context.carry = (group, kind)
    if context.memory is not None and isinstance(group, str | bytes):
        context.memory.remember_group(group, GroupProtocol(kind, None))
    for index, protocol in enumerate(body.get("protocols") or ()):
        _add(protocol, "metadata", metadata, _protocol(kind, protocol.get("name")), context, f"protocols[{index}].")


def join_group_response(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_metadata` to `members`, which the leader gets; remember the agreed protocol."""
    group, asked = context.request if isinstance(context.request, tuple) else (None, None)
    protocol = _protocol(body.get("protocol_type") or asked, body.get("protocol_name"))
    # A refusal (MEMBER_ID_REQUIRED) names no protocol.
    agreed = protocol is not None and bool(protocol.name)
    if protocol is not None and agreed and context.memory is not None and isinstance(group, str | bytes):
        context.memory.remember_group(group, protocol)
    for index, member in enumerate(body.get("members") or ()):
        _add(member, "metadata", metadata, protocol, context, f"members[{index}].")


def sync_group_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_assignment` to `assignments`, which the leader sends."""
    group = body.get("group_id")
    joined = None
    if context.memory is not None and isinstance(group, str | bytes):
        joined = context.memory.group_protocol(group)
    protocol = _protocol(body.get("protocol_type"), body.get("protocol_name")) or joined
    context.carry = protocol
    for index, member in enumerate(body.get("assignments") or ()):
        _add(member, "assignment", assignment, protocol, context, f"assignments[{index}].")


def sync_group_response(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_assignment`."""
    protocol = _protocol(body.get("protocol_type"), body.get("protocol_name"))
    if protocol is None and isinstance(context.request, GroupProtocol):
        protocol = context.request
    _add(body, "assignment", assignment, protocol, context, "")


def describe_groups_response(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_member_metadata` and `_member_assignment` to the members of the groups."""
    for group_index, group in enumerate(body.get("groups") or ()):
        protocol = _protocol(group.get("protocol_type"), group.get("protocol_data"))
        for index, member in enumerate(group.get("members") or ()):
            place = f"groups[{group_index}].members[{index}]."
            _add(member, "member_metadata", metadata, protocol, context, place)
            _add(member, "member_assignment", assignment, protocol, context, place)


def _protocol(kind: object, name: object) -> GroupProtocol | None:
    """None if there is no type: null, empty (a group without members), truncated, or not UTF-8."""
    return GroupProtocol(kind, name if isinstance(name, str) else None) if isinstance(kind, str) and kind else None


def _add(  # noqa: PLR0917 - a field, how it is read, and where problems are reported
    struct: Body, field: str, read: Reader, protocol: GroupProtocol | None, context: DecodeContext, place: str
) -> None:
    data = struct.get(field)
    if isinstance(data, bytes):
        found = read(data, protocol, context, place + field)
        if found is not None:
            struct[f"_{field}"] = found


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
            for field, read in (("subscription", metadata), ("assignment", assignment)):
                data = member[field]
                decoded = read(data, protocol, context, field) if isinstance(data, bytes) else None
                if decoded is not None:
                    member[f"_{field}"] = decoded
    elif name == "ConsumerGroupMemberMetadataValue":
        # A member that speaks the classic protocol in a group of the newer one (KIP-848).
        for offered in (body.get("classic_member_metadata") or {}).get("supported_protocols") or ():
            protocol = GroupProtocol("consumer", offered["name"] if isinstance(offered["name"], str) else None)
            data = offered["metadata"]
            decoded = metadata(data, protocol, context, "metadata") if isinstance(data, bytes) else None
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
        context.problem(PROBLEM, f"record {record['offset']} of {METADATA_TOPIC}: it has no value")
        return False
    framed_record = read_framed(value, "metadata", context.options)
    for detail in framed_record.problems:
        context.problem(PROBLEM, f"record {record['offset']} of {METADATA_TOPIC}: {detail}")
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
        context.problem(PROBLEM, f"record {record['offset']} of {METADATA_TOPIC}: {detail}")
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
