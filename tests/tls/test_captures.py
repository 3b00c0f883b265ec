"""Captures of real brokers with TLS (`captures/tls`): the clients' own logs, tshark, and what `tls doctor` says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.tls.descriptions import CLIENT_LEFT, LEFT_AT_ONCE
from tests.cli.console import Result, kafkasniff
from tests.conftest import ROOT
from tests.craft.outcome import Line, packets_outcome
from tests.craft.read import read_packets
from tests.craft.write import write_pcap
from tests.tls import captured
from tests.tls.captured import ENTRIES, WITH_SECRETS, by_connection, packets, sidecar

every_decrypted = pytest.mark.parametrize("name", WITH_SECRETS)

TOLD = ("api_key", "api_version", "correlation_id", "client_id", "client_port", "size")


def messages(name: str, kind: str) -> list[Line]:
    """kafkasniff's messages with the field names of sidecars."""
    found = [line for line in captured.outcome(name).lines if line["type"] == kind]
    return [line | {"client_port": int(line["client"].rpartition(":")[2])} for line in found]


def differing(name: str, kind: str) -> tuple[Counter[Any], Counter[Any]]:
    """Messages that only kafkasniff has, and that only the client's log has, by the fields of its lines."""
    said = [line for line in sidecar(name) if line["kind"] == kind]
    reported = [field for field in TOLD if all(field in line for line in said)]
    assert len(reported) > 2
    seen = Counter(tuple(line[field] for field in reported) for line in messages(name, kind))
    logged = Counter(tuple(line[field] for field in reported) for line in said)
    return seen - logged, logged - seen


@every_decrypted
def test_the_requests_are_those_of_the_clients_log(name: str) -> None:
    assert ENTRIES[name]["requests_complete"]
    assert differing(name, "request") == (Counter(), Counter())


@every_decrypted
def test_every_connection_is_decrypted(name: str) -> None:
    found = captured.outcome(name)
    # A client that closes while it waits for records, or while they come.
    closed = {"request-unanswered", "stream-cut"} if name == "tls-agent-broker" else {"request-unanswered"}
    assert {line["kind"] for line in found.problems} <= closed
    summary = found.summary
    assert (summary.bytes_lost, summary.not_kafka, summary.undecided) == (0, 0, 0)
    assert summary.bytes_decoded + summary.bytes_skipped == summary.bytes_stream


# -- without secrets -------------------------------------------------------------------------------------------------


@every_decrypted
def test_without_secrets_each_connection_is_one_problem(name: str) -> None:
    """It has the version and the cipher that the handshake agreed on, and for TLS 1.2 the certificate's subject."""
    found = packets_outcome(packets(name))
    talks = {line["connection"] for line in captured.outcome(name).lines}
    assert sorted(line["connection"] for line in found.lines) == sorted(talks)
    for line in found.lines:
        assert (line["type"], line["kind"]) == ("problem", "tls-not-decrypted")
        reported = re.search(r": this is TLS (1\.[23]) with (TLS_\w+), (.*?), (.*?), (.*); (.*)$", line["detail"])
        assert reported, line["detail"]
        version, cipher, server_name, alpn, certificate, reason = reported.groups()
        assert cipher in CIPHERS[version]
        assert server_name in {"server name localhost", "no server name"}
        assert alpn == "no ALPN"
        assert certificate in CERTIFICATES[version]
        assert reason == "there are no keys for it (--keylog FILE)"


CIPHERS = {
    "1.2": {
        *("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        *("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
        *("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    },
    "1.3": {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"},
}
CERTIFICATES = {
    # A resumed session shows none.
    "1.2": {"certificate of CN=broker.example,O=Captures", "no certificate captured"},
    "1.3": {"certificate not visible (TLS 1.3)"},
}


# -- mistakes --------------------------------------------------------------------------------------------------------


def reasons(name: str) -> dict[int, list[str]]:
    """The reports about connections that cannot be read as Kafka, by the place of their listener."""
    ports = ENTRIES[name]["broker_ports"]
    found: dict[int, list[str]] = {}
    for line in captured.outcome(name).lines:
        if line["type"] == "problem" and line["kind"] in ("tls-not-decrypted", "answer-not-kafka"):
            packet = packets(name)[line["packet"] - 1]
            port = packet.dport if packet.dport in ports else packet.sport
            found.setdefault(ports.index(port), []).append(line["detail"])
    return found


REFUSED = (
    ("1.2", "the client ended the handshake with the alert unknown_ca (48)"),
    ("1.3", "the client ended the handshake with the alert unknown_ca (48)"),
    (
        "1.2",
        "the other side ended the handshake with the alert bad_certificate (42): the server asked for a certificate, "
        "and the client has none",
    ),
    # Alerts of a server are encrypted in TLS 1.3.
    (
        "1.3",
        "the server answered the client's part of the handshake with a record as short as an alert: it refused the "
        "client; the server asked for a certificate, and the client has none",
    ),
    ("1.3 offered by the client", "the other side ended the handshake with the alert handshake_failure (40)"),
)
"""For each listener of the scenario: what was negotiated, and why it ended. librdkafka logged the same."""


def test_failed_handshakes() -> None:
    found = reasons("tls-refused")
    assert sorted(found) == list(range(len(REFUSED)))
    for place, (version, reason) in enumerate(REFUSED):
        # When the client program finished, it dropped its last attempt in the middle of the handshake.
        *whole, last = found[place]
        assert whole
        for detail in whole:
            assert f"this is TLS {version}" in detail
            assert detail.endswith(f"; {reason}")
        dropped = ("it ended before its handshake was complete", CLIENT_LEFT, LEFT_AT_ONCE)
        assert last.endswith(tuple(f"; {why}" for why in (reason, *dropped)))
    said = [" ".join(line["told"]) for line in sidecar("tls-refused") if line["kind"] == "failed"]
    for text, words in zip(
        said, ("verify failed", "verify failed", "bad certificate", "bad certificate", "handshake failure"), strict=True
    ):
        assert words in text


# -- disturbances ----------------------------------------------------------------------------------------------------


def test_a_resumed_session_whose_secret_was_not_logged() -> None:
    """Go logs no secret for later connections of a TLS 1.2 session; tshark cannot decrypt them either."""
    found = captured.outcome(captured.RESUMED)
    assert len(by_connection(found.lines)) == 2  # one by name and one by address, as the client caches sessions
    refused = {line["connection"]: line["detail"] for line in found.problems}
    assert len(refused) == 5
    for detail in refused.values():
        assert detail.endswith("whose secret some clients log only with the first connection")


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
