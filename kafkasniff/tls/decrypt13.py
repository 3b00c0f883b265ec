"""Records of TLS 1.3 to clear bytes (RFC 8446, 5.2-5.3 and 7.1-7.3)."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from kafkasniff.tls.ciphers import Suite
from kafkasniff.tls.decrypt12 import aead
from kafkasniff.tls.record import Record

__all__ = ["Protection13", "next_secret"]

_IV = 12


def _expand_label(suite: Suite, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    full = b"tls13 " + label
    info = length.to_bytes(2) + bytes((len(full),)) + full + b"\0"
    return HKDFExpand(SHA384() if suite.digest == "sha384" else SHA256(), length, info).derive(secret)


def next_secret(suite: Suite, secret: bytes) -> bytes:
    """The traffic secret after a KeyUpdate (RFC 8446, 7.2)."""
    return _expand_label(suite, secret, b"traffic upd", len(secret))


class Protection13:
    """The records of one stream under one traffic secret.

    Raises ValueError if its length is not that of the suite's hash, UnsupportedAlgorithm if OpenSSL lacks the cipher.
    """

    __slots__ = ("_cipher", "_iv", "lead")

    def __init__(self, suite: Suite, secret: bytes) -> None:
        if len(secret) != (48 if suite.digest == "sha384" else 32):
            raise ValueError("a traffic secret has the length of the suite's hash")
        key = _expand_label(suite, secret, b"key", suite.key_length)
        self._iv = int.from_bytes(_expand_label(suite, secret, b"iv", _IV))
        self._cipher = aead(suite, key)
        self.lead = 0
        """Bytes of the fragment before the first one with a clear counterpart."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate. Hot."""
        try:
            inner = self._cipher.decrypt((self._iv ^ seq).to_bytes(_IV), record.data, record.header)
        except InvalidTag:
            return None
        # The content type is the last non-zero byte; padding follows it (RFC 8446, 5.4).
        inner = inner.rstrip(b"\0")
        return (inner[-1], inner[:-1]) if inner else None
