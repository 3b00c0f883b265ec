"""`kafkasniff security` and a real broker with SASL and ACLs: it names who was denied what, and who was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from captures.record.journal import read_reports
from kafkasniff.kafka.schema.errors import error_by_code
from tests.cli.console import kafkasniff
from tests.integration.secured import CAPTURE

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]

TOPIC, GROUP = "payroll", "payroll-readers"


@pytest.fixture
def reports(secured_run: Path) -> list[dict[str, Any]]:
    """What the client reports: it lets no other outcome pass than those that are tested here."""
    return [dict(one) for one in read_reports(secured_run / "client.out")]


@pytest.fixture
def view(secured_run: Path) -> dict[str, Any]:
    (found,) = kafkasniff("security", "-q", "--format", "json", secured_run / CAPTURE).objects
    assert isinstance(found, dict)
    return found


def test_denials_by_principal_and_resource(reports: list[dict[str, Any]], view: dict[str, Any]) -> None:
    reported = {(one["user"], one["error_code"]) for one in reports if one.get("error_code")}
    denied = [one for one in view["findings"] if one["detector"] == "denied"]
    assert {(who, one["subject"]["error"]) for one in denied for who in one["values"]["principals"]} == {
        (user, found.name) for user, code in reported if (found := error_by_code(code)) is not None
    }
    # A consumer may ask for its topic before it knows that it may not join.
    assert {
        (*one["values"]["principals"], one["subject"]["resource_type"], each["resource"], each["api"])
        for one in denied
        for each in one["values"]["denials"]
    } == {
        # Both may not use the topic: one finding.
        ("alice", "bob", "topic", TOPIC, "Metadata"),
        ("alice", "bob", "topic", TOPIC, "Produce"),
        ("alice", "group", GROUP, "FindCoordinator"),
    }
    clients = " ".join(name for one in denied for name in one["values"]["worst_clients"])
    assert all(name in clients for name in ("alice-asks", "alice-joins", "bob-produces"))


def test_logins_and_refusals_with_the_brokers_reason(reports: list[dict[str, Any]], view: dict[str, Any]) -> None:
    refused = {(one["user"], one["mechanism"]) for one in reports if one["kind"] == "refused"}
    assert refused == {("alice", "PLAIN"), ("bob", "SCRAM-SHA-256")}
    failed = [one for one in view["identities"] if one["authentication"] == "failed"]
    assert {(one["principal"], one["mechanism"]) for one in failed} == refused
    assert {one["client_ids"][0] for one in failed} == {"alice-guesses", "bob-guesses"}
    assert {one["reason"] for one in failed} == {
        "SASL_AUTHENTICATION_FAILED: Authentication failed: Invalid username or password",
        "SASL_AUTHENTICATION_FAILED: Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256",
    }
    found = {one["values"]["principal"] for one in view["findings"] if one["detector"] == "sasl-failures"}
    assert found == {"alice", "bob"}
    assert {
        (one["principal"], one["mechanism"]) for one in view["identities"] if one["authentication"] == "succeeded"
    } == {("alice", "PLAIN"), ("bob", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")}


def test_no_password_is_shown(secured_run: Path, view: dict[str, Any]) -> None:
    assert "-secret" not in json.dumps(view)
    assert "-secret" not in kafkasniff("security", "-q", secured_run / CAPTURE).text
