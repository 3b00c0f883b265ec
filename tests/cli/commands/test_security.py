"""`kafkasniff security`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.write import write_pcap

CAPTURES = ROOT / "captures"
SASL = CAPTURES / "java-sasl.pcap"


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
        text = command("security", "-q", "--format", form, SASL, CAPTURES / "old-raw-sasl.pcap").out
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


@pytest.fixture
def denied(tmp_path: Path) -> Path:
    """alice may not see a topic, nor join a group."""
    talk = Conversation()
    talk.handshake()
    talk.exchange(request_bytes(17, 1, 1, mechanism="PLAIN"), response_bytes(17, 1, 1, mechanisms=["PLAIN"]))
    talk.exchange(request_bytes(36, 1, 2, auth_bytes=b"\0alice\0hush"), response_bytes(36, 1, 2))
    talk.exchange(
        request_bytes(3, 5, 3, topics=[{"name": "payroll"}, {"name": "orders"}]),
        response_bytes(3, 5, 3, topics=[{"name": "payroll", "error_code": 29}, {"name": "orders"}]),
    )
    talk.exchange(request_bytes(11, 3, 4, group_id="auditors"), response_bytes(11, 3, 4, error_code=30))
    talk.exchange(request_bytes(11, 3, 5, group_id="auditors"), response_bytes(11, 3, 5, error_code=30))
    talk.close()
    return write_pcap(tmp_path / "denied.pcap", talk.packets)


def test_denials_by_principal_and_resource(denied: Path) -> None:
    (document,) = command("security", "-q", "--format", "json", denied).objects
    found = [one for one in document["findings"] if one["detector"] == "denied"]
    assert [one["severity"] for one in found] == ["warning"] * 2
    topic, group = sorted((one["title"] for one in found), key=lambda title: "auditors" in title)
    assert [word for word in ("alice", "payroll", "Metadata", "orders") if word in topic] == [
        "alice",
        "payroll",
        "Metadata",
    ]
    assert [word for word in ("alice", "auditors", "JoinGroup") if word not in group] == []
    done = command("security", "-q", "--fail-on", "warning", denied)
    assert done.code == Exit.FINDINGS
    assert topic in " ".join(done.text.split())
    assert "hush" not in done.text
    chosen = command("security", "-q", "--json", "--topic", "payroll", denied).objects[0]["findings"]
    assert [one["title"] for one in chosen if one["detector"] == "denied"] == [topic]


def test_an_export_is_refused(tmp_path: Path) -> None:
    assert command("export", "-q", SASL, "-o", tmp_path / "out").code == 0
    done = command("security", tmp_path / "out")
    assert done.code == 2
    assert "is an export, not a capture" in done.err
