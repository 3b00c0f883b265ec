"""Summaries of groups: coordinators, membership of all protocols, committed offsets."""

from __future__ import annotations

from typing import Final

from kafkasniff.model import Body
from kafkasniff.sinks.names import enum_name
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.members import assigned, joins
from kafkasniff.sinks.summaries.phrases import (
    Summarise,
    address,
    amount,
    count,
    few,
    first_words,
    lists,
    named_partitions,
    partitions,
    rows,
)

__all__ = ["REQUESTS", "RESPONSES"]


def _group(body: Body) -> str:
    return f"group {word(body.get('group_id'))}"


def _member(body: Body) -> str:
    member = body.get("member_id")
    text = f"member {word(member)}" if member else "new member"
    instance = body.get("group_instance_id", body.get("instance_id"))
    return f"{text}, instance {word(instance)}" if instance is not None else text


def _offset_commit_request(body: Body) -> str:
    offsets = few([f"{name} at {item.get('committed_offset')}" for name, item in partitions(body.get("topics"))])
    return f"{_group(body)}, {offsets or 'nothing'}"


def _good_partitions(body: Body) -> str:
    return named_partitions(body.get("topics"))


def _offset_fetch_request(body: Body) -> str:
    groups = rows(body.get("groups")) if "groups" in body else [body]
    parts = []
    for group in groups:
        topics = group.get("topics")
        named = named_partitions(topics, "partition_indexes")
        parts.append(f"{_group(group)}, {'all partitions' if topics is None else named or 'nothing'}")
    return few(parts, "; ")


def _offset_fetch_response(body: Body) -> str:
    parts = []
    for group in rows(body.get("groups")) if "groups" in body else [body]:
        found = [(name, item) for name, item in partitions(group.get("topics")) if not item.get("error_code")]
        # -1: nothing is committed there.
        offsets = [
            f"{name} none" if item.get("committed_offset") == -1 else f"{name} at {item.get('committed_offset')}"
            for name, item in found
        ]
        if offsets:
            parts.append(few(offsets))
    return "; ".join(parts)


def _find_coordinator_request(body: Body) -> str:
    kind = (enum_name("coordinator_type", body.get("key_type", 0)) or f"type {body.get('key_type')}").lower()
    keys = [body["key"]] if "key" in body else lists(body.get("coordinator_keys"))
    return f"{kind} {first_words(keys)}"


def _find_coordinator_response(body: Body) -> str:
    found = rows(body.get("coordinators")) if "coordinators" in body else [body]
    parts = []
    for item in found:
        if not item.get("error_code") and "node_id" in item:
            key = f"{word(item['key'])} at " if "key" in item else ""
            parts.append(f"{key}broker {item['node_id']} {address(item)}")
    return few(parts, "; ")


def _join_group_request(body: Body) -> str:
    protocols = rows(body.get("protocols"))
    parts = [_group(body), _member(body), first_words([item.get("name") for item in protocols])]
    # A member says the same with each protocol that it knows.
    told = next(filter(None, (joins(item.get("_metadata")) for item in protocols)), "")
    if told:
        parts.append(told)
    return ", ".join(parts)


def _join_group_response(body: Body) -> str:
    member = body.get("member_id")
    if body.get("error_code"):
        # MEMBER_ID_REQUIRED gives the id to come back with.
        return f"member {word(member)}" if member else ""
    parts = [f"generation {body.get('generation_id')}", f"member {word(member)}"]
    protocol = body.get("protocol_name")
    if protocol:
        parts.append(word(protocol))
    if body.get("leader") == member:
        parts.append(f"leads {count(len(lists(body.get('members'))), 'member')}")
    return ", ".join(parts)


def _generation(body: Body) -> str:
    return f"{_group(body)}, generation {body.get('generation_id')}, {_member(body)}"


def _sync_group_request(body: Body) -> str:
    assignments = rows(body.get("assignments"))
    if not assignments:
        return _generation(body)
    read = [assigned(item.get("_assignment")) for item in assignments]
    told = few([one for one in read if one is not None], "; ")
    return f"{_generation(body)}, assigns {count(len(assignments), 'member')}{f': {told}' if told else ''}"


def _assignment(value: object) -> str:
    """What a group member was given, where its bytes were read; else their number."""
    if isinstance(value, bytes):
        return f"assignment {amount(len(value))}"
    return ""


def _sync_group_response(body: Body) -> str:
    if body.get("error_code"):
        return ""
    told = assigned(body.get("_assignment"))
    return _assignment(body.get("assignment")) if told is None else f"assigned {told}"


def _leave_group_request(body: Body) -> str:
    if "members" in body:
        return f"{_group(body)}, {few([_member(item) for item in rows(body['members'])])}"
    return f"{_group(body)}, {_member(body)}"


def _describe_groups_request(body: Body) -> str:
    return f"groups {first_words(lists(body.get('groups', body.get('group_ids'))))}"


def _described(body: Body) -> str:
    parts = []
    for item in rows(body.get("groups")):
        if not item.get("error_code"):
            members = count(len(lists(item.get("members"))), "member")
            # The assignor of a classic group; consumer groups and the others have a name for it in another field.
            assignor = item.get("protocol_data") or item.get("assignor_name")
            told = f" {word(assignor)}" if assignor else ""
            parts.append(f"{word(item.get('group_id'))} {word(item.get('group_state'))} {members}{told}")
    return few(parts, "; ")


def _list_groups_request(body: Body) -> str:
    states, types = lists(body.get("states_filter")), lists(body.get("types_filter"))
    parts = [f"states {first_words(states)}"] if states else []
    if types:
        parts.append(f"types {first_words(types)}")
    return ", ".join(parts) or "all groups"


def _list_groups_response(body: Body) -> str:
    groups = rows(body.get("groups"))
    named = few([word(item.get("group_id")) for item in groups])
    return f"{count(len(groups), 'group')} {named}".rstrip()


def _delete_groups_request(body: Body) -> str:
    return f"groups {first_words(lists(body.get('groups_names')))}"


def _delete_groups_response(body: Body) -> str:
    return few([word(item.get("group_id")) for item in rows(body.get("results")) if not item.get("error_code")])


def _offset_delete_request(body: Body) -> str:
    return f"{_group(body)}, {named_partitions(body.get('topics'))}"


def _epoch(body: Body) -> str:
    epoch = body.get("member_epoch")
    code = enum_name("group_member_epoch", epoch)
    return f"epoch {epoch}" if code is None else code.lower().replace("_", " ")


def _heartbeat_request(body: Body) -> str:
    """Of the new protocols (KIP-848, KIP-932, KIP-1071): members send only what changed."""
    parts = [_group(body), _member(body), _epoch(body)]
    topics = body.get("subscribed_topic_names")
    if topics is not None:
        parts.append(f"subscribes {first_words(lists(topics)) or 'nothing'}")
    regex = body.get("subscribed_topic_regex")
    if regex:
        parts.append(f"subscribes regex {word(regex)}")
    if body.get("topic_partitions") is not None:
        parts.append(f"owns {named_partitions(body['topic_partitions']) or 'nothing'}")
    if body.get("topology") is not None:
        parts.append("topology")
    return ", ".join(parts)


def _heartbeat_response(body: Body) -> str:
    if body.get("error_code"):
        return ""
    parts = [f"epoch {body.get('member_epoch')}"]
    member = body.get("member_id")
    if member:
        parts.insert(0, f"member {word(member)}")
    assignment = body.get("assignment")
    if isinstance(assignment, dict):
        parts.append(f"assigned {named_partitions(assignment.get('topic_partitions')) or 'nothing'}")
    for role in ("active", "standby", "warmup"):
        tasks = body.get(f"{role}_tasks")
        if tasks:
            parts.append(f"{sum(len(lists(task.get('partitions'))) for task in rows(tasks))} {role} tasks")
    return ", ".join(parts)


REQUESTS: Final[dict[int, Summarise]] = {
    8: _offset_commit_request,
    9: _offset_fetch_request,
    10: _find_coordinator_request,
    11: _join_group_request,
    12: _generation,
    13: _leave_group_request,
    14: _sync_group_request,
    15: _describe_groups_request,
    16: _list_groups_request,
    42: _delete_groups_request,
    47: _offset_delete_request,
    68: _heartbeat_request,
    69: _describe_groups_request,
    76: _heartbeat_request,
    77: _describe_groups_request,
    88: _heartbeat_request,
    89: _describe_groups_request,
}
"""By API key."""

RESPONSES: Final[dict[int, Summarise]] = {
    8: _good_partitions,
    9: _offset_fetch_response,
    10: _find_coordinator_response,
    11: _join_group_response,
    14: _sync_group_response,
    15: _described,
    16: _list_groups_response,
    28: _good_partitions,
    42: _delete_groups_response,
    47: _good_partitions,
    68: _heartbeat_response,
    69: _described,
    76: _heartbeat_response,
    77: _described,
    88: _heartbeat_response,
    89: _described,
}
