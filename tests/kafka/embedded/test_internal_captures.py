"""Records of the brokers' own topics that a real client fetched, compared with what the coordinators' classes read.

The sidecar has each record as those classes read it: `captures/record/clients/java-4.4/InternalRecords.java`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.craft.read import read_packets
from tests.craft.write import write_pcap
from tests.evidence.compare import Line, snake
from tests.evidence.decoded import Decoded
from tests.evidence.internal_reports import internal_differences, internal_records
from tests.kafka.embedded.reading import CAPTURES, account
from tests.vectors.matching import our_name

NAME = "java-internal-topics.pcap"
TOPICS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}

Place = tuple[str, int, int]
"""Topic, partition and offset."""


def decoded(capture: Path, *options: str) -> tuple[Line, ...]:
    result = kafkasniff("decode", "--quiet", "--format", "json", capture, *options)
    assert (result.code, result.err) == (0, "")
    return tuple(result.objects)


@functools.cache
def lines() -> tuple[Line, ...]:
    return decoded(CAPTURES / NAME)


def records(printed: tuple[Line, ...]) -> dict[Place, dict[str, Any]]:
    """The records of the three topics by their place; each was fetched once."""
    found: dict[Place, dict[str, Any]] = {}
    for topic, partition, offset, _, record in internal_records(Decoded(printed, ())):
        assert topic is not None
        assert offset is not None
        assert found.setdefault((topic, partition, offset), record) is record
    return found


@functools.cache
def reported() -> dict[Place, dict[str, Any]]:
    """The records as Kafka's classes read them, by place."""
    return {(one["topic"], one["partition"], one["offset"]): one for one in account(NAME, "internal_record")}


def assert_all_is_read(printed: tuple[Line, ...]) -> None:
    """Every record that the client received is present, and equals what Kafka's classes read."""
    ours = records(printed)
    assert ours.keys() == reported().keys()
    for place, entry in reported().items():
        assert list(internal_differences(entry, ours[place])) == [], place


def test_each_record_is_what_the_coordinators_classes_read() -> None:
    assert_all_is_read(lines())


def test_there_is_something_to_compare() -> None:
    entries = reported().values()
    assert {entry["topic"] for entry in entries} == TOPICS
    types = {(entry["topic"], entry["type"]) for entry in entries}
    assert len(types) >= 15
    deleted = {entry["key_class"] for entry in entries if entry["value"] is None}
    assert {"OffsetCommitKey", "GroupMetadataKey", "ShareSnapshotKey"} <= deleted
    assert len({entry["value_class"] for entry in entries if entry["value"] is not None}) >= 15


def test_markers_of_transactions_are_left_as_they_are() -> None:
    """A commit and an abort, both with the offsets of a group; the client's reader does not return them."""
    markers = [
        one.record
        for one in Decoded(lines(), ()).consumed
        if one.topic == "__consumer_offsets" and "_control" in one.record
    ]
    assert [marker["_control"]["name"] for marker in markers] == ["COMMIT", "ABORT"]
    assert not any("_key" in marker or "_value" in marker for marker in markers)
    results = [entry["result"].upper() for entry in account(NAME, "transaction")]
    assert results == [marker["_control"]["name"] for marker in markers]
    (ends,) = [one["offsets"] for one in account(NAME, "end_offsets")]
    assert sum(ends.values()) == len(reported()) + len(markers)


def test_embedded_messages_of_classic_groups_are_read_as_in_requests() -> None:
    values = [record["_value"]["value"] for record in records(lines()).values() if record["_value"]]
    members = [member for value in values for member in value.get("members", ()) if isinstance(member, dict)]
    joined = {one["member_id"]: one for one in members}
    assert len(joined) == 1
    seen = Decoded(lines(), ())
    requests = [
        protocol
        for line in seen.messages("JoinGroup", "request", "classic-member")
        for protocol in line["body"]["protocols"]
    ]
    assignments = [
        line["body"]["_assignment"]
        for line in seen.messages("SyncGroup", "response", "classic-member")
        if "_assignment" in line["body"]
    ]
    (member,) = joined.values()
    assert member["_subscription"] in [protocol["_metadata"] for protocol in requests]
    assert member["_subscription"]["value"]["topics"] == ["orders"]
    assert member["_assignment"] in assignments
    # KIP-848: for a member with the classic protocol, the group keeps what the member offered.
    offered = [
        protocol
        for value in values
        for protocol in (value.get("classic_member_metadata") or {}).get("supported_protocols", ())
    ]
    assert offered
    assert {protocol["name"] for protocol in offered} == {"range"}
    reported_by_the_client = [
        protocol["_metadata"]
        for line in seen.messages("JoinGroup", "request", "older-member")
        for protocol in line["body"]["protocols"]
    ]
    assert all(protocol["_metadata"] in reported_by_the_client for protocol in offered)


def test_the_rule_of_names_is_that_of_the_vectors() -> None:
    def names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from names(one)

    found = {name for entry in reported().values() for part in ("key", "value") for name in names(entry[part])} - {
        "base64"
    }
    assert len(found) > 40
    assert {name: snake(name) for name in found} == {name: our_name(name) for name in found}


def late(tmp_path: Path) -> Path:
    """The capture from the reader's first Fetch request: it does not contain the messages with the topics' names."""
    (first,) = {
        line["first_packet"]
        for line in Decoded(lines(), ()).messages("Fetch", "request", "state-reader")
        if line["body"]["session_epoch"] == 0
    }
    return write_pcap(tmp_path / "late.pcap", read_packets(CAPTURES / NAME)[first - 1 :])


def fetched(printed: tuple[Line, ...]) -> list[dict[str, Any]]:
    """All records of Fetch responses without markers, for any topic name."""
    return [one.record for one in Decoded(printed, ()).consumed if "_control" not in one.record]


def test_names_learnt_later_serve_the_second_of_two_passes(tmp_path: Path) -> None:
    capture = late(tmp_path)
    guesses = [record.get(part) for record in fetched(decoded(capture)) for part in ("_key", "_value")]
    assert len(guesses) == 2 * len(reported())
    # A key of type 0 looks like a schema id: that guess is dropped as soon as the name is known.
    assert {guess["format"] for guess in guesses if guess is not None} == {"schema-registry"}
    assert_all_is_read(decoded(capture, "--two-pass"))


def test_names_from_a_file_serve_too(tmp_path: Path) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"{one['topic_id']} {one['topic']}\n" for one in account(NAME, "described_topic")))
    assert_all_is_read(decoded(late(tmp_path), "--topic-ids", str(ids)))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places with a plain value that is not our interpretation."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            if not name.startswith("_"):
                yield from places(item, (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from places(item, (*path, index))
    else:
        yield path


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"{value}x"


@pytest.mark.parametrize("part", ["_key", "_value"])
def test_the_comparison_sees_every_change(part: str) -> None:
    """One record of each type: any changed or missing value is reported."""
    seen: set[tuple[str, int]] = set()
    for place, record in records(lines()).items():
        entry = reported()[place]
        if (entry["topic"], entry["type"]) in seen or not record[part]:
            continue
        seen.add((entry["topic"], entry["type"]))
        for path in places(record[part]):
            for take_away in (False, True):
                wrong = copy.deepcopy(record)
                inner = inside(wrong[part], path[:-1])
                if take_away:
                    del inner[path[-1]]
                else:
                    inner[path[-1]] = other(inner[path[-1]])
                assert list(internal_differences(entry, wrong)), (place, path)
        assert list(internal_differences(entry, {**record, part: None})), place
    assert len(seen) >= 15


def inside(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value[step]
    return value
