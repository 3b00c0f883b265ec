"""The security view of real captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.security import ClientIdentity, SecurityView, view
from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.filters import Selector
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange
from tests.analysis.security.test_logins import handshake
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.read import read_packets

CAPTURES = ROOT / "captures"


def seen(*paths: Path, selector: Selector | None = None) -> SecurityView:
    found = SecurityView(selector)
    inspector = Inspector(records="skip", exchanges=True, connections=True)
    with open_captures([str(path) for path in paths]) as source:
        for batch in source:
            found.feed(inspector.feed(batch))
    found.feed(inspector.close())
    return found


def _short(one: ClientIdentity) -> tuple[object, ...]:
    return (one.principal, one.mechanism, one.authentication, one.transport.tls, one.connections)


def test_sasl() -> None:
    found = seen(CAPTURES / "java-sasl.pcap")
    assert {_short(one) for one in found.identities()} >= {
        ("alice", "PLAIN", "succeeded", False, 2),
        ("alice", "PLAIN", "failed", False, 1),
        ("bob", "SCRAM-SHA-512", "succeeded", False, 2),
    }
    kinds = [one.detector for one in found.findings()]
    assert kinds[0] == "plaintext-credentials"
    assert kinds.count("failed-authentication") == 2
    assert sum(one.connections for one in found.identities()) == found.connections == 12


def test_tls_without_keys() -> None:
    found = seen(CAPTURES / "tls" / "tls-refused.pcap")
    assert {one.authentication for one in found.identities()} == {"hidden"}
    assert any(one.transport.without_client_certificate for one in found.identities())
    versions = {one.transport.version for one in found.identities()}
    assert versions == {"TLS 1.2", "TLS 1.3", None}


def test_certificates_and_names() -> None:
    identities = seen(CAPTURES / "tls" / "tls12-kafka-python.pcapng").identities()
    named = [one for one in identities if one.transport.server_name is not None]
    assert {one.transport.server_name for one in named} == {"localhost"}
    certificates = {one.transport.certificate for one in identities if one.transport.certificate is not None}
    assert {(one.subject, one.issuer) for one in certificates} == {
        ("CN=broker.example,O=Captures", "CN=ca.example,O=Captures")
    }


@pytest.mark.parametrize("version", ["12", "13"])
def test_certificates_of_clients(version: str) -> None:
    """TLS 1.2 shows them; those of TLS 1.3 are decrypted with the capture's key log."""
    for one in seen(CAPTURES / "tls" / f"tls{version}-kafka-python.pcapng").identities():
        found = one.transport.client_certificate
        shown = None if found is None else (found.subject, found.issuer, found.not_after.year)
        mutual = {"python-mutual-3", "python-mutual-4", *(["python-reader"] if version == "12" else [])}
        wanted = ("CN=client.example,O=Captures", "CN=ca.example,O=Captures", 2125)
        assert shown == (wanted if mutual.intersection(one.client_ids) else None), one
        server = one.transport.certificate
        assert server is None or server.subject == "CN=broker.example,O=Captures"
        assert version == "12" or server is not None


def test_clients_that_speak_plaintext_to_tls_are_not_served() -> None:
    found = seen(CAPTURES / "tls" / "tls-plaintext-client.pcap")
    assert {one.authentication for one in found.identities()} == {"unserved"}
    assert not found.findings()


@pytest.mark.parametrize("name", ["java-codecs.pcap", "kafkajs.pcap"])
def test_without_authentication(name: str) -> None:
    found = seen(CAPTURES / name)
    assert {one.detector for one in found.findings()} == {"without-authentication"}
    assert {one.authentication for one in found.identities()} <= {"none", "unserved"}


def test_the_middle_of_a_connection_claims_nothing() -> None:
    packets = read_packets(CAPTURES / "java-sasl.pcap")
    # From here on the first connections are authenticated.
    start = 15
    found = SecurityView()
    inspector = Inspector(records="skip", exchanges=True, connections=True)
    found.feed(inspector.feed(batch(packets[start:], range(start, len(packets)))))
    found.feed(inspector.close())
    (cut,) = [one for one in found.identities() if one.authentication == "unknown"]
    assert (cut.principal, cut.connections, cut.client_ids) == (None, 1, ("sasl-plain",))
    assert all(cut.examples[0][1] != one.connection for finding in found.findings() for one in finding.evidence)


def test_authentication_of_open_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_OPEN", 2)
    found = SecurityView()
    for number in range(4):
        one = handshake("PLAIN")
        found.feed([Exchange(one.exchange, number, one.status, one.request, one.response)])
    assert len(found._logins) == 2
    assert any("2 connections was forgotten" in note for note in found.notes())


def test_filters_show_connections_of_selected_exchanges() -> None:
    """Authentication counts though it is not selected itself; the wrong passwords have no Produce."""
    path = CAPTURES / "java-sasl.pcap"
    found = seen(path, selector=Selector(parse_filter('api == "Produce"')))
    assert {(one.principal, one.mechanism, one.authentication) for one in found.identities()} == {
        ("bob", "SCRAM-SHA-256", "succeeded"),
        ("bob", "SCRAM-SHA-512", "succeeded"),
    }
    assert sum(one.connections for one in found.identities()) == found.connections < seen(path).connections
    assert not seen(path, selector=Selector(parse_filter('api == "Vote"'))).identities()
