"""Data that members of a classic group exchange through the broker, in JoinGroup, SyncGroup and DescribeGroups.

The broker does not interpret these bytes; the group's protocol type determines their format: `consumer` (also Kafka
Streams) and `connect`. For other types nothing is added. The type comes from the message, its request, or an earlier
message of a member on this connection, in this order. If it is unknown (SyncGroup before v5 on a connection whose
JoinGroup is not in the capture), bytes are only decoded if they are exactly a consumer's data about topics with legal
names.

`consumer`: `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`; user data as written by `StickyAssignor`,
`CooperativeStickyAssignor` and, for Kafka Streams, `SubscriptionInfo` and `AssignmentInfo`. For the broker and other
members user data is opaque, and anyone may use an assignor's name: data that is not exactly what the assignor of that
name writes is left undecoded.

The members of a group only talk to each other, so a version does not determine which fields follow: kafka-go and
@platformatic/kafka write version 1 of a subscription without `owned_partitions`, pykafka an assignment without
`user_data`, faust version 4 with the fields of version 0. Bytes that end after a field are decoded up to that field.

`connect`, the workers of a Kafka Connect cluster: `org.apache.kafka.connect.runtime.distributed`: ConnectProtocol
(version 0, eager) and IncrementalCooperativeConnectProtocol (versions 1, KIP-415, and 2, KIP-507, which differ only in
the version number).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, GroupProtocol
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.kafka.schema.walker import Walk, walk
from kafkasniff.model import Body

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
