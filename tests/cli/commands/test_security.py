"""`kafkasniff security`."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
SASL = CAPTURES / "java-sasl.pcap"
DENIED = CAPTURES / "java-denied.pcap"


@pytest.mark.parametrize(("level", "code"), [("error", 1), ("warning", 1), ("note", 1), ("never", 0)])
def test_exit_codes(level: str, code: int) -> None:
    assert command("security", "-q", "--fail-on", level, SASL).code == code


DENIALS = {
    # Operation in the client's report: API, kind of resource, resource.
    "create a topic": ("CreateTopics", "topic", "bonus"),
    "delete payroll": ("DeleteTopics", "topic", "payroll"),
    "read settings of a broker": ("DescribeConfigs", "cluster", None),
    "allow itself to read": ("CreateAcls", "cluster", None),
    "make a token for bob": ("CreateDelegationToken", "delegation token", None),
    "produce to payroll": ("Produce", "topic", "payroll"),
    "produce to salaries": ("Metadata", "topic", "salaries"),
    "produce idempotently": ("InitProducerId", "cluster", None),
    "begin transactions of payroll-run": ("InitProducerId", "transactional id", "payroll-run"),
    "begin transactions of salaries-run": ("FindCoordinator", "transactional id", "salaries-run"),
    "join payroll-readers": ("JoinGroup", "group", "payroll-readers"),
    "join salaries-readers": ("FindCoordinator", "group", "salaries-readers"),
    "fetch from payroll": ("Fetch", "topic", "payroll"),
    "commit for payroll-readers": ("OffsetCommit", "group", "payroll-readers"),
}


def test_denials_by_principal_and_resource() -> None:
    """A real authorizer denies what the client reports, and nothing else."""
    reported = [json.loads(line) for line in DENIED.with_suffix(".log.jsonl").read_text(encoding="utf-8").splitlines()]
    failed = {one["operation"]: one["error"] for one in reported if one["kind"] == "failed"}
    assert [one for one in failed if one not in DENIALS] == [
        "renew a token of admin",  # no ACL allows it
        "log in with a wrong password: SCRAM-SHA-512",
    ]
    (document,) = command("security", "-q", "--format", "json", DENIED).objects
    found = [one for one in document["findings"] if one["detector"] == "denied"]
    # One finding for each kind of resource; those of administration alone are warnings.
    assert [(one["severity"], one["subject"]["principal"], one["subject"]["resource_type"]) for one in found] == [
        ("error", "alice", "topic"),
        ("error", "alice", "cluster"),
        ("error", "alice", "group"),
        ("error", "alice", "transactional id"),
        ("warning", "alice", "delegation token"),
    ]
    denials = [
        (one["subject"]["error"], each["api"], one["subject"]["resource_type"], each["resource"])
        for one in found
        for each in one["values"]["denials"]
    ]
    assert sorted(denials, key=str) == sorted(((failed[one], *what) for one, what in DENIALS.items()), key=str)
    (refused,) = [one["values"] for one in document["findings"] if one["detector"] == "sasl-failures"]
    assert (refused["principal"], refused["mechanism"]) == ("bob", "SCRAM-SHA-512")


def test_findings_are_those_of_check() -> None:
    """With what follows from them, which other detectors find."""
    capture = CAPTURES / "faults" / "sasl-wrong-mechanism.pcap"
    findings = [
        json.loads(command(name, "-q", "--format", "json", capture).out)["findings"] for name in ("security", "check")
    ]
    names = {one["detector"] for one in findings[0]}
    assert findings[0] == [one for one in findings[1] if one["detector"] in names]
    assert any("Effects: " in one["meaning"] for one in findings[0])
