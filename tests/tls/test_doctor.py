"""`tls doctor`: captures of real brokers with their secrets, without, with others, and from the middle on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import Result, kafkasniff
from tests.conftest import ROOT
from tests.craft.read import read_packets
from tests.craft.write import write_pcap

CAPTURES = ROOT / "captures" / "tls"
WITH_KEYS = CAPTURES / "tls13-kafkajs.pcapng"
OTHER_SECRET = f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n"


def diagnosed(*arguments: object) -> tuple[Result, list[tuple[str, int, str]]]:
    """State, number of connections and advice of each case."""
    result = kafkasniff("tls", "doctor", *arguments, "--format", "json")
    return result, [(one["state"], one["count"], one["advice"] or "") for one in result.objects[0]["cases"]]


@pytest.fixture
def without_keys(tmp_path: Path) -> Path:
    """The packets alone."""
    return write_pcap(tmp_path / "encrypted.pcap", read_packets(WITH_KEYS))


@pytest.mark.parametrize("name", ["tls13-kafkajs", "tls-agent-broker", "tls-agent-java"])
def test_secrets_of_clients_and_of_agents_decrypt_all(name: str) -> None:
    result, cases = diagnosed(CAPTURES / f"{name}.pcapng")
    assert result.code == 0
    assert {state for state, _, _ in cases} == {"decrypted"}
    assert result.objects[0]["sessions_with_secrets"] > 0


def test_no_key_log_and_one_of_others(without_keys: Path, tmp_path: Path) -> None:
    result, cases = diagnosed(without_keys)
    assert result.code == 1
    assert {(state, count) for state, count, _ in cases} == {("encrypted", 4), ("encrypted", 3)}
    assert "--keylog" in cases[0][2]
    (tmp_path / "other.log").write_text(OTHER_SECRET)
    result, cases = diagnosed(without_keys, "--keylog", tmp_path / "other.log")
    assert result.objects[0]["sessions_with_secrets"] == 1
    assert "another program" in cases[0][2]


def test_from_the_middle_on(tmp_path: Path) -> None:
    packets = read_packets(WITH_KEYS)
    result, cases = diagnosed(write_pcap(tmp_path / "middle.pcap", packets[16:]))
    assert result.code == 1
    assert any("before the client connects" in advice for _, _, advice in cases)


def test_sessions_of_tls_1_2_that_are_resumed() -> None:
    _, cases = diagnosed(CAPTURES / "tls12-resumed.pcapng")
    assert sum(count for state, count, _ in cases if state == "decrypted") == 2
    assert sum(count for state, count, advice in cases if "session caches" in advice) == 5


def test_handshakes_that_fail() -> None:
    result = kafkasniff("tls", "doctor", CAPTURES / "tls-refused.pcap")
    assert result.code == 1
    assert b"the client ended the handshake with the alert unknown_ca" in result.out
    assert b"the server answered the client's part of the handshake with a record as short" in result.out
    assert result.out.count(b"See why the handshake failed") == 1
