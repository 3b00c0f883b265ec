"""Data that members of a classic group exchange through the broker, in JoinGroup, SyncGroup and DescribeGroups.

The broker does not interpret these bytes; the group's protocol type determines their format: `consumer` (also Kafka
Streams) and `connect`. For other types nothing is added. The type comes from the message, its request, or an earlier
message of a member on this connection, in this order. If it is unknown (SyncGroup before v5 on a connection whose
JoinGroup is not in the capture), bytes are only decoded if they are exactly a consumer's data about topics with legal
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkasniff.kafka.embedded import connect_protocol, consumer_protocol
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.memory import GroupProtocol
from kafkasniff.model import Body

__all__ = [
    "assignment",
    "describe_groups_response",
    "join_group_request",
    "join_group_response",
    "metadata",
    "sync_group_request",
    "sync_group_response",
]

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
        if found is None or trial.problems or found["version"] > consumer_protocol.NEWEST:
            return None
        if "user_data" not in found["value"]:
            return None
        topics = [item["topic"] if isinstance(item, dict) else item for item in found["value"][self.topics]]
        legal = all(isinstance(topic, str) and _TOPIC.fullmatch(topic) for topic in topics)
        return found if topics and legal else None


_METADATA: Final = _Said(consumer_protocol.subscription, "topics", connect_protocol.worker_state)
_ASSIGNMENT: Final = _Said(consumer_protocol.assignment, "assigned_partitions", connect_protocol.assignment)


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
