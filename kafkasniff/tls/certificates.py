"""Certificates in handshakes: the fields that reports show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.model import NO_TIME
from kafkasniff.tls.wording import EXPIRED, NOT_YET_VALID, OTHER_NAME

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = ["MAX_NAMES", "MAX_SUBJECT", "ShownCertificate", "other_name", "out_of_date", "shown_certificate"]

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
