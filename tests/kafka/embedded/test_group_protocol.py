"""Bytes of JoinGroup, SyncGroup and DescribeGroups, against Kafka's classes."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.kafka.embedded.internal_topics import assignment, metadata, sync_group_response
from kafkasniff.kafka.schema.context import MAX_GROUPS, ConnectionMemory, DecodeContext, DecodeOptions, GroupProtocol

GROUP_VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parent / "group_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
CONSUMER = GroupProtocol("consumer", "range")
ORDERS = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
ORDERS_0 = b"\0\0\0\0\0\1\0\6orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
READERS = {"metadata": metadata, "assignment": assignment}


def context(memory: ConnectionMemory | None = None, request: object = None) -> DecodeContext:
    return DecodeContext(DecodeOptions(), 0, memory, request)


def partitions(topics: Iterable[dict[str, Any]]) -> list[str]:
    """`orders-0`, `orders-1` … of topics with their partitions."""
    return sorted(f"{topic['topic']}-{number}" for topic in topics for number in topic["partitions"])


def task(one: dict[str, Any]) -> str:
    """A task of Kafka Streams as it prints them: `0_1`, in a named topology `name__0_1`."""
    name = "".join(map(chr, one.get("named_topology", ())))
    return (
        f"{name}__{one['topic_group_id']}_{one['partition']}" if name else f"{one['topic_group_id']}_{one['partition']}"
    )


def connectors(items: list[dict[str, Any]] | None) -> tuple[list[str], list[str]]:
    """Connectors and tasks (`copy-0`) assigned to a Connect worker."""
    found = items or []
    return (
        sorted(one["connector"] for one in found if -1 in one["tasks"]),
        sorted(f"{one['connector']}-{number}" for one in found for number in one["tasks"] if number != -1),
    )


def hosts(value: dict[str, Any], field: str) -> dict[str, list[str]]:
    topics = {one["index"]: one["topic"] for one in value.get("topic_dictionary", ())}
    return {
        f"{host['host']}:{host['port']}": sorted(
            f"{one.get('topic') or topics[one['topic_index']]}-{one['partition']}" for one in host["partitions"]
        )
        for host in value.get(field, ())
    }


def as_streams_say(kind: str, read: dict[str, Any]) -> dict[str, Any]:
    assert read["format"] == "stream"
    value = read["value"]
    assert read["version"] == value["version"]
    if kind == "metadata":
        sums = value.get("task_offset_sums", ())
        offsets = {
            (one["topic_group_id"], part["partition"]): part["offset_sum"]
            for one in sums
            for part in one.get("partition_to_offset_sum", [one])
        }
        old = {name: {task(one) for one in value.get(name, ())} for name in ("prev_tasks", "standby_tasks")}
        # -2 means that the member runs the task (Task.LATEST_OFFSET).
        active = {f"{group}_{number}" for (group, number), offset in offsets.items() if offset == -2}
        standby = {f"{group}_{number}" for (group, number), offset in offsets.items() if offset != -2}
        return {
            "version": read["version"],
            "process": str(uuid.UUID(bytes=base64.urlsafe_b64decode(value["process_id"] + "=="))),
            "previous": sorted(active | old["prev_tasks"]),
            "standby": sorted(standby | old["standby_tasks"]),
            "endpoint": value["user_end_point"].decode() if "user_end_point" in value else None,
        }
    return {
        "version": read["version"],
        "active": sorted(map(task, value["active_tasks"])),
        "standby": {
            task(one): sorted(f"{part['topic']}-{part['partition']}" for part in one["partitions"])
            for one in value["standby_tasks"]
        },
        "hosts": hosts(value, "partitions_by_host"),
        "standby_hosts": hosts(value, "standby_partitions_by_host"),
        "error": value.get("error_code", 0),
        "next": value.get("next_rebalance_ms"),
    }


def as_consumers_say(kind: str, assignor: str, read: dict[str, Any]) -> dict[str, Any]:
    value = read["value"]
    if kind == "assignment":
        reported: dict[str, Any] = {"partitions": partitions(value["assigned_partitions"])}
    else:
        reported = {
            "topics": value["topics"],
            "partitions": partitions(value.get("owned_partitions", ())),
            "generation": value.get("generation_id", -1),
            "rack": value.get("rack_id"),
        }
    data = value.get("_user_data")
    if assignor == "stream":
        reported["user_data"] = as_streams_say(kind, data)
    elif data is not None:
        assert data["format"] == assignor
        inside = data["value"]
        reported["user_data"] = {
            **({"partitions": partitions(inside["previous_assignment"])} if "previous_assignment" in inside else {}),
            **({"generation": inside["generation"]} if "generation" in inside else {}),
        }
        assert data["version"] == int("generation" in inside and assignor == "sticky")
    elif kind == "metadata":
        reported["user_data"] = {}
    return reported


def as_workers_say(kind: str, read: dict[str, Any]) -> dict[str, Any]:
    value = read["value"]
    if kind == "metadata":
        reported: dict[str, Any] = {"url": value["url"], "offset": value["config_offset"]}
        if "_allocation" in value:
            reported["allocation"] = as_workers_say("assignment", value["_allocation"])
        return reported
    reported = {name: value[name] for name in ("error", "leader")} | {"url": value["leader_url"]}
    reported["offset"] = value["config_offset"]
    reported["connectors"], reported["tasks"] = connectors(value["assignment"])
    if read["version"]:
        reported["revoked_connectors"], reported["revoked_tasks"] = connectors(value["revoked"])
        reported["delay"] = value["delay"]
    return reported


@pytest.mark.parametrize("vector", GROUP_VECTORS, ids=lambda one: f"{one['protocol']}-{one['kind']}-{one['version']}")
def test_messages_of_members(vector: dict[str, Any]) -> None:
    reported = context()
    protocol = GroupProtocol(vector["type"], vector["protocol"])
    found = READERS[vector["kind"]](base64.b64decode(vector["bytes"]), protocol, reported, "here")
    assert reported.problems == []
    assert found is not None
    assert (found["format"], found["version"]) == (vector["type"], vector["version"])
    if vector["type"] == "connect":
        assert as_workers_say(vector["kind"], found) == vector["told"]
        return
    expected = vector["told"]
    ours = as_consumers_say(vector["kind"], vector["protocol"], found)
    if vector["protocol"] == "stream":
        inside = expected["user_data"]
        version = inside["version"]
        assert {name: ours[name] for name in expected if name != "user_data"} == {
            name: value for name, value in expected.items() if name != "user_data"
        }
        # Kafka's getters return defaults for fields that a version lacks.
        lacks = (
            {"endpoint": 2} if vector["kind"] == "metadata" else {"hosts": 2, "standby_hosts": 6, "error": 4, "next": 7}
        )
        compared = [name for name in inside if version >= lacks.get(name, 1)]
        assert {name: ours["user_data"][name] for name in compared} == {name: inside[name] for name in compared}
    else:
        assert ours == expected


# Bytes of other clients: fields are missing at the end, and their groups work.


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        # kafka-go 0.4: joingroup.go, groupMetadata; consumergroup.go has version 1.
        ("metadata", b"\0\1" + ORDERS[2:], {"topics": ["orders"], "user_data": None}),
        # @platformatic/kafka 1: consumer.js, #encodeProtocolSubscriptionMetadata; its default protocol has version 1.
        ("metadata", b"\0\1\0\0\0\1\0\6orders\0\0\0\0", {"topics": ["orders"], "user_data": b""}),
        # pykafka 2.8: group_membership.py, MemberAssignment.
        ("assignment", b"\0\1" + ORDERS_0[2:-4], {"assigned_partitions": [{"topic": "orders", "partitions": [0]}]}),
        ("assignment", b"\0\1\0\0\0\0", {"assigned_partitions": []}),
        # faust: partition_assignor.py, PartitionAssignor.version is 4.
        ("metadata", b"\0\4\0\0\0\1\0\6orders\0\0\0\2{}", {"topics": ["orders"], "user_data": b"{}"}),
        # Only a version, which kafka-go and @platformatic/kafka read as no partitions.
        ("assignment", b"\0\0", {}),
        ("metadata", b"\0\0\0\0\0\1\0\6orders", {"topics": ["orders"]}),
    ],
    ids=["kafka-go", "platformatic", "pykafka", "pykafka-empty", "faust", "version-alone", "topics-alone"],
)
def test_fields_missing_at_the_end_are_no_problem(kind: str, data: bytes, value: dict[str, Any]) -> None:
    reported = context()
    found = READERS[kind](data, CONSUMER, reported, "here")
    assert found == {"format": "consumer", "version": data[1], "value": value}
    assert reported.problems == []


@pytest.mark.parametrize(
    ("kind", "data", "kept"),
    [
        ("metadata", ORDERS[:-1], ["topics"]),
        ("metadata", ORDERS[:-4] + b"\0\0\0\5", ["topics"]),
        ("metadata", b"\0\1" + ORDERS[2:] + b"\0\0\0\1", ["topics", "user_data"]),
        ("metadata", b"\0\1" + ORDERS[2:] + b"\0\0\0\1\0\6orders", ["topics", "user_data", "owned_partitions"]),
        ("metadata", b"\0\0\0\0\0\2\0\6orders", ["topics"]),
        ("metadata", b"\0\0\0\0\0\1\0\2\xff\xff", ["topics"]),
        ("assignment", ORDERS_0[:-8], ["assigned_partitions"]),
        ("assignment", b"\0", None),
        ("assignment", b"\xff\xff", None),
    ],
)
def test_bytes_that_end_within_a_field_are_a_problem(kind: str, data: bytes, kept: list[str] | None) -> None:
    reported = context()
    found = READERS[kind](data, CONSUMER, reported, "here")
    assert {problem.kind for problem in reported.problems} == {"group-protocol"}
    assert (None if found is None else list(found["value"])) == kept
    # Workers of Connect write all fields, where a consumer's bytes might end.
    worker = context()
    metadata(b"\0\0\0\6worker", GroupProtocol("connect", None), worker, "here")
    assert {problem.kind for problem in worker.problems} == {"group-protocol"}


# Sources of the protocol type.


@pytest.mark.parametrize(
    ("data", "read"),
    [
        *((ORDERS_0, True), (ORDERS_0 + b"\0", False), (ORDERS_0[:-1], False), (b"\0\x09" + ORDERS_0[2:], False)),
        *((ORDERS_0.replace(b"orders", b"or ers"), False), (b"\0\0\0\0\0\0\xff\xff\xff\xff", False), (b"", False)),
        (ORDERS_0[:-4], False),
    ],
    ids=["consumer", "more", "cut", "newer", "no topic name", "no topics", "empty", "no user data"],
)
def test_without_a_type_only_certain_consumer_messages_are_read(data: bytes, read: bool) -> None:
    body = {"assignment": data}
    reported = context()
    sync_group_response(body, 3, reported)
    assert ("_assignment" in body) is read
    assert reported.problems == []


def test_the_memory_is_bounded_and_keeps_recent_groups() -> None:
    memory = ConnectionMemory()
    for number in range(MAX_GROUPS):
        memory.remember_group(f"g{number}", CONSUMER)
    memory.remember_group("g0", CONSUMER)
    memory.remember_group("one more", CONSUMER)
    assert memory.group_protocol("g0") == CONSUMER
    assert memory.group_protocol("g1") is None
    assert memory.group_protocol("g2") == CONSUMER
