"""Findings quote the brokers' error messages, name what was refused and report each cause once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkasniff.analysis.detectors import Finding
from tests.analysis.detectors.talks import Talk, capture_of, checked
from tests.cli.console import kafkasniff

HOSTILE = "Key \x1b[2J\u202e of record\n" + "word " * 200


def found(path: Path, *talks: Talk) -> Sequence[Finding]:
    return checked(path / "crafted.pcap", [talk.ended() for talk in talks], "hidden-errors").findings


def refused(talk: Talk, *partitions: dict[str, Any], topic: str = "orders") -> None:
    response = {"responses": [{"name": topic, "partition_responses": list(partitions)}]}
    talk.ask("Produce", 8, {"acks": -1, "topic_data": []}, response)


def test_the_message_of_a_record_is_quoted(tmp_path: Path) -> None:
    talk = Talk()
    errors = [{"batch_index": 0, "batch_index_error_message": "the record has no key"}]
    for _ in range(2):
        refused(talk, {"index": 0, "error_code": 87, "record_errors": errors, "error_message": "one or more records"})
    (one,) = found(tmp_path, talk)
    assert one.severity == "error"
    assert one.title == (
        '2 Produce responses to crafted at 10.0.0.5 with partition-level error INVALID_RECORD for topic orders: "the '
        'record has no key"'
    )
    assert one.values["messages"] == ["the record has no key"]


def test_a_message_is_shortened_and_escaped(tmp_path: Path) -> None:
    talk = Talk()
    refused(talk, {"index": 0, "error_code": 87, "error_message": HOSTILE})
    (one,) = found(tmp_path, talk)
    assert '"Key \\x1b[2J\\u202e of record\\x0aword word' in one.title
    assert one.title.endswith(' word… +720"')
    assert len(one.title) < 500
    text = kafkasniff("check", "--fail-on", "never", capture_of(tmp_path / "same.pcap", [talk])).text
    assert "\x1b" not in text
    assert "\u202e" not in text


def coordinator(talk: Talk, version: int, key: str, key_type: int) -> None:
    asked = {"key": key} if version < 4 else {"coordinator_keys": [key]}
    answer = {"coordinators": [{"key": key, "error_code": 30, "error_message": "Not authorized."}]}
    talk.ask("FindCoordinator", version, {**asked, "key_type": key_type}, answer)


def test_groups_and_transactional_ids_are_named(tmp_path: Path) -> None:
    talk = Talk()
    coordinator(talk, 4, "workers", 0)
    (one,) = found(tmp_path, talk)
    assert (one.severity, one.values["names"]) == ("warning", ["workers"])
    assert 'with error GROUP_AUTHORIZATION_FAILED for group workers: "Not authorized."' in one.title
    talk = Talk()
    coordinator(talk, 4, "payments", 1)
    (one,) = found(tmp_path, talk)
    assert "for transactional id payments: " in one.title


def test_one_cause_is_one_finding(tmp_path: Path) -> None:
    """A stale controller epoch is reported once, although each partition of each topic has the error."""
    talk = Talk()
    topics = [
        {"topic_name": name, "partition_index": place, "error_code": 11}
        for name in ("orders", "stock", "bills", "users")
        for place in range(3)
    ]
    talk.ask("LeaderAndIsr", 2, {"controller_id": 1}, {"error_code": 0, "partition_errors": topics})
    (one,) = found(tmp_path, talk)
    assert one.title == (
        "1 LeaderAndIsr response to crafted at 10.0.0.5 with partition-level error STALE_CONTROLLER_EPOCH for topics "
        "bills, orders, stock and 1 more (12 in all)"
    )
    assert one.subject["topic"] is None
    assert one.values["topics"] == ["bills", "orders", "stock", "users"]


def test_two_clients_and_two_codes_are_not_one_cause(tmp_path: Path) -> None:
    one, other = Talk(), Talk("10.0.0.6", 50_000)
    refused(one, {"index": 0, "error_code": 87})
    refused(one, {"index": 0, "error_code": 29})
    refused(other, {"index": 0, "error_code": 87})
    assert sorted((each.subject["client_ip"], each.subject["error_code"]) for each in found(tmp_path, one, other)) == [
        ("10.0.0.5", 29),
        ("10.0.0.5", 87),
        ("10.0.0.6", 87),
    ]


def test_a_message_without_an_error_says_nothing(tmp_path: Path) -> None:
    talk = Talk()
    refused(talk, {"index": 0, "error_code": 0, "error_message": "all went well"})
    assert found(tmp_path, talk) == []
