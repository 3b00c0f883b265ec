"""Findings about transport and authentication, and what only looks like them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.detectors import Finding, find_detector
from kafkasniff.analysis.detectors.connections import ClientIdentity, Transport
from kafkasniff.analysis.detectors.registry import SECURITY
from kafkasniff.tls.descriptions import ShownCertificate

_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_NS = int(_NOW.timestamp()) * 1_000_000_000
_CERTIFICATE = ShownCertificate("CN=b", "CN=ca", _NOW - timedelta(365), _NOW + timedelta(365), ())

_PLAIN = ClientIdentity(
    *("10.0.0.1", ("app",), None, None, "10.0.0.9:9092", Transport(tls=False), "PLAIN", "alice", False, True),
    *("succeeded", None, 2, _NS, _NS, [(7, 4, _NS)]),
)


def findings(identity: ClientIdentity) -> list[Finding]:
    found = []
    for detector in map(find_detector, SECURITY):
        if hasattr(detector, "judged"):
            found += [one for one in detector().judged([identity]) if one.detector == detector.name]
    return found


def _kinds(**changes: Any) -> dict[str, str]:
    found = findings(msgspec.structs.replace(_PLAIN, **changes))
    assert all(one.evidence and one.count == 2 for one in found)
    return {one.detector: one.severity for one in found}


def _over(**changes: Any) -> Transport:
    return Transport(tls=True, decrypted=True, **changes)


READABLE = {"plaintext-credentials": "warning"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, READABLE),
        ({"mechanism": "OAUTHBEARER"}, READABLE),
        ({"authentication": "begun"}, READABLE),
        ({"mechanism": "SCRAM-SHA-512"}, {"plaintext-scram": "note"}),
        # What protects little.
        ({"transport": _over(version="TLS 1.0")}, {"old-tls": "warning"}),
        ({"transport": _over(version="SSL 3.0")}, {"old-tls": "warning"}),
        ({"transport": _over(version="TLS 1.2", cipher="0x000a")}, {"weak-cipher": "warning"}),
        (
            {"transport": _over(version="TLS 1.2", cipher="TLS_DH_anon_WITH_AES_128_CBC_SHA")},
            {"weak-cipher": "warning"},
        ),
        # What only looks like a finding. The mechanism was agreed on, and nothing sent.
        ({"transport": _over(version="TLS 1.3")}, {}),
        ({"credentials": False}, {}),
        ({"mechanism": "GSSAPI"}, {}),
        ({"mechanism": "GSSAPI", "authentication": "begun"}, {}),
        ({"mechanism": None, "credentials": False, "authentication": "unknown"}, {}),
        ({"mechanism": None, "credentials": False, "authentication": "unserved"}, {}),
        ({"transport": _over(), "mechanism": None, "credentials": False, "authentication": "none"}, {}),
        ({"transport": Transport(tls=True), "mechanism": None, "credentials": False, "authentication": "hidden"}, {}),
        ({"transport": _over(version="TLS 1.2", cipher="TLS_RSA_WITH_AES_128_CBC_SHA", certificate=_CERTIFICATE)}, {}),
    ],
)
def test_kinds(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert _kinds(**changes) == expected


def test_certificates() -> None:
    def kinds(**changes: Any) -> dict[str, str]:
        return _kinds(transport=_over(certificate=msgspec.structs.replace(_CERTIFICATE, **changes)))

    assert kinds(flaws=("expired on 2026-01-01",)) == {"bad-certificate": "error"}
    assert kinds(flaws=("for other names",)) == {"bad-certificate": "warning"}
    assert kinds(not_after=_NOW + timedelta(29)) == {"expiring-certificate": "note"}
    assert kinds(not_after=_NOW + timedelta(31)) == {}


def test_certificates_of_clients() -> None:
    def found(**changes: Any) -> list[tuple[str, str, str]]:
        own = msgspec.structs.replace(_CERTIFICATE, **changes)
        over = _over(certificate=_CERTIFICATE, client_certificate=own)
        judged = findings(msgspec.structs.replace(_PLAIN, transport=over))
        return [(one.detector, one.subject["client_ip"], one.title.partition(":")[0]) for one in judged]

    whose = ("10.0.0.1", "certificate of 10.0.0.1 (CN=b)")
    assert found(flaws=("expired on 2026-01-01",)) == [("bad-certificate", *whose)]
    (expiring,) = found(not_after=_NOW + timedelta(29))
    assert expiring[:2] == ("expiring-certificate", "10.0.0.1")
    assert found() == []


def test_text_of_the_wire_is_printable() -> None:
    evil = "\x1b[31mx\n"
    (found,) = findings(msgspec.structs.replace(_PLAIN, principal=evil, mechanism="PLAIN"))
    assert all(text.isprintable() for text in (found.title, found.meaning, found.advice))
