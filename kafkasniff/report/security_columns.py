"""Columns of the table of clients in the security view, as `stats` and the report show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkasniff.report.cells import MAX_DETAIL, Cell, ReportColumn, count_of
from kafkasniff.text.printable import cut, printable, word

if TYPE_CHECKING:
    from kafkasniff.analysis.security import ClientIdentity
    from kafkasniff.tls.descriptions import ShownCertificate

__all__ = ["SECURITY", "authentication", "client_certificate", "principal", "server_certificate", "transport"]

_AUTHENTICATION: Final = {
    "none": "no SASL",
    "begun": "authentication not seen to its end",
    "succeeded": "succeeded",
    "failed": "failed",
    "unserved": "no SASL, and no request was answered",
    "hidden": "encrypted",
    "unknown": "began before the capture",
}


def principal(row: ClientIdentity) -> str:
    """The name of a principal; "" where it is unknown."""
    return "" if row.principal is None else f"{'token ' if row.by_token else ''}{printable(row.principal)}"


def authentication(row: ClientIdentity) -> str:
    """The mechanism and its outcome."""
    mechanism = "" if row.mechanism is None else f"{printable(row.mechanism)} "
    return f"{mechanism}{_AUTHENTICATION[row.authentication]}"


def transport(row: ClientIdentity) -> str:
    """Version, cipher and host name of TLS, and what is known of certificates without one."""
    over = row.transport
    if not over.tls:
        return "no TLS"
    parts = [over.version or "TLS, handshake not captured"]
    if over.cipher is not None:
        parts.append(over.cipher)
    if over.server_name is not None:
        parts.append(f"for {printable(over.server_name)}")
    if over.certificate_note is not None:
        parts.append(f"certificate {over.certificate_note}")
    if over.without_client_certificate:
        parts.append("no client certificate")
    return ", ".join(parts)


def server_certificate(row: ClientIdentity) -> str:
    """Subject, issuer and last day; "" where it is unknown."""
    return _certificate(row.transport.certificate)


def client_certificate(row: ClientIdentity) -> str:
    """The same of the client's own."""
    return _certificate(row.transport.client_certificate)


def _certificate(found: ShownCertificate | None) -> str:
    if found is None:
        return ""
    return f"{printable(found.subject)}, by {printable(found.issuer)}, until {found.not_after:%Y-%m-%d}"


def _version(row: ClientIdentity) -> str:
    return (row.transport.version or "unknown") if row.transport.tls else "no"


def _cut(text: Cell) -> Cell:
    return lambda row: cut(text(row), MAX_DETAIL)


SECURITY: Final = [
    ReportColumn("listener", lambda row: row.broker),
    ReportColumn("address", lambda row: printable(row.client_ip)),
    ReportColumn("principal", _cut(principal)),
    ReportColumn("authentication", _cut(authentication)),
    ReportColumn("TLS", _version, level=1, until=5),
    ReportColumn("client id", _cut(lambda row: ", ".join(map(word, row.client_ids))), level=2),
    ReportColumn("connections", count_of("connections"), number=True, level=3),
    ReportColumn("transport", _cut(transport), level=5),
    ReportColumn("certificate", _cut(server_certificate), level=6),
    ReportColumn("client's certificate", _cut(client_certificate), level=6),
    ReportColumn("reason", _cut(lambda row: printable(row.reason or "")), level=4),
]
