"""Descriptions of TLS connections: what is visible of them without keys."""

from __future__ import annotations

from typing import Final

from kafkasniff.tls.certificates import MAX_SUBJECT, other_name, out_of_date
from kafkasniff.tls.ciphers import suite
from kafkasniff.tls.handshake import TLS12, TLS13, ClientHello, ServerHello

__all__ = ["alert_name", "describe", "version_name"]

_VERSIONS: Final = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", TLS12: "TLS 1.2", TLS13: "TLS 1.3"}

_ALERTS: Final = {
    0: "close_notify",
    10: "unexpected_message",
    20: "bad_record_mac",
    21: "decryption_failed",
    22: "record_overflow",
    30: "decompression_failure",
    40: "handshake_failure",
    41: "no_certificate",
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    47: "illegal_parameter",
    48: "unknown_ca",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    90: "user_canceled",
    100: "no_renegotiation",
    109: "missing_extension",
    110: "unsupported_extension",
    112: "unrecognized_name",
    113: "bad_certificate_status_response",
    115: "unknown_psk_identity",
    116: "certificate_required",
    120: "no_application_protocol",
}
"""RFC 8446, 6, and alerts of earlier versions."""


def version_name(version: int) -> str:
    """A protocol version by its name."""
    return _VERSIONS.get(version, f"TLS of version 0x{version:04x}")


def alert_name(code: int) -> str:
    """An alert's description by its name and code."""
    return f"{_ALERTS.get(code, 'unknown')} ({code})"


def describe(
    client: ClientHello | None, server: ServerHello | None, certificate: bytes | None, alpn: str | None, time_ns: int
) -> str:
    """Version, cipher suite, server name, application protocol and certificate, as far as they are visible.

    `time_ns`: when the certificate was sent.
    """
    if server is not None:
        known = suite(server.suite)
        parts = [f"{version_name(server.version)} with {known.name if known else f'suite 0x{server.suite:04x}'}"]
    elif client is not None:
        parts = [f"{version_name(client.version)} offered by the client"]
    else:
        return "TLS"
    if client is not None:
        parts.append(f"server name {client.server_name}" if client.server_name is not None else "no server name")
        if alpn is not None:
            parts.append(f"ALPN {alpn}")
        elif client.alpn:
            parts.append(f"ALPN offered: {', '.join(client.alpn)}")
        else:
            parts.append("no ALPN")
    if certificate is not None:
        parts.append(_certificate(certificate, None if client is None else client.server_name, time_ns))
    elif server is not None and server.version >= TLS13:
        parts.append("certificate not visible (TLS 1.3)")
    else:
        parts.append("no certificate captured")
    return ", ".join(parts)


def _certificate(data: bytes, name: str | None, time_ns: int) -> str:
    """Subject of a certificate, and its problems for this name at this time."""
    try:
        from cryptography import x509  # noqa: PLC0415 - the extra "tls"; heavy, and few connections come to this
    except ImportError:
        return "certificate of a subject that only kafkasniff[tls] can read"
    try:
        found = x509.load_der_x509_certificate(data)
        subject = found.subject.rfc4514_string()[:MAX_SUBJECT] or "an empty subject"
        flaws = [*out_of_date(found, time_ns), *other_name(found, name)]
    except Exception:
        return "certificate of an unreadable subject"
    return "; ".join([f"certificate of {subject}", *flaws])
