"""Chooses the decryptor of a stream's records from the negotiated parameters and the key log."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from kafkasniff.tls.ciphers import suite
from kafkasniff.tls.descriptions import version_name
from kafkasniff.tls.handshake import TLS12, TLS13
from kafkasniff.tls.keylog import SESSION_ID, KeyLog
from kafkasniff.tls.record import Record

__all__ = [
    "Epoch",
    "Negotiated",
    "Phase",
    "Protection",
    "ProtectionError",
    "later_secret",
    "protection",
    "secret_of",
    "why_not",
]

Phase = Literal["clear", "tls12", "open", "early", "handshake", "application"]
"""Keys of a stream's records:

- clear: none, so far
- tls12: those of TLS 1.2, from ChangeCipherSpec on
- open: TLS 1.3, but it is unknown so far whether the server accepts the client's early data
- early, handshake, application: TLS 1.3 (RFC 8446, 7.1)
"""

_LABELS: Final[dict[tuple[Phase, bool], str]] = {
    ("tls12", True): "CLIENT_RANDOM",
    ("tls12", False): "CLIENT_RANDOM",
    ("early", True): "CLIENT_EARLY_TRAFFIC_SECRET",
    ("handshake", True): "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    ("handshake", False): "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    ("application", True): "CLIENT_TRAFFIC_SECRET_0",
    ("application", False): "SERVER_TRAFFIC_SECRET_0",
}


class ProtectionError(Exception):
    """There is a secret, but it cannot be used; the message says why."""


class Protection(Protocol):
    """Opens the records of one stream in one epoch."""

    lead: int
    """Bytes of the fragment before the first one with a clear counterpart."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate."""


class Negotiated(NamedTuple):
    """The result of two hellos."""

    client_random: bytes
    server_random: bytes
    version: int
    suite: int
    compression: int
    encrypt_then_mac: bool
    session_id: bytes = b""


class Epoch(NamedTuple):
    """The keys that a stream's records are under."""

    phase: Phase
    generation: int = 0
    """Number of updates of the application keys so far."""


def why_not(negotiated: Negotiated) -> str | None:
    """Why records of such a connection cannot be opened, whatever the key log has; None if they can."""
    if negotiated.version not in (TLS12, TLS13):
        return f"{version_name(negotiated.version)} is not decrypted"
    found = suite(negotiated.suite)
    if found is None or found.tls13 != (negotiated.version == TLS13):
        return "its cipher suite is not supported"
    if negotiated.compression:
        return "its records are compressed, which is not decrypted"
    return None


def secret_of(negotiated: Negotiated, phase: Phase, keys: KeyLog, order: int, *, client: bool) -> bytes | None:
    """The secret of the client's or the server's stream in a phase, as the key log has it at the packet of `order`."""
    label = _LABELS.get((phase, client))
    if label is None:
        return None
    found = keys.find(label, negotiated.client_random, order)
    if found is None and phase == "tls12" and negotiated.session_id:
        found = keys.find(SESSION_ID, negotiated.session_id, order)
    return found


def protection(negotiated: Negotiated, phase: Phase, secret: bytes, *, client: bool) -> Protection:
    """The decryptor of a stream under a secret. Raises ProtectionError if there is none."""
    found = suite(negotiated.suite)
    assert found is not None
    try:
        # The extra "tls", which is slow to import: only if there is something to decrypt.
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415

        from kafkasniff.tls.decrypt12 import protections12  # noqa: PLC0415
        from kafkasniff.tls.decrypt13 import Protection13  # noqa: PLC0415
    except ImportError:
        raise ProtectionError("decryption needs the package cryptography: install kafkasniff[tls]") from None
    try:
        if phase != "tls12":
            return Protection13(found, secret)
        both = protections12(
            found,
            secret,
            negotiated.client_random,
            negotiated.server_random,
            encrypt_then_mac=negotiated.encrypt_then_mac,
        )
    except ValueError:
        raise ProtectionError("its secret in the key log has a wrong length") from None
    except UnsupportedAlgorithm:
        raise ProtectionError("this machine's OpenSSL does not support its cipher") from None
    return both[0] if client else both[1]


def later_secret(negotiated: Negotiated, secret: bytes, updates: int) -> bytes:
    """The application secret of TLS 1.3 after some updates."""
    from kafkasniff.tls.decrypt13 import next_secret  # noqa: PLC0415 - as above

    found = suite(negotiated.suite)
    assert found is not None
    for _ in range(updates):
        secret = next_secret(found, secret)
    return secret
