"""The embedded messages of members of real groups, compared with the clients' reports."""

from __future__ import annotations

import pytest

from kafkasniff.model import Message
from tests.kafka.embedded.reading import account, connectors, messages, partitions, reported, task


@pytest.mark.parametrize(
    ("capture", "client"),
    [
        ("kafka-python-group.pcap", "python-member-0"),
        ("kafka-python-group.pcap", "python-member-1"),
        ("librdkafka-group-classic.pcap", "rdkafka-member-1"),
        ("librdkafka-group-classic.pcap", "rdkafka-member-2"),
    ],
)
def test_assignments_are_those_that_the_client_reports(capture: str, client: str) -> None:
    reported = [entry["partitions"] for entry in account(capture, "assigned") if entry["client_id"] == client]
    found = [
        partitions(one.body["_assignment"]["value"]["assigned_partitions"])
        for one in messages(capture, "SyncGroup", "response")
        if one.client_id == client and one.body and not one.body["error_code"]
    ]
    assert reported
    assert found == reported


def test_described_groups_are_those_that_the_client_reports() -> None:
    (reported,) = account("java-group-classic.pcap", "described_group")
    groups = [
        group
        for one in messages("java-group-classic.pcap", "DescribeGroups", "response")
        for group in one.body["groups"]
    ]
    members = [member for group in groups if group["group_state"] == "Stable" for member in group["members"]]
    found = {one["member_id"]: partitions(one["_member_assignment"]["value"]["assigned_partitions"]) for one in members}
    assert found == {one["member_id"]: sorted(one["assignment"]) for one in reported["members"]}
    assert {one["_member_metadata"]["value"]["topics"][0] for one in members} == {"events"}


def test_tasks_are_those_that_streams_report() -> None:
    name = "java-streams-classic.pcap"
    for client in {entry["client_id"] for entry in account(name, "tasks")}:
        reported = [
            (sorted(entry["active"]), sorted(entry["standby"]))
            for entry in account(name, "tasks")
            if entry["client_id"] == client
        ]
        found: list[tuple[list[str], list[str]]] = []
        for one in messages(name, "SyncGroup", "response"):
            if one.client_id == client and "_assignment" in one.body:
                value = one.body["_assignment"]["value"]["_user_data"]["value"]
                found.append(tuple(sorted(map(task, value[f"{kind}_tasks"])) for kind in ("active", "standby")))
        assert set(map(repr, reported)) <= set(map(repr, found))
        assert repr(found[-1]) == repr(reported[-1])


def test_workers_are_those_that_connect_reports() -> None:
    name = "java-connect.pcap"
    reported = {entry["client_id"]: entry["url"] for entry in account(name, "worker")}
    found = {
        one.client_id: protocol["_metadata"]["value"]["url"]
        for one in messages(name, "JoinGroup", "request")
        for protocol in one.body["protocols"]
        if one.client_id in reported
    }
    assert found == reported
    running = {(entry["connector"], entry["worker_id"]) for entry in account(name, "connector_status")}
    given = set()
    for one in messages(name, "SyncGroup", "response"):
        if one.client_id in reported and "_assignment" in one.body:
            for connector in connectors(one.body["_assignment"]["value"]["assignment"])[0]:
                given.add((connector, reported[one.client_id].removeprefix("http://").rstrip("/")))
    assert running <= given


def test_members_that_omit_their_last_fields() -> None:
    """kafka-go and @platformatic/kafka: version 1 of a subscription without `owned_partitions`."""
    name = "faults/groups-with-fields-missing.pcap"
    joined = [one.body or {} for one in messages(name, "JoinGroup", "request")]
    subscriptions = [protocol["_metadata"] for body in joined for protocol in body["protocols"]]
    assert {read["version"] for read in subscriptions} == {1}
    assert {tuple(read["value"]) for read in subscriptions} == {("topics", "user_data")}
    assert {topic for read in subscriptions for topic in read["value"]["topics"]} == {
        "group-metadata",
        "group-metadata-2",
    }
    assigned = [(one.body or {})["_assignment"]["value"] for one in messages(name, "SyncGroup", "response")]
    assert [partitions(one["assigned_partitions"]) for one in assigned] == [
        ["group-metadata-0", "group-metadata-1"],
        ["group-metadata-2-0", "group-metadata-2-1"],
    ]
    assert not [problem for one in reported(name) if isinstance(one, Message) for problem in one.problems]
