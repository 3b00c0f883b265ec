"""What Streams, Connect, a schema registry's client and a client's counters report, held against the golden lines."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.evidence.decoded import Decoded, Entry, has, to_bytes


def _tasks(seen: Decoded, entry: Entry) -> bool:
    """A task is a part of the topology and a partition: `1_0`; a classic group gives it partitions of its topics."""
    partitions = {partition for task in entry["active"].values() for partition in task}
    tasks = {(part, int(number)) for part, _, number in (name.partition("_") for name in entry["active"])}
    given = [
        {(one["subtopology_id"], number) for one in line["body"]["active_tasks"] for number in one["partitions"]}
        for line in seen.messages("StreamsGroupHeartbeat", "response", entry["client_id"])
        if line["body"]["active_tasks"] is not None
    ]
    return tasks in given or partitions in seen.assignments(entry["client_id"])


def _worker(seen: Decoded, entry: Entry) -> bool:
    """A worker sends the others the address of its REST interface."""
    return any(
        one["name"] == entry["protocol"] and entry["url"].encode() in to_bytes(one["metadata"])
        for line in seen.messages("JoinGroup", "request", entry["client_id"])
        if has(line["body"], {"group_id": entry["group"], "protocol_type": "connect"})
        for one in line["body"]["protocols"]
    )


def _stored(seen: Decoded, topic: str, key: str) -> Iterator[Any]:
    """What a worker wrote under a key into one of Connect's topics."""
    for one in seen.produced:
        if (one.topic, one.record["key"]) == (topic, key):
            yield None if one.record["value"] is None else json.loads(one.record["value"])


def _configured(seen: Decoded, entry: Entry) -> bool:
    stored = _stored(seen, "connect-config", f"connector-{entry['connector']}")
    return any(value is not None and value["properties"] == entry["settings"] for value in stored)


def _connector_status(seen: Decoded, entry: Entry) -> bool:
    reported = {f"status-connector-{entry['connector']}": entry}
    reported |= {f"status-task-{entry['connector']}-{task['id']}": task for task in entry["tasks"]}
    return all(
        any(
            value is not None and has(value, {"state": one["state"], "worker_id": one["worker_id"]})
            for value in _stored(seen, "connect-status", key)
        )
        for key, one in reported.items()
    )


def _sink_wrote(seen: Decoded, entry: Entry) -> bool:
    values = {one.record["value"] for one in seen.consumed if one.topic == entry["topic"]}
    return set(entry["values"]) <= values


def _registered(seen: Decoded, entry: Entry) -> bool:
    """The serializers' two ways: a zero byte and the schema's id in front, or a one byte and its guid in a header."""
    topic, _, field = entry["subject"].rpartition("-")
    in_front = b"\0" + entry["schema_id"].to_bytes(4, "big")
    in_header = b"\1" + uuid.UUID(entry["guid"]).bytes
    for one in seen.produced:
        if one.topic != topic:
            continue
        if one.record[field] is not None and to_bytes(one.record[field]).startswith(in_front):
            return True
        for header in one.record["headers"]:
            if header["key"] == f"__{field}_schema_id" and to_bytes(header["value"]) == in_header:
                return True
    return False


def _counted_requests(seen: Decoded, entry: Entry) -> bool:
    found = Counter(
        str(line["api_key"])
        for line in seen.lines
        if line["type"] == "request" and line["client_id"] == entry["client_id"]
    )
    del found["18"]  # sarama does not count its ApiVersions requests
    return found == entry["by_api_key"]


APPLICATION_CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    "configured": _configured,
    "connector_status": _connector_status,
    "counted_requests": _counted_requests,
    "deleted_connector": lambda seen, entry: None in _stored(seen, "connect-config", f"connector-{entry['connector']}"),
    "registered": _registered,
    "sink_wrote": _sink_wrote,
    "tasks": _tasks,
    "worker": _worker,
}
