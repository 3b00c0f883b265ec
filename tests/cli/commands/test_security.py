"""`kafkasniff security`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
SASL = CAPTURES / "java-sasl.pcap"
DENIED = CAPTURES / "java-denied.pcap"


def test_text() -> None:
    done = command("security", "-q", SASL)
    text = done.out.decode()
    assert (done.code, done.err) == (0, "")
    assert text.startswith("1 error, 4 warnings in ")
    assert (
        "\n  127.0.0.1  alice  PLAIN succeeded  2 connections\n    sasl-plain · apache-kafka-java 4.3.1 · no TLS\n"
        in text
    )
    assert "\nerror    PLAIN without TLS: principal alice at " in text
    assert "--exchange N" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_summary_of_the_run_is_reported_as_by_decode() -> None:
    errors = command("security", SASL).err
    assert errors == command("decode", SASL).err
    assert errors.startswith("kafkasniff: 276 packets, 12 connections (12 Kafka), 150 messages, ")
    chosen = command("security", "-Y", 'client_id == "nobody"', SASL).err
    assert chosen == errors, "filters select what is shown, not what is read"


def test_json() -> None:
    document = json.loads(command("security", "-q", "--format", "json", SASL).out)
    assert list(document) == ["sources", "broken", "connections", "identities", "findings", "notes"]
    failed = [one for one in document["identities"] if one["authentication"] == "failed"]
    assert {one["principal"] for one in failed} == {"alice"}
    assert all(re.match(r"2026-11-21T", one["first"]) for one in document["identities"])
    assert document["findings"][0]["detector"] == "plaintext-credentials"
    assert document["findings"][0]["evidence"][0]["exchange"] == 3


@pytest.mark.parametrize(("level", "code"), [("error", 1), ("warning", 1), ("note", 1), ("never", 0)])
def test_exit_codes(level: str, code: int) -> None:
    assert command("security", "-q", "--fail-on", level, SASL).code == code


def test_less_severe_findings_do_not_fail() -> None:
    quiet = CAPTURES / "java-codecs.pcap"
    assert command("security", "-q", "--fail-on", "warning", quiet).code == 0
    assert command("security", "-q", "--fail-on", "note", quiet).code == 1


def test_several_captures_and_a_broken_one(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(SASL.read_bytes()[:20_000])
    done = command("security", "-q", CAPTURES / "java-codecs.pcap", cut)
    assert done.code == Exit.BROKEN
    assert b"sasl-plain" in done.out
    assert b"java-reader" in done.out


def test_no_secret_is_shown() -> None:
    for form in ("text", "json"):
        text = command("security", "-q", "--format", form, SASL, CAPTURES / "old-raw-sasl.pcap", DENIED).out
        assert b"-secret" not in text
        assert not re.search(rb"[A-Za-z0-9+/]{40,}", text)


def test_a_folder_and_standard_input(tmp_path: Path) -> None:
    one = command("security", "-q", SASL).text
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "sasl.pcap").write_bytes(SASL.read_bytes())
    assert command("security", "-q", "-", stdin=SASL.read_bytes()).text == one.replace(str(SASL), "-")
    by_address = [line for line in one.splitlines() if line.startswith("  ")]
    of_folder = command("security", "-q", tmp_path / "day").lines
    assert [line for line in of_folder if line.startswith("  ")] == by_address


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
    assert {(one["severity"], one["subject"]["principal"]) for one in found} == {("warning", "alice")}
    subjects = [tuple(one["subject"][key] for key in ("error", "api", "resource_type", "resource")) for one in found]
    assert sorted(subjects, key=str) == sorted(((failed[one], *what) for one, what in DENIALS.items()), key=str)
    (refused,) = [one["subject"] for one in document["findings"] if one["detector"] == "failed-authentication"]
    assert (refused["principal"], refused["mechanism"]) == ("bob", "SCRAM-SHA-512")


def test_denials_as_text() -> None:
    done = command("security", "-q", "--fail-on", "warning", DENIED)
    assert done.code == Exit.FINDINGS
    text = " ".join(done.text.split())
    assert "alice may not use group payroll-readers: GROUP_AUTHORIZATION_FAILED for JoinGroup, once" in text
    assert (text.count(" may not use "), text.count("An ACL is missing")) == (14, 1)
    chosen = command("security", "-q", "--json", "--topic", "salaries", DENIED).objects[0]["findings"]
    assert [one["subject"]["resource"] for one in chosen if one["detector"] == "denied"] == ["salaries"]


def test_an_export_is_refused(tmp_path: Path) -> None:
    assert command("export", "-q", SASL, "-o", tmp_path / "out").code == 0
    done = command("security", tmp_path / "out")
    assert done.code == 2
    assert "is an export, not a capture" in done.err
