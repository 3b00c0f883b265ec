"""What reports say of TLS connections: cipher suites, versions, alerts, certificates, and why a handshake failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from kafkasniff.model import NO_TIME
from kafkasniff.tls.record import TLS12, TLS13, ClientHello, ServerHello

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


NAMED: Final = "this is "
"""Precedes the description of a connection (`descriptions.describe`)."""
CLIENT: Final = "the client"
OTHER_SIDE: Final = "the other side"

NO_KEYS: Final = "there are no keys for it"
OTHER_KEYS: Final = "there are keys, but none for it"
RESUMED: Final = "it resumes a session of TLS 1.2, whose secret some clients log only with the first connection"
NO_ANSWER: Final = "no answer of the other side is in the capture"

CLIENT_REFUSED: Final = (
    "the client answered the server's part of the handshake with a record as short as an alert: it refused the "
    "handshake, probably the server's certificate"
)
CLIENT_LEFT: Final = "the client closed the connection after the server's part of the handshake, without an alert"
NO_CLIENT_CERTIFICATE: Final = "the server asked for a certificate, and the client has none"
SERVER_REFUSED: Final = (
    "the server answered the client's part of the handshake with a record as short as an alert: it refused the client"
)
SERVER_LEFT: Final = "the server closed the connection after the client's part of the handshake, without an alert"
LEFT_AT_ONCE: Final = "the client closed the connection before the server could say anything after the handshake"

EXPIRED: Final = "expired on"
NOT_YET_VALID: Final = "not valid before"
OTHER_NAME: Final = "not for this server name but for"

_HANDSHAKE: Final = "the handshake"
_TLS: Final = "TLS"
_WITH_ALERT: Final = "with the alert"
_ALERT: Final = re.compile(rf"({CLIENT}|{OTHER_SIDE}) ended (?:{_HANDSHAKE}|{_TLS}) {_WITH_ALERT} (\w+)")
_FLAW: Final = re.compile(rf"(?:{EXPIRED}|{NOT_YET_VALID}|{OTHER_NAME}) [^;]+")
_IS_TLS: Final = re.compile(rf"{NAMED}(?:TLS|SSL) ")
_WITHOUT_KEYS: Final = re.compile(rf"; (?:{NO_KEYS}|{OTHER_KEYS})")


def ended_with_alert(alert: str, *, by_client: bool, in_handshake: bool) -> str:
    """Who ended what with this alert (`descriptions.alert_name`)."""
    side, what = CLIENT if by_client else OTHER_SIDE, _HANDSHAKE if in_handshake else _TLS
    return f"{side} ended {what} {_WITH_ALERT} {alert}"


def alert_in(detail: str) -> tuple[str, str] | None:
    """`CLIENT` or `OTHER_SIDE`, and the name of the alert that it sent, from `ended_with_alert`; None: no alert."""
    match = _ALERT.search(detail)
    return None if match is None else (match[1], match[2])


def flaws_in(detail: str) -> list[str]:
    """The problem of the certificate, with the date or the names."""
    return _FLAW.findall(detail)


def is_about_tls(cause: str) -> bool:
    """Whether the cause of a problem begins with the description of a TLS connection."""
    return _IS_TLS.match(cause) is not None


def lacks_keys(detail: str) -> bool:
    """Whether the handshake went as far as possible, and only keys are missing."""
    return _WITHOUT_KEYS.search(detail) is not None


# Certificates in handshakes: the fields that reports show.

MAX_SUBJECT: Final = 300
"""Maximum number of characters of a certificate's subject, and of its names."""
MAX_NAMES: Final = 5
"""Maximum number of names of a certificate that are shown."""


class ShownCertificate(msgspec.Struct, frozen=True):
    """The readable parts of a certificate."""

    subject: str
    """Whose it is (RFC 4514)."""
    issuer: str
    """Who signed it."""
    not_before: datetime
    """Time from which it is valid."""
    not_after: datetime
    """Time until which it is valid."""
    flaws: tuple[str, ...]
    """Why a client might refuse it: it is out of date, or for another name."""


def shown_certificate(data: bytes, name: str | None, time_ns: int | None) -> ShownCertificate | None:
    """A certificate in DER; `name`: the host that the client asked for; `time_ns`: when it was shown.

    Returns None if it cannot be read. Raises ImportError without the package `cryptography`.
    """
    from cryptography import x509  # noqa: PLC0415 - the extra "tls"; heavy, and few connections come to this

    try:
        found = x509.load_der_x509_certificate(data)
        subject, issuer = (one.rfc4514_string()[:MAX_SUBJECT] for one in (found.subject, found.issuer))
        flaws = (*out_of_date(found, NO_TIME if time_ns is None else time_ns), *other_name(found, name))
        return ShownCertificate(subject, issuer, found.not_valid_before_utc, found.not_valid_after_utc, flaws)
    # Its parsers raise exceptions of many kinds.
    except Exception:
        return None


def out_of_date(certificate: Certificate, time_ns: int) -> Iterator[str]:
    """Whether it is expired, or not valid yet, at a time (RFC 5280, 4.1.2.5)."""
    if time_ns == NO_TIME:
        return
    time = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    if time > certificate.not_valid_after_utc:
        yield f"{EXPIRED} {certificate.not_valid_after_utc:%Y-%m-%d}"
    elif time < certificate.not_valid_before_utc:
        yield f"{NOT_YET_VALID} {certificate.not_valid_before_utc:%Y-%m-%d}"


def other_name(certificate: Certificate, name: str | None) -> Iterator[str]:
    """Whether the client asked for a name (RFC 6066, 3) that the certificate does not cover (RFC 9525, 6.3)."""
    from cryptography import x509  # noqa: PLC0415 - it is there by now

    if name is None:
        return
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return  # old clients use the subject then
    names = held.get_values_for_type(x509.DNSName)
    if not any(_is_for(one.lower(), name.lower()) for one in names):
        yield f"{OTHER_NAME} {', '.join(names[:MAX_NAMES])[:MAX_SUBJECT] or 'no host name'}"


def _is_for(pattern: str, name: str) -> bool:
    first, _, rest = name.partition(".")
    return pattern == name or (bool(first) and pattern == f"*.{rest}")


# The cipher suites that can be decrypted, by their codes.
#
# Sources: the TLS Cipher Suites registry of IANA; RFC 5246 (CBC), 5288 and 5289 (GCM), 5487 and 5489 (PSK), 6655 and
# 7251 (CCM), 7905 (ChaCha20-Poly1305), 8446 (TLS 1.3). The key exchange does not matter here, since the key log has its
# outcome; it is only part of a suite's name and code.

Mode = Literal["gcm", "ccm", "chacha20", "cbc"]


class Suite(NamedTuple):
    """How records are protected; lengths in bytes."""

    name: str
    mode: Mode
    key_length: int
    tag_length: int
    """Length of the AEAD's tag; for CBC of the HMAC."""
    digest: str
    """Hash of the key schedule, by its name in hashlib."""
    mac: str
    """Hash of the HMAC (CBC), by its name in hashlib; "" in AEAD modes."""
    tls13: bool


_TLS13: Final = """
1301 AES_128_GCM SHA256
1302 AES_256_GCM SHA384
1303 CHACHA20_POLY1305 SHA256
1304 AES_128_CCM SHA256
1305 AES_128_CCM_8 SHA256
"""

_TLS12: Final = """
AES_128_CBC SHA: 002F RSA, 0031 DH_RSA, 0032 DHE_DSS, 0033 DHE_RSA, 0034 DH_anon, 008C PSK, 0090 DHE_PSK,
    0094 RSA_PSK, C004 ECDH_ECDSA, C009 ECDHE_ECDSA, C00E ECDH_RSA, C013 ECDHE_RSA, C018 ECDH_anon, C01D SRP_SHA,
    C01E SRP_SHA_RSA, C01F SRP_SHA_DSS, C035 ECDHE_PSK
AES_256_CBC SHA: 0035 RSA, 0037 DH_RSA, 0038 DHE_DSS, 0039 DHE_RSA, 003A DH_anon, 008D PSK, 0091 DHE_PSK,
    0095 RSA_PSK, C005 ECDH_ECDSA, C00A ECDHE_ECDSA, C00F ECDH_RSA, C014 ECDHE_RSA, C019 ECDH_anon, C020 SRP_SHA,
    C021 SRP_SHA_RSA, C022 SRP_SHA_DSS, C036 ECDHE_PSK
AES_128_CBC SHA256: 003C RSA, 0040 DHE_DSS, 0067 DHE_RSA, 006C DH_anon, 00AE PSK, 00B2 DHE_PSK, 00B6 RSA_PSK,
    C023 ECDHE_ECDSA, C025 ECDH_ECDSA, C027 ECDHE_RSA, C029 ECDH_RSA, C037 ECDHE_PSK
AES_256_CBC SHA256: 003D RSA, 006A DHE_DSS, 006B DHE_RSA, 006D DH_anon
AES_128_GCM SHA256: 009C RSA, 009E DHE_RSA, 00A2 DHE_DSS, 00A6 DH_anon, 00A8 PSK, 00AA DHE_PSK, 00AC RSA_PSK,
    C02B ECDHE_ECDSA, C02D ECDH_ECDSA, C02F ECDHE_RSA, C031 ECDH_RSA
AES_256_GCM SHA384: 009D RSA, 009F DHE_RSA, 00A3 DHE_DSS, 00A7 DH_anon, 00A9 PSK, 00AB DHE_PSK, 00AD RSA_PSK,
    C02C ECDHE_ECDSA, C02E ECDH_ECDSA, C030 ECDHE_RSA, C032 ECDH_RSA
AES_256_CBC SHA384: 00AF PSK, 00B3 DHE_PSK, 00B7 RSA_PSK, C024 ECDHE_ECDSA, C026 ECDH_ECDSA, C028 ECDHE_RSA,
    C02A ECDH_RSA, C038 ECDHE_PSK
AES_128_CCM SHA256: C09C RSA, C09E DHE_RSA, C0A4 PSK, C0A6 DHE_PSK, C0AC ECDHE_ECDSA
AES_256_CCM SHA256: C09D RSA, C09F DHE_RSA, C0A5 PSK, C0A7 DHE_PSK, C0AD ECDHE_ECDSA
AES_128_CCM_8 SHA256: C0A0 RSA, C0A2 DHE_RSA, C0A8 PSK, C0AA PSK_DHE, C0AE ECDHE_ECDSA
AES_256_CCM_8 SHA256: C0A1 RSA, C0A3 DHE_RSA, C0A9 PSK, C0AB PSK_DHE, C0AF ECDHE_ECDSA
CHACHA20_POLY1305 SHA256: CCA8 ECDHE_RSA, CCA9 ECDHE_ECDSA, CCAA DHE_RSA, CCAB PSK, CCAC ECDHE_PSK, CCAD DHE_PSK,
    CCAE RSA_PSK
"""
"""By cipher and hash: code and key exchange of each suite."""

_MAC_LENGTHS: Final = {"sha1": 20, "sha256": 32, "sha384": 48}
_HASHES: Final = {"SHA": "sha1", "SHA256": "sha256", "SHA384": "sha384"}


def suite(code: int) -> Suite | None:
    """The suite with this code; None if it cannot be decrypted."""
    return _suites().get(code)


@cache
def _suites() -> dict[int, Suite]:
    found = {}
    for line in _TLS13.split("\n")[1:-1]:
        code, cipher, digest = line.split()
        found[int(code, 16)] = _make(f"TLS_{cipher}_{digest}", cipher, digest, tls13=True)
    for group in re.split(r"\n(?=\S)", _TLS12.strip()):
        protection, _, suites = group.partition(":")
        cipher, digest = protection.split()
        for one in suites.split(","):
            code, exchange = one.split()
            # The registry's names of the CCM suites do not include a hash.
            name = f"TLS_{exchange}_WITH_{cipher}" + ("" if "CCM" in cipher else f"_{digest}")
            found[int(code, 16)] = _make(name, cipher, digest, tls13=False)
    return found


def _make(name: str, cipher: str, digest: str, *, tls13: bool) -> Suite:
    kind, *rest = cipher.split("_")
    mac_hash = _HASHES[digest]
    if kind == "CHACHA20":
        return Suite(name, "chacha20", 32, 16, mac_hash, "", tls13)
    key_length = int(rest[0]) // 8
    if rest[1] == "CBC":
        # RFC 5246, 5: if the suite names no hash, TLS 1.2 derives keys with SHA-256.
        schedule = "sha384" if mac_hash == "sha384" else "sha256"
        return Suite(name, "cbc", key_length, _MAC_LENGTHS[mac_hash], schedule, mac_hash, tls13)
    tag = 8 if rest[-1] == "8" else 16
    return Suite(name, "gcm" if rest[1] == "GCM" else "ccm", key_length, tag, mac_hash, "", tls13)


# Descriptions of TLS connections: what is visible of them without keys.

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
        parts.append(_certificate_text(certificate, None if client is None else client.server_name, time_ns))
    elif server is not None and server.version >= TLS13:
        parts.append("certificate not visible (TLS 1.3)")
    else:
        parts.append("no certificate captured")
    return ", ".join(parts)


def _certificate_text(data: bytes, name: str | None, time_ns: int) -> str:
    """Subject of a certificate, and its problems for this name at this time."""
    try:
        found = shown_certificate(data, name, time_ns)
    except ImportError:
        return "certificate not read (pip install 'kafkasniff[tls]')"
    if found is None:
        return "certificate of an unreadable subject"
    return "; ".join([f"certificate of {found.subject or 'an empty subject'}", *found.flaws])
