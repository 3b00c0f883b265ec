"""Columns of who connects as whom."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from kafkasniff.analysis.detectors.identities import ClientIdentity, Transport
from kafkasniff.report.cells import MAX_DETAIL
from kafkasniff.report.security_columns import SECURITY
from kafkasniff.tls.certificates import ShownCertificate

_DAY = datetime(2027, 1, 31, tzinfo=UTC)
_PLAIN = ClientIdentity(
    *("10.0.0.1", ("app", "other app"), "java", "4.3", "10.0.0.9:9092", Transport(tls=False), "PLAIN", "alice"),
    *(False, True, "succeeded", None, 1234, 5, 5, []),
)


def _cells(**changes: Any) -> dict[str, str]:
    row = msgspec.structs.replace(_PLAIN, **changes)
    return {one.heading: text for one in SECURITY if (text := one.cell(row))}


def test_tls() -> None:
    certificate = ShownCertificate("CN=broker", "CN=ca", _DAY, _DAY, ())
    cells = _cells(transport=Transport(tls=True, version="TLS 1.2", server_name="b.example", certificate=certificate))
    assert (cells["TLS"], cells["transport"]) == ("TLS 1.2", "TLS 1.2, for b.example")
    assert cells["certificate"] == "CN=broker, by CN=ca, until 2027-01-31"
    assert "client's certificate" not in cells
    cells = _cells(transport=Transport(tls=True, version="TLS 1.2", client_certificate=certificate))
    assert cells["client's certificate"] == "CN=broker, by CN=ca, until 2027-01-31"
    cells = _cells(transport=Transport(tls=True, certificate_note="not readable", without_client_certificate=True))
    assert cells["TLS"] == "unknown"
    assert cells["transport"] == "TLS, handshake not captured, certificate not readable, no client certificate"


def test_text_from_the_wire_is_escaped_and_cut() -> None:
    evil = "\x1b[31m" + "x" * 1000
    cells = _cells(
        principal=evil,
        mechanism=evil,
        reason=evil,
        client_ids=(evil,),
        by_token=True,
        authentication="failed",
        transport=Transport(tls=True, version="TLS 1.3", server_name=evil),
    )
    assert cells["principal"].startswith("token \\x1b[31mx")
    assert all(text.isprintable() and len(text) <= MAX_DETAIL + len("… +9,999") for text in cells.values())
